"""Qt Linguist's .ts: each source is translated into the <translation> beside it; nothing else changes.

Only messages without a finished translation are translated, unless requested otherwise. A message with a number (`%n`) has one
source, and as many translations as Qt has plural forms for the language.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from triptych_documents.encoding import Encoding, reference
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.shared.declared_languages import check_source, foreign_translations
from triptych_documents.formats.shared.message_codes import joined_message, split_message
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.plurals import count, plural_forms
from triptych_documents.formats.shared.text_document import Span, UnitLimit, collected
from triptych_documents.formats.shared.xml import (
    FORBIDDEN,
    XmlTokenKind,
    XmlTree,
    decoded,
    read_tree,
    with_attribute,
    without_attribute,
    written_text,
)
from triptych_documents.unit import Piece, Unit
from triptych_text.languages import languages_differ, primary_language

_UNUSED = frozenset({"vanished", "obsolete"})  # types of translations whose sources are no longer in the program
_AFTER = frozenset({"translation", "userdata"})  # children of a message after the place of a missing <translation>
_BYTE = re.compile(r"x([0-9A-Fa-f]{1,4})|([0-9]{1,5})")
_ESCAPED = re.compile(f"({FORBIDDEN.pattern}|\r)")  # written as <byte value="x1b"/>
_QUOTES = str.maketrans({">": "&gt;", '"': "&quot;", "'": "&apos;"})  # which Qt's tools escape, too
_SPACE = re.compile(r"[^\S\x00-\x7f]")  # written as references by Qt's tools
_INDENT = re.compile(r"(?:\r\n|\n|\r)[ \t]*\Z")
_FORMS = {"bo dz fa gn hu jv om su tr tt yo za": 1, "lo": 2, "ga gv iu mi mk sa se sm": 3, "gd": 4, "cy": 5}  # not as gettext
_NUMBERS = {language: number for languages, number in _FORMS.items() for language in languages.split()}


@dataclass(frozen=True, slots=True)
class _Slot:
    span: Span
    parts: Sequence[str]  # what is written before, between and after the copies of the text, one for each plural form
    lead: str  # white space before the source
    tail: str  # white space after it

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        parts = _ESCAPED.split(self.lead + joined_message(pieces) + self.tail)
        parts[::2] = [written_text(text).translate(_QUOTES) for text in parts[::2]]
        parts[1::2] = [f'<byte value="x{ord(sign):x}"/>' for sign in parts[1::2]]
        text = _SPACE.sub(lambda space: f"&#x{ord(space[0]):x};", "".join(parts))
        return encoding.escaped(text.join(self.parts), reference)


@dataclass(frozen=True)
class _Message:
    tree: XmlTree
    children: Mapping[str, int]  # its elements by name
    is_numerus: bool  # depends on a number

    @property
    def translation(self) -> int | None:
        """The element with the translation."""
        return self.children.get("translation")

    @property
    def type(self) -> str:
        """State of the translation: "" if finished."""
        return "" if self.translation is None else self.tree.tokens[self.translation].attributes.get("type", "")

    @property
    def strings(self) -> Sequence[int]:
        """The elements of the translation that have texts, such as its plural forms."""
        if self.translation is None or not self.is_numerus:
            return [] if self.translation is None else [self.translation]
        return [form for form in self.tree.children(self.translation) if self.tree.tokens[form].name == "numerusform"]

    @property
    def texts(self) -> Sequence[str]:
        """The content of these elements as written."""
        return [self.tree.text[slice(*self.tree.inside(string))].strip() for string in self.strings]

    def slot(self, number: int, options: ReadOptions) -> _Slot:
        """Return the place of the translation; `number` is that of its plural forms."""
        tree, at = self.tree, self.translation
        above = at if at is not None else max(child for name, child in self.children.items() if name not in _AFTER)
        break_ = _INDENT.search(tree.tag(above - 1))  # the white space before it
        indent = break_[0] if break_ else ""
        tag = "<translation>" if at is None else re.sub(r"\s*/?>\Z", ">", tree.tag(at))
        tag = without_attribute(without_attribute(tag, "type"), "variants")
        parts = [with_attribute(tag, "type", "unfinished") if options.mark_fuzzy else tag]
        if self.is_numerus:
            keeps = not options.retranslate and self.type != "unfinished"
            kept = [tree.raw(form) if keeps and text else "" for form, text in zip(self.strings, self.texts, strict=True)]
            for form in [*kept, *[""] * number][:number]:
                parts[-1] += (indent and f"{indent}    ") + (form or "<numerusform>")
                parts += [] if form else ["</numerusform>"]
            parts[-1] += f"{indent}</translation>"
        else:
            parts.append("</translation>")
        if at is not None:
            return _Slot(tree.span(at), parts, "", "")
        end = tree.span(above)[1]
        return _Slot((end, end), [indent + parts[0], *parts[1:]], "", "")


def _messages(tree: XmlTree) -> Iterator[_Message]:
    """Yield the messages that the program uses."""
    contexts = [at for at in tree.children(tree.root()) if tree.tokens[at].name == "context"]
    for parent in (tree.root(), *contexts):
        for element in tree.children(parent):
            children = {tree.tokens[child].name: child for child in tree.children(element)}
            message = _Message(tree, children, tree.tokens[element].attributes.get("numerus") == "yes")
            if tree.tokens[element].name == "message" and "source" in children and message.type not in _UNUSED:
                yield message


def _text(tree: XmlTree, element: int) -> str:
    parts: list[str] = []
    for at in tree.nodes(element):
        token = tree.tokens[at]
        value = _BYTE.fullmatch(token.attributes.get("value", "")) if token.name == "byte" else None
        if value is not None:
            parts.append(chr(int(value[1], 16) if value[1] else int(value[2])))
        elif token.opens or token.kind is XmlTokenKind.REFERENCE:
            problem = f'{tree.tag(at)[:60]} in a source, which has text and bytes as <byte value="x1b"/> only'
            raise DamagedDocumentError(problem, f"line {token.line}")
        else:
            parts.append(token.text)
    return "".join(parts)


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    bound = UnitLimit(options)
    bound.check_marks(data, b"<")
    text, encoding = decoded(data)
    tree = read_tree(text, "TS")
    root, wanted = tree.tokens[tree.root()], options.target_language
    declared, where = root.attributes.get("language", ""), f"line {root.line}"
    findings = [*check_source(root.attributes.get("sourcelanguage", ""), options.source_language, where)]
    messages, is_foreign = [*_messages(tree)], languages_differ(declared, wanted)
    if is_foreign and not options.retranslate and any(any(message.texts) for message in messages):
        findings.append(foreign_translations(declared, wanted, where))
        messages = []

    def units() -> Iterator[tuple[Unit, _Slot]]:
        number = _NUMBERS.get(primary_language(wanted)) or count(plural_forms(wanted)) or 1
        for message in messages:
            source, texts = message.children["source"], message.texts
            is_finished = message.type != "unfinished" and bool(texts) and all(texts)
            lead, pieces, tail = split_message(_text(tree, source), "&")
            if pieces and (options.retranslate or not is_finished):
                forms = number if is_foreign else max(number, len(texts))  # some tools write more than Qt reads
                slot = replace(message.slot(forms, options), lead=lead, tail=tail)
                yield Unit(pieces, f"line {tree.tokens[source].line}", keeps_space=True), slot

    document = collected(text, encoding, units(), bound, findings)
    if wanted and (not declared or is_foreign):
        tag = with_attribute(tree.tag(tree.root()), "language", wanted.replace("-", "_"))
        document = replace(document, language=((root.start, root.end), tag))
    return with_messages(document, bound)
