"""HTML (Living Standard): pages and fragments, including unclosed and mis-nested elements and templating.

Blocks are units, inline elements codes in them; visible attributes are units of their own. Scripts, code, comments and content
with translate="no" or in another language (lang) stay as they are.
"""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from triptych_documents.encoding import Encoding
from triptych_documents.findings import Finding
from triptych_documents.format import Document, ReadOptions
from triptych_documents.formats.html.text import DOUBLE_BRACE, NO_BRACE, TEMPLATE_BRACE, Texts, decoded, written
from triptych_documents.formats.html.tokens import (
    BLOCKS,
    KEPT,
    KEPT_CLASSES,
    OPAQUE,
    UNSEEN,
    HtmlToken,
    HtmlTokenKind,
    is_text,
    masked,
    templates,
    tokens,
    values,
)
from triptych_documents.formats.shared.inline_codes import ScannedPart, ScannedTag, coded, core, pieces_of, soft, spaced
from triptych_documents.formats.shared.text_document import LineIndex, Span, UnitLimit, replaced
from triptych_documents.unit import Code, Piece, Role, Unit, changed, joined
from triptych_text.languages import UNDETERMINED, languages_differ, primary_language

Changes = Sequence[tuple[Span, str]]


@dataclass(frozen=True, slots=True)
class HtmlSlot:
    """Place of a unit."""

    text: str
    span: Span  # span to replace
    codes: Mapping[tuple[int, Role], Span]  # spans of the unit's codes
    texts: Sequence[tuple[str, str]]  # unchanged texts and their spelling, which is kept, in order
    keeps_space: bool = False  # white space is significant
    lead: str = ""  # text before the unit in the span
    tail: str = ""  # text after the unit in the span
    quote: str = ""  # quote of an attribute's value
    named_space: bool = False  # no-break spaces are written as &nbsp;

    def written(self, pieces: Sequence[Piece], encoding: Encoding, inner: Changes, braces: re.Pattern[str]) -> str:
        """Return the new content of the span."""
        starts = [start for (start, _), _ in inner]
        parts = [self.lead]
        spelled = dict[str, deque[str]]()
        for text, raw in self.texts:
            spelled.setdefault(text, deque()).append(raw)
        for piece in pieces if self.keeps_space else soft(pieces):
            if isinstance(piece, Code):
                start, end = self.codes[piece.pair, piece.role]
                changes = inner[bisect_left(starts, start) : bisect_left(starts, end)]
                moved = [((first - start, after - start), new) for (first, after), new in changes]
                parts.append(replaced(self.text[start:end], moved))
            elif raws := spelled.get(piece):
                parts.append(raws.popleft())
            else:
                parts.append(written(piece, encoding, quote=self.quote, named_space=self.named_space, braces=braces))
        return "".join((*parts, self.tail))


@dataclass(frozen=True, slots=True)
class _Frame:
    closing: int | None
    translate: bool = True
    keeps_space: bool = False


@dataclass
class HtmlDocument:
    """An HTML document; `read` fills its units and their places."""

    text: str
    encoding: Encoding
    options: ReadOptions
    units: list[Unit] = field(default_factory=list)
    places: list[HtmlSlot] = field(default_factory=list)
    languages: list[tuple[Span, str]] = field(default_factory=list)  # spans and values of <html lang>
    findings: Sequence[Finding] = ()

    def read(self) -> "HtmlDocument":
        self._bound = UnitLimit(self.options)
        self._known = {primary_language(self.options.source_language)} - {UNDETERMINED}  # and those of <html lang>
        hidden = templates(self.text)
        self._masked = masked(self.text, hidden)
        self._texts = Texts(self.text, hidden)
        self._tokens = tokens(self._masked)
        self._lines = LineIndex(self.text)
        self._before = list(accumulate((_is_translatable(token) for token in self._tokens), initial=0))
        self._parts: list[ScannedPart] = []
        self._frames = [_Frame(None)]
        self._keeps_space = False  # setting of the last text
        self._named_space = "&nbsp;" in self.text
        at = 0
        while at < len(self._tokens):
            at = self._take(at)
        self._flush()
        # A block's unit is found at its end, after those of attributes inside of it.
        order = sorted(range(len(self.units)), key=lambda index: self.places[index].span)
        self.units = [self.units[index] for index in order]
        self.places = [self.places[index] for index in order]
        return self

    def _take(self, at: int) -> int:
        """Handle one token, or an untranslated element; return the next index."""
        token = self._tokens[at]
        while (closing := self._frames[-1].closing) is not None and closing <= at:
            self._frames.pop()
        if token.kind is HtmlTokenKind.TEXT:
            self._text(token)
        elif token.kind is HtmlTokenKind.OTHER:
            self._code(token.start, token.end)
        elif token.kind is HtmlTokenKind.END and token.name in BLOCKS:
            self._flush()
        elif token.kind is HtmlTokenKind.END:
            self._tag(token, Role.CLOSE)
        else:
            return self._element(at, token)
        return at + 1

    def _text(self, token: HtmlToken) -> None:
        self._keeps_space = self._frames[-1].keeps_space
        if self._frames[-1].translate:
            self._parts.extend(self._texts.parts(token.start, token.end))
        else:
            self._code(
                token.start, token.end, self._texts.shown(token.start, token.end), fixed=True
            )  # around translated elements

    def _code(self, start: int, end: int, shown: str = "", fixed: bool = False) -> None:
        self._parts.append(ScannedPart(ScannedTag(self.text[start:end], Role.ALONE, shown=shown, fixed=fixed), start, end))

    def _tag(self, token: HtmlToken, role: Role) -> None:
        raw = self.text[token.start : token.end]
        self._parts.append(ScannedPart(ScannedTag(raw, role, token.name), token.start, token.end))

    def _element(self, at: int, token: HtmlToken) -> int:
        around, setting = self._frames[-1], _setting(token)
        if setting is None and self._is_foreign(token):
            setting = False
        translate = around.translate and token.name not in KEPT if setting is None else setting
        frame = _Frame(token.closing, translate, around.keeps_space or token.name in ("pre", "textarea"))
        if frame.translate or token.kind is HtmlTokenKind.ALONE:
            self._attributes(token, frame.translate)
        if token.kind is HtmlTokenKind.START and self._is_whole(at, token, frame):
            return self._whole(at, token)
        if token.name in BLOCKS:
            self._flush()
        elif token.kind is HtmlTokenKind.ALONE:
            is_break = token.name == "br"
            self._code(token.start, token.end, "\n" if is_break else "", is_break)
        else:
            self._tag(token, Role.OPEN)
        if token.kind is HtmlTokenKind.START:
            self._frames.append(frame)
        return at + 1

    def _is_foreign(self, token: HtmlToken) -> bool:
        """Return whether an element is in another language than the document, as far as both are known."""
        language = token.attributes.get("lang") or token.attributes.get("xml:lang", "")
        if token.name == "html" or not language or not self._known:
            return False
        found = primary_language(language)
        return found != UNDETERMINED and found not in self._known

    def _is_whole(self, at: int, token: HtmlToken, frame: _Frame) -> bool:
        """Return whether nothing inside is translated and no block is inside."""
        if token.name in OPAQUE:
            return True
        is_inert = token.closing is not None and self._before[at + 1] == self._before[token.closing]
        return is_inert and not frame.translate and token.name not in BLOCKS

    def _whole(self, at: int, token: HtmlToken) -> int:
        after = len(self._tokens) if token.closing is None else token.closing
        ending = self._tokens[after] if after < len(self._tokens) else token
        after += ending.kind is HtmlTokenKind.END and ending.name == token.name
        texts = (other for other in self._tokens[at:after] if other.kind is HtmlTokenKind.TEXT)
        shown = "" if token.name in UNSEEN else "".join(self._texts.shown(text.start, text.end) for text in texts)
        self._code(token.start, self._tokens[after - 1].end, spaced(shown))
        return after

    def _attributes(self, token: HtmlToken, translate: bool) -> None:
        tag = self._masked[token.start : token.end]
        chosen = [name for name in token.attributes if translate and is_text(token.name, name, token.attributes)]
        if not chosen and token.name != "html":
            return
        for name, (span, quote) in values(tag).items():
            start, end = token.start + span[0] + len(quote), token.start + span[1] - len(quote)
            if name in chosen:
                self._value(start, end, quote)
            elif token.name == "html" and name in ("lang", "xml:lang"):
                self.languages.append(((start, end), self.text[start:end]))
                self._known |= {primary_language(self.text[start:end])} - {UNDETERMINED}

    def _value(self, start: int, end: int, quote: str) -> None:
        """Add the value of an attribute, with its quotes or with new ones."""
        kept = core(list(self._texts.parts(start, end)))
        if not kept:
            return
        mark, span = quote or '"', (start - len(quote), end + len(quote))
        lead, tail = mark + self.text[start : kept[0].start], self.text[kept[-1].end : end] + mark
        self._add(pieces_of(kept), HtmlSlot(self.text, span, _codes(kept), (), False, lead, tail, mark, self._named_space))

    def _flush(self) -> None:
        kept = core(self._parts)
        self._parts = []
        if not kept:
            return
        keeps_space, named_space = self._keeps_space, self._named_space
        pieces = joined(coded(kept)) if keeps_space else pieces_of(kept)
        span, texts = (kept[0].start, kept[-1].end), list(self._raw(kept, keeps_space))
        self._add(pieces, HtmlSlot(self.text, span, _codes(kept), texts, keeps_space, named_space=named_space))

    def _raw(self, parts: Sequence[ScannedPart], keeps_space: bool) -> Iterator[tuple[str, str]]:
        """Yield the texts between codes with their spelling in the document."""
        text, start = "", parts[0].start
        for part in parts:
            if isinstance(part.content, str):
                text += part.content
                continue
            yield (text if keeps_space else spaced(text)), self.text[start : part.start]
            text, start = "", part.end
        yield (text if keeps_space else spaced(text)), self.text[start : parts[-1].end]

    def _add(self, pieces: tuple[Piece, ...], place: HtmlSlot) -> None:
        self.units.append(Unit(pieces, self._lines.where(place.span[0]), place.keeps_space))
        self.places.append(place)
        self._bound.count()

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See Document."""
        new, known = changed(self.units, translations), _templates(self.text)
        text = self._written(new, braces=_braces(known))
        if _templates(text) != known:  # a text would be read as templating
            text = self._written(new, braces=TEMPLATE_BRACE)
        return self.encoding.encode(text)

    def _written(self, translations: Mapping[int, Sequence[Piece]], braces: re.Pattern[str]) -> str:
        changes: list[tuple[Span, str]] = []
        for at in sorted(translations, key=lambda at: self.places[at].span, reverse=True):  # inner spans first
            place = self.places[at]
            inner: list[tuple[Span, str]] = []
            while changes and changes[-1][0][1] <= place.span[1]:
                inner.append(changes.pop())
            changes.append((place.span, place.written(translations[at], self.encoding, inner, braces)))
        language = self.options.target_language
        if changes and language:
            changes += [(span, language) for span, old in self.languages if languages_differ(old, language)]
        return replaced(self.text, changes)


def _codes(parts: Sequence[ScannedPart]) -> dict[tuple[int, Role], Span]:
    return {
        (piece.pair, piece.role): (part.start, part.end)
        for piece, part in zip(coded(parts), parts, strict=True)
        if isinstance(piece, Code)
    }


def _setting(token: HtmlToken) -> bool | None:
    """Return an element's own translate setting, if any."""
    setting = token.attributes.get("translate", "no-such-value").strip().lower()
    if setting == "no" or not KEPT_CLASSES.isdisjoint(token.attributes.get("class", "").split()):
        return False
    return True if setting in ("yes", "") else None


def _is_translatable(token: HtmlToken) -> bool:
    return token.kind in (HtmlTokenKind.START, HtmlTokenKind.ALONE) and (token.name in BLOCKS or bool(_setting(token)))


def _templates(text: str) -> list[str]:
    """Return all templating of a text, sorted because codes may change their order."""
    return sorted(text[start:end] for start, end in templates(text))


def _braces(known: Sequence[str]) -> re.Pattern[str]:
    """Return the braces that must be escaped because the page's template engine would read them."""
    if any(template.startswith(("{%", "{#")) for template in known):
        return TEMPLATE_BRACE
    return DOUBLE_BRACE if any(template.startswith("{{") for template in known) else NO_BRACE


def read(data: bytes, options: ReadOptions) -> Document:
    """See FormatInfo.read."""
    UnitLimit(options).check_marks(data, b"<", b"{")
    return HtmlDocument(*decoded(data, options.encoding), options).read()
