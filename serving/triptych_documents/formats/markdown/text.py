"""Writing text as Markdown that is read as the same text and codes.

As little as possible is escaped: a candidate is parsed, and only if the result differs is the next, safer one tried.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from triptych_documents.encoding import Encoding, reference
from triptych_documents.formats.markdown.blocks import References, TextBlock, inline
from triptych_documents.formats.shared.inline_codes import SPACE, coded, soft, spaced
from triptych_documents.formats.shared.text_document import Span
from triptych_documents.formats.shared.wrapping import words_of, wrapped
from triptych_documents.unit import Code, Piece, Role, Unit, raw_text

_SPECIAL = re.compile(r"[\\`*_\[\]<&~$]|\{(?=[{%#])|!$")
_BLOCK = re.compile(
    r"(?:#{1,6}|[-+*:~]|[0-9]{1,9}[.)])$|[>|<]|=+$|-+$|`{3}|~{3}|:{3}|\$\$|[-_*]{3,}$|\[[^\]]*\]:"
)  # a first word that would start another kind of block
_FIRST, _LAST = re.compile(rf"^[^\S{SPACE}]"), re.compile(rf"[^\S{SPACE}]$")  # significant white space
_EMPHASIS = re.compile(r"[*_]{1,2}|~~?")
_LABEL = re.compile(r"\]\[(.*)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TextSlot:
    """Place of a unit in a text block."""

    unit: Unit
    content: TextBlock
    start: int  # start of the unit in it
    end: int  # end of the unit in it
    references: References  # link definitions
    line_end: str
    prefix: str  # prefix of each further line of the block
    column: int  # column of the unit in its first line
    width: int  # line width; 0: a single line
    source: str  # current text

    @property
    def units(self) -> Sequence[Unit]:
        return (self.unit,)

    @property
    def span(self) -> Span:
        return self.content.offsets[self.start], self.content.offsets[self.end - 1] + 1

    def written(self, translations: Mapping[int, Sequence[Piece]], encoding: Encoding) -> str:
        """Return the Markdown; the source if it cannot be written at all, such as emphasis around nothing."""
        wanted = soft(translations[0])
        for text in self._candidates(wanted):
            if self._reads_as(text, wanted):
                placed = text.replace("|", "\\|") if self.content.in_table else text.replace("\n", self.line_end + self.prefix)
                return encoding.escaped(placed, reference)
        return self.source

    def expected(self, text: str, translations: Mapping[int, Sequence[Piece]]) -> Sequence[Sequence[Piece]]:
        """Return the pieces of the unit as they must be read again."""
        return [translations[0]]

    def _candidates(self, pieces: Sequence[Piece]) -> Iterator[str]:
        """Yield candidates from the most readable to the safest."""
        escaped = [_SPECIAL.sub(r"\\\g<0>", piece) if isinstance(piece, str) else piece for piece in pieces]
        for written in (_short(pieces), pieces, escaped, _apart(pieces), _apart(escaped), _alternating(_apart(escaped))):
            yield self._lines(written)

    def _lines(self, pieces: Sequence[Piece]) -> str:
        """Return the content between start and end, in one or more lines."""
        words = [_guarded(word, False) for word in words_of(_edged(pieces), str)]
        in_block = not (self.content.in_table or self.content.atx)
        if words and not self.start and in_block and isinstance(pieces[0], str):
            words[0] = _guarded(words[0], True)
        if words and self.content.atx and self.end == len(self.content.text) and not words[-1].strip("#"):
            words[-1] = "\\" + words[-1]  # trailing number signs would close the heading
        if not self.width:
            return " ".join(words)
        used = self.column - len(self.prefix)
        return "\n".join(wrapped(words, self.width - len(self.prefix), used, lambda word: not _BLOCK.match(word)))

    def _reads_as(self, text: str, pieces: Sequence[Piece]) -> bool:
        whole, parts = self.content.text, self.content.parts or ()
        found = inline(whole[: self.start] + text + whole[self.end :], self.references)
        before = [part for part in parts if part.end <= self.start]
        after = [part for part in parts if part.start >= self.end]
        left = whole[before[-1].end if before else 0 : self.start]  # white space, as on the right
        right = whole[self.end : after[0].start if after else len(whole)]
        expected = [*coded(before), left, *pieces, right, *coded(after)]
        return found is not None and signature(coded(found)) == signature(expected)


def signature(pieces: Sequence[Piece]) -> str:
    """Return a key that is equal for equal visible text and codes, whichever character marks emphasis."""
    signs = (piece if isinstance(piece, str) else f"\0{_sign(piece.raw)}\0" for piece in pieces)
    return spaced("".join(signs)).strip(SPACE)


def _sign(raw: str) -> str:
    return raw.replace("_", "*") if _EMPHASIS.fullmatch(raw) else raw


def _guarded(word: str, first: bool) -> str:
    """Escape lines that would start a block; lines after the first come from hard breaks."""
    begin, *others = word.split("\n")
    further = [line if line.startswith("<") else _unblocked(line) for line in others]
    return "\n".join([_unblocked(begin) if first else begin, *further])


def _unblocked(line: str) -> str:
    if not _BLOCK.match(line):
        return line
    return f"{line[:-1]}\\{line[-1]}" if line[0].isdigit() else "\\" + line


def _edged(pieces: Sequence[Piece]) -> list[Piece]:
    """Write white space at both ends as references, because the library strips it."""
    edged = list(pieces)
    for place, edge in ((0, _FIRST), (-1, _LAST)):
        piece = edged[place] if edged else None
        if isinstance(piece, str):
            edged[place] = edge.sub(lambda found: reference(found[0]), piece)
    return edged


def _short(pieces: Sequence[Piece]) -> list[Piece]:
    """Omit the label of links whose text is still their label."""
    opened = {piece.pair: place for place, piece in enumerate(pieces) if isinstance(piece, Code) and piece.role is Role.OPEN}
    written = list(pieces)
    for place, piece in enumerate(pieces):
        if isinstance(piece, Code) and _says(piece, pieces[opened.get(piece.pair, place) : place]):
            written[place] = replace(piece, raw="]")
    return written


def _says(close: Code, inside: Sequence[Piece]) -> bool:
    label = _LABEL.fullmatch(close.raw)
    return label is not None and close.role is Role.CLOSE and spaced(raw_text(inside[1:])) == label[1]


def _apart(pieces: Sequence[Piece]) -> list[Piece]:
    """Separate emphasis by character references, which count as punctuation, where it would not be recognized."""
    written = list(pieces)
    for place, code in enumerate(pieces):
        if isinstance(code, Code) and _EMPHASIS.fullmatch(code.raw) and code.role is not Role.ALONE:
            step = 1 if code.role is Role.OPEN else -1
            inside, outside = _beside(written, place, step), _beside(written, place, -step)
            if inside.isspace():
                _refer(written, place, step)
            if outside.isalnum() and (not inside.isalnum() or "_" in code.raw):
                _refer(written, place, -step)
    return written


def _beside(pieces: Sequence[Piece], place: int, step: int) -> str:
    """Return the character next to a code; white space at the ends, as in the library."""
    if not 0 <= place + step < len(pieces):
        return " "
    piece = pieces[place + step]
    return (piece if isinstance(piece, str) else piece.raw)[0 if step > 0 else -1]


def _refer(pieces: list[Piece], place: int, step: int) -> None:
    piece = pieces[place + step] if 0 <= place + step < len(pieces) else None
    if isinstance(piece, str):
        at = 0 if step > 0 else len(piece) - 1
        pieces[place + step] = piece[:at] + reference(piece[at]) + piece[at + 1 :]


def _alternating(pieces: Sequence[Piece]) -> list[Piece]:
    """Use the other character for every second pair of emphasis, so that neighbours do not merge."""
    codes = [piece for piece in pieces if isinstance(piece, Code) and _EMPHASIS.fullmatch(piece.raw)]
    pairs = [code.pair for code in codes if code.role is Role.OPEN]
    signs = str.maketrans("*_", "_*")
    others = {code: replace(code, raw=code.raw.translate(signs)) for code in codes if code.pair in pairs[1::2]}
    return [others.get(piece, piece) if isinstance(piece, Code) else piece for piece in pieces]
