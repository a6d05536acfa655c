"""Apple's string catalogs (.xcstrings): translations are added in the target language; nothing else changes.

A catalog has all its languages. Only strings without a translation, or with one in the state `new`, are translated, unless
requested otherwise. A translation has the variations of its source, and the plural categories of its own language.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError, OptionError
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.shared.declared_languages import check_source, source_is_target
from triptych_documents.formats.shared.message_codes import formats
from triptych_documents.formats.shared.messages import with_messages
from triptych_documents.formats.shared.plurals import plural_categories
from triptych_documents.formats.shared.text_document import Span, UnitLimit, decoded_text, replaced
from triptych_documents.formats.structured.json_values import JsonEscapes, JsonObject, JsonString, is_escaped, parsed
from triptych_documents.formats.structured.keys import MAX_SHOWN, is_text
from triptych_documents.unit import Piece, Unit, changed, raw_text
from triptych_text.languages import standard_tag

_STYLE = re.compile(r'\s*\{(\r\n|\n|\r|)(\s*)"(?:[^"\\]|\\.)*+"(\s*:\s*)')  # line end, indentation and colon
_FORMAT = re.compile(r"%(?:\d+\$)?(?:#@[^@]*@|arg|[-+#0 .*\d]*(?:hh?|ll?|[qzjtL])?[a-zA-Z@])")
_DEPTH = 4  # of a translation: number of objects around it
_UNIT = "stringUnit"  # an object with a text and its state
_KINDS = frozenset({"variations", "substitutions", "plural", "device"})


@dataclass(frozen=True, slots=True)
class _Text:
    """A string unit of a translation."""

    unit: int | None  # None: nothing to translate
    source: str
    depth: int


_Parts = Iterable[str | _Text]


@dataclass
class _Catalog:
    text: str
    encoding: Encoding
    options: ReadOptions
    limit: UnitLimit
    units: list[Unit] = field(default_factory=list)
    edits: list[tuple[Span, Sequence[str | _Text]]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)  # standard tags of its languages

    def __post_init__(self) -> None:
        root = parsed(self.text, comments=False)
        strings, source = (root.get("strings"), root.get("sourceLanguage")) if isinstance(root, JsonObject) else (None, None)
        if not isinstance(strings, JsonObject) or not isinstance(source, JsonString):
            raise DamagedDocumentError("not a string catalog, which has a sourceLanguage and strings", "line 1")
        style = _STYLE.match(self.text)
        self._end, self._indent, self._colon = style.groups() if style else ("", "", ":")
        self._escapes = JsonEscapes(is_escaped(self.text), "\\/" in self.text)
        self.source = source.text
        self.target = standard_tag(self.options.target_language) or self.options.target_language
        self.categories = plural_categories(self.target)
        self.findings = [*check_source(self.source, self.options.source_language, "sourceLanguage")]
        if self.target and standard_tag(self.source) == self.target:
            self.findings.append(source_is_target(self.source, "sourceLanguage"))
            return
        for key, entry in strings.pairs:
            if isinstance(entry, JsonObject) and entry.get("shouldTranslate") is not False:
                _Entry(self, key).enter(entry)

    def is_target(self, language: str) -> bool:
        """Return whether a language of the catalog is the target language."""
        if language not in self.tags:
            self.tags[language] = standard_tag(language)
        return self.tags[language] == self.target

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        new = {index: raw_text(pieces) for index, pieces in changed(self.units, translations).items()}
        edits = [
            (span, "".join(part if isinstance(part, str) else self._written(part, new) for part in parts))
            for span, parts in self.edits
            if any(isinstance(part, _Text) and part.unit in new for part in parts)
        ]
        if edits and not self.target:
            raise OptionError("target_language", "a string catalog has all its languages: name the one to add")
        return self.encoding.encode(replaced(self.text, edits))

    def _written(self, text: _Text, new: Mapping[int, str]) -> str:
        whole, value = ("needs_review" if self.options.mark_fuzzy else "translated"), text.source
        if text.unit is not None:
            whole, value = (whole, new[text.unit]) if text.unit in new else ("new", value)
        members = {"state": [json.dumps(whole)], "value": [self._escapes.written(value, self.encoding)]}
        return "".join(str(part) for part in self.object(members, text.depth))

    def object(self, members: Mapping[str, _Parts], depth: int) -> _Parts:
        """Yield a new object at a depth."""
        for number, (name, parts) in enumerate(members.items()):
            yield "," if number else "{"
            yield from self._member(name, parts, depth + 1)
        yield self._line(depth) + "}"

    def _member(self, name: str, parts: _Parts, depth: int) -> _Parts:
        yield f"{self._line(depth)}{json.dumps(name, ensure_ascii=self._escapes.ascii_alone)}{self._colon}"
        yield from parts

    def _line(self, depth: int) -> str:
        return self._end + self._indent * depth if self._end else ""

    def add(self, holder: JsonObject, name: str, parts: _Parts, depth: int) -> None:
        """Set a member of an object at a depth. A new one comes behind those whose names sort before, as Xcode writes them."""
        (start, end), old = holder.span, holder.get(name)
        before = [value for other, value in holder.pairs if other < name]
        if old is not None:
            self.edits.append((old.span, [*parts]))
        elif not holder.pairs:
            self.edits.append((holder.span, [*self.object({name: parts}, depth)]))
        elif not before:
            self.edits.append(((start + 1, start + 1), [*self._member(name, parts, depth + 1), ","]))
        else:
            last = before[-1]
            at = last.span[1] if isinstance(last, JsonObject) else len(self.text[start : end - 1].rstrip()) + start
            self.edits.append(((at, at), [",", *self._member(name, parts, depth + 1)]))


@dataclass
class _Entry:
    """A string of a catalog with its translations, while it is read."""

    catalog: _Catalog
    key: str
    numbers: dict[Span | None, int] = field(default_factory=dict)  # of units, by their places

    def enter(self, entry: JsonObject) -> None:
        """Find what is to be translated."""
        catalog = self.catalog
        localizations = self._object(entry, "localizations")
        languages = [name for name, _ in localizations.pairs] if localizations else []
        language = next((name for name in languages if catalog.is_target(name)), catalog.target)
        source = self._object(localizations, catalog.source)
        target = self._object(localizations, language)
        there = [*_units(target, _DEPTH)] if target else []
        waiting = [found for found in there if catalog.options.retranslate or not _is_translated(found[0])]
        if len(waiting) < len(there):  # the others stay, and so does their structure
            for unit, depth, path in waiting:
                if source is None or (found := _counterpart(source, path)):
                    names = [name for name in path if name not in _KINDS]
                    catalog.edits.append((unit.span, [self._leaf(found if source else None, depth, names)]))
            return
        if source is None:
            parts = catalog.object({_UNIT: [self._leaf(None, _DEPTH + 1, ())]}, _DEPTH)
        else:
            parts = self._node(source, _DEPTH, ())
        if localizations is None:
            catalog.add(entry, "localizations", catalog.object({language: parts}, _DEPTH - 1), _DEPTH - 2)
        else:
            catalog.add(localizations, language, parts, _DEPTH - 1)

    def _object(self, holder: JsonObject | None, name: str) -> JsonObject | None:
        """Return a member, which is an object if it is there."""
        members = dict(holder.pairs) if holder else {}
        if name in members and not isinstance(members[name], JsonObject):
            raise DamagedDocumentError(f"{name} is not an object", f"string {self._where()}")
        return members.get(name)

    def _where(self, *names: str) -> str:
        return ".".join(name[:MAX_SHOWN] for name in (self.key, *names))[:MAX_SHOWN].encode(errors="replace").decode()

    def _leaf(self, unit: JsonObject | None, depth: int, names: Sequence[str]) -> _Text:
        """Return the translation of a string unit in the source language; of None, of the key."""
        text = self.key if unit is None else _value(unit)
        words = _FORMAT.sub("", text)
        if not any(map(str.isalpha, words)) or (unit is None and not is_text(words)):
            return _Text(None, text, depth)
        place = None if unit is None else unit.span
        if place not in self.numbers:
            self.numbers[place] = len(self.catalog.units)
            self.catalog.limit.count()
            self.catalog.units.append(Unit((text,), self._where(*names), keeps_space=True))
        return _Text(self.numbers[place], text, depth)

    def _node(self, node: JsonObject, depth: int, names: tuple[str, ...], counts: bool = False) -> _Parts:
        """Yield a localization, or the part of one for a device, a plural category or a substitution.

        Args:
            counts: it is within a plural, so that others inside stay: no number has two categories.
        """

        def inner(name: str, value: JsonObject) -> _Parts:
            if name == _UNIT:
                return [self._leaf(value, depth + 1, names)]
            if name == "variations":
                return self._with(value, lambda kind, branches: self._nodes(kind, branches, depth + 2, names, counts))
            return self._nodes(name, value, depth + 1, names, counts)

        return self._with(node, inner)

    def _nodes(self, kind: str, holder: JsonObject, depth: int, names: tuple[str, ...], counts: bool) -> _Parts:
        """Yield variations of a kind, or substitutions."""
        found = {name: node for name, node in holder.pairs if isinstance(node, JsonObject)}
        if kind != "plural" or counts or not found:
            return self._with(holder, lambda name, node: self._node(node, depth + 1, (*names, name), counts))
        other = "other" if "other" in found else next(iter(found))
        sources = {category: category if category in found else other for category in self.catalog.categories}
        if "zero" in found:  # for the number 0 in any language
            sources["zero"] = "zero"
        # A form for 1, 21, 31 needs the number, which a form for 1 only may leave out.
        if len(self.catalog.categories) > 2 and "one" in found and _formats(found["one"]) != _formats(found[other]):
            sources["one"] = other
        nodes = {name: (found[source], (*names, source)) for name, source in sorted(sources.items())}
        members = {name: self._node(node, depth + 1, inner, counts=True) for name, (node, inner) in nodes.items()}
        return self.catalog.object(members, depth)

    def _with(self, holder: JsonObject, written: Callable[[str, JsonObject], _Parts]) -> _Parts:
        """Yield an object with other members in place of its objects."""
        at = holder.span[0]
        for name, value in holder.pairs:
            if isinstance(value, JsonObject):
                yield self.catalog.text[at : value.span[0]]
                yield from written(name, value)
                at = value.span[1]
        yield self.catalog.text[at : holder.span[1]]


def _units(holder: JsonObject, depth: int, path: tuple[str, ...] = ()) -> Iterator[tuple[JsonObject, int, tuple[str, ...]]]:
    """Yield the string units of a localization with their depths and paths."""
    for name, value in holder.pairs:
        if isinstance(value, JsonObject) and name == _UNIT:
            yield value, depth + 1, path
        elif isinstance(value, JsonObject):
            yield from _units(value, depth + 1, (*path, name))


def _counterpart(source: JsonObject, path: Iterable[str]) -> JsonObject | None:
    """Return the string unit of the source for one of a translation, which may have other categories and devices."""
    for name in path:
        inner = source.get(name) or source.get("other")
        if not isinstance(inner, JsonObject):
            break
        source = inner
    found = source.get(_UNIT)
    return found if isinstance(found, JsonObject) else None


def _value(unit: JsonObject) -> str:
    value = unit.get("value")
    return value.text if isinstance(value, JsonString) else ""


def _is_translated(unit: JsonObject) -> bool:
    state = unit.get("state")
    return bool(_value(unit)) and not (isinstance(state, JsonString) and state.text == "new")


def _formats(node: JsonObject) -> list[str]:
    return [name for unit, _, _ in _units(node, 0) for name in formats(_value(unit))]


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    text, encoding, bound = decoded_text(data, options, b",", b":")
    return with_messages(_Catalog(text, encoding, options, bound), bound)
