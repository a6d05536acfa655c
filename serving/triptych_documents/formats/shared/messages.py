"""ICU messages: every branch of a plural or another choice is a unit, with the text around the choice.

`You have {n, plural, one {# file} other {# files}}.` has the units "You have # file." and "You have # files.", and is written
with whole sentences in its branches, as ICU's guide advises. `#`, which stands for the number, is a code. Messages of XLIFF and
PO may have other codes within their branches.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import Document
from triptych_documents.formats.shared.text_document import UnitLimit
from triptych_documents.unit import Code, Piece, Role, Unit, joined, nests, raw_text

# Limits of a message; others stay as they are.
MOST_TEXTS = 24
DEEPEST = 8  # choices within each other
GROWTH = 8  # length of all texts, divided by that of the message
_CHOICE = re.compile(r"\{\s*[\w.-]+\s*,\s*(plural|selectordinal|select)\s*,(?:\s*offset:\s*\d+\s)?")
_SELECTOR = re.compile(r"\s*(=\d+|[\w-]+)\s*\{")
_END = re.compile(r"\s*\}")
_QUOTED = re.compile(r"'[{}#|]")
_BRACE = re.compile(r"[{}]")
NUMBERS = {"zero": "0", "one": "1", "two": "2", "few": "3"}  # that `#` stands for, by category
ORDINALS = {"one": "21", "two": "22", "few": "23"}  # "1st" may become a word
MANY = "25"  # for other categories
_KEPT = "a message with a plural or another choice, and with markup that cannot be in every branch; not translated"
_FIRST_CODE, _MOST_CODES = 0xF0000, 1_000  # private characters that stand for codes
_PRIVATE = re.compile(f"[{chr(_FIRST_CODE)}-{chr(_FIRST_CODE + _MOST_CODES)}]")
_SIGNS = re.compile(f"(#|{_PRIVATE.pattern})")


@dataclass(frozen=True, slots=True)
class Choice:
    """A plural or another choice, with the text around it in its branches."""

    head: str  # "{n, plural,"
    branches: Sequence[tuple[str, "Choice | tuple[Piece, ...]"]]  # by selector

    def texts(self, selectors: str = "") -> Iterator[tuple[str, tuple[Piece, ...]]]:
        """Yield the texts of all branches, each with its selectors."""
        for selector, branch in self.branches:
            path = f"{selectors} {selector}".strip()
            yield from branch.texts(path) if isinstance(branch, Choice) else [(path, branch)]

    def written(self, texts: Iterator[tuple[Piece, ...]]) -> Iterator[Piece]:
        """Yield the message with these texts in its branches."""
        yield self.head
        for selector, branch in self.branches:
            yield f" {selector} {{"
            yield from branch.written(texts) if isinstance(branch, Choice) else next(texts)
            yield "}"
        yield "}"


@dataclass(frozen=True)
class MessageDocument:
    """A document whose messages with choices have a unit for each branch."""

    document: Document
    units: Sequence[Unit]
    choices: Sequence[Choice | None]  # of each unit of `document`

    @property
    def findings(self) -> Sequence[Finding]:
        """See Document."""
        kept = [unit for unit, choice in zip(self.document.units, self.choices, strict=True) if choice and not choice.branches]
        return [*self.document.findings, *(Finding(FindingKind.FORMAT, Severity.WARNING, unit.where, _KEPT) for unit in kept)]

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See Document."""
        changed: dict[int, Sequence[Piece]] = {}
        numbers = iter(range(len(self.units)))
        for index, (unit, choice) in enumerate(zip(self.document.units, self.choices, strict=True)):
            old = [pieces for _, pieces in choice.texts()] if choice else [unit.pieces]
            new = [joined(translations.get(next(numbers), pieces)) for pieces in old]
            if new != old:
                doubled = "''" in raw_text(unit.pieces)
                changed[index] = joined([*choice.written(_escaped(pieces, doubled) for pieces in new)]) if choice else new[0]
        return self.document.render(changed)


def with_messages(document: Document, limit: UnitLimit) -> Document:
    """Split the messages of a document; `limit` counts the additional units."""
    choices = [_choice_of(unit) for unit in document.units]
    if not any(choices):
        return document
    units: list[Unit] = []
    for unit, choice in zip(document.units, choices, strict=True):
        if choice is None:
            units.append(unit)
            continue
        for selectors, pieces in choice.texts():
            limit.count()
            units.append(replace(unit, pieces=pieces, where=f"{unit.where} {{{selectors}}}"))
    return MessageDocument(document, units, choices)


def _choice_of(unit: Unit) -> Choice | None:
    """Return the choice of a message, None if it has none. One with codes that is not understood has no texts to translate."""
    text = unit.text
    if _CHOICE.search(text) is None:
        return None
    codes = unit.codes
    signs = {chr(_FIRST_CODE + place): code for place, code in enumerate(codes)}
    following = iter(signs)
    whole = "".join(piece if isinstance(piece, str) else next(following) for piece in unit.pieces)
    kept = Choice("", ()) if codes else None
    if _QUOTED.search(text) or _PRIVATE.search(text) or len(codes) > _MOST_CODES:
        return kept
    try:
        found = _Parser(GROWTH * len(whole), signs).parsed(whole, "", DEEPEST)
    except ValueError:
        return kept
    if not isinstance(found, Choice):
        return kept
    pieces = [pieces for _, pieces in found.texts()]
    used = Counter(piece for branch in pieces for piece in branch if isinstance(piece, Code) and piece.raw != "#")
    is_sound = used == Counter(codes) and all(nests(_tags(branch)) for branch in pieces)
    return found if is_sound else kept


def _tags(pieces: Sequence[Piece]) -> Iterator[tuple[Role, int]]:
    return ((piece.role, piece.pair) for piece in pieces if isinstance(piece, Code))


class _Parser:
    """Parses one message, whose texts have at most `characters`, with a sign for each of its codes.

    Raises ValueError: it is not understood, or too large.
    """

    def __init__(self, characters: int, codes: Mapping[str, Code]) -> None:
        self._texts, self._characters, self._codes = MOST_TEXTS, characters, codes

    def parsed(self, text: str, number: str, depth: int) -> Choice | tuple[Piece, ...]:
        """Parse a message, or a branch in which `#` stands for `number`."""
        found = _CHOICE.search(text)
        if found is None:
            self._texts, self._characters = self._texts - 1, self._characters - len(text)
            if min(self._texts, self._characters) < 0:
                raise ValueError("too many texts")
            return _pieces(text, number, self._codes)
        inner, end = _branches(text, found.end())
        before, after, counts = text[: found.start()], text[end:], found[1] != "select"
        if not depth or not inner or (counts and _numbered(before + after, "") != before + after):
            raise ValueError("too deep, no branches, or a number sign that would stand for another number")
        branches = []
        for name, branch in inner:
            numbers = ORDINALS if found[1] == "selectordinal" else NUMBERS
            shown = numbers.get(name, name[1:] if name[0] == "=" else MANY) if counts else number
            whole = before + branch + after
            if counts and _CHOICE.search(whole):  # whose number the sign would be
                if "offset" in found[0]:
                    raise ValueError("the sign stands for a number without a name")
                whole = before + _numbered(branch, f"{{{found[0][1:].partition(',')[0].strip()}, number}}") + after
            branches.append((name, self.parsed(whole, shown, depth - 1)))
        return Choice(found[0], branches)


def _branches(text: str, at: int) -> tuple[list[tuple[str, str]], int]:
    """Return the branches of a choice by selector, and its end. Raises ValueError: there is another thing."""
    found: list[tuple[str, str]] = []
    while (end := _END.match(text, at)) is None:
        selector = _SELECTOR.match(text, at)
        if selector is None:
            raise ValueError("no selector")
        at = _closed(text, selector.end())
        found.append((selector[1], text[selector.end() : at - 1]))
    return found, end.end()


def _numbered(text: str, number: str) -> str:
    """Replace number signs outside of braces by a placeholder."""
    depth = 0
    written: list[str] = []
    for sign in text:
        depth += (sign == "{") - (sign == "}")
        written.append(number if sign == "#" and not depth else sign)
    return "".join(written)


def _closed(text: str, start: int) -> int:
    """Return the end of the branch that starts behind its brace. Raises ValueError: it has none."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    raise ValueError("not closed")


def _pieces(text: str, number: str, codes: Mapping[str, Code]) -> tuple[Piece, ...]:
    """Return the text of a branch, with its codes and one for each sign of its number."""
    pieces: list[Piece] = []
    for part in _SIGNS.split(text.replace("''", "'")):
        if part in codes:
            pieces.append(codes[part])
        elif part == "#" and number:
            pieces.append(Code("#", Role.ALONE, _FIRST_CODE + len(pieces), shown=number))
        else:
            pieces.append(part)
    return joined(pieces)


def _escaped(pieces: Sequence[Piece], doubled: bool) -> tuple[Piece, ...]:
    """Write a text; apostrophes are doubled where they would quote, or everywhere if the source has them so."""
    quote = "'" if doubled else r"'(?=[{}#|']|\Z)"  # a brace follows the end
    texts = joined(["#" if isinstance(piece, Code) and piece.raw == "#" else piece for piece in pieces])
    return tuple(re.sub(quote, "''", piece) if isinstance(piece, str) else piece for piece in texts)
