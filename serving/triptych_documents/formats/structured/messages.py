"""ICU messages: every branch of a plural or another choice is a unit, with the text around the choice.

`You have {n, plural, one {# file} other {# files}}.` has the units "You have # file." and "You have # files.", and is written
with whole sentences in its branches, as ICU's guide advises. `#`, which stands for the number, is a code.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from triptych_documents.findings import Finding
from triptych_documents.formats.shared.text_document import TextDocument, UnitLimit
from triptych_documents.unit import Code, Piece, Role, Unit, joined, raw_text

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

    def written(self, texts: Iterator[str]) -> str:
        """Return the message with these texts in its branches."""
        branches = [
            f"{selector} {{{branch.written(texts) if isinstance(branch, Choice) else next(texts)}}}"
            for selector, branch in self.branches
        ]
        return f"{self.head} {' '.join(branches)}}}"


@dataclass(frozen=True)
class MessageDocument:
    """A document whose messages with choices have a unit for each branch."""

    document: TextDocument
    units: Sequence[Unit]
    choices: Sequence[Choice | None]  # of each unit of `document`

    @property
    def findings(self) -> Sequence[Finding]:
        """See Document."""
        return self.document.findings

    def render(self, translations: Mapping[int, Sequence[Piece]]) -> bytes:
        """See Document."""
        changed: dict[int, Sequence[Piece]] = {}
        numbers = iter(range(len(self.units)))
        for index, (unit, choice) in enumerate(zip(self.document.units, self.choices, strict=True)):
            old = [pieces for _, pieces in choice.texts()] if choice else [unit.pieces]
            new = [joined(translations.get(next(numbers), pieces)) for pieces in old]
            if new != old:
                doubled = "''" in raw_text(unit.pieces)
                changed[index] = (choice.written(_escaped(pieces, doubled) for pieces in new),) if choice else new[0]
        return self.document.render(changed)


def with_messages(document: TextDocument, limit: UnitLimit) -> TextDocument | MessageDocument:
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
    text = unit.plain
    if not text or _CHOICE.search(text) is None or _QUOTED.search(text):
        return None
    try:
        found = _Parser(GROWTH * len(text)).parsed(text, "", DEEPEST)
    except ValueError:
        return None
    return found if isinstance(found, Choice) else None


class _Parser:
    """Parses one message, whose texts have at most `characters`. Raises ValueError: it is not understood, or too large."""

    def __init__(self, characters: int) -> None:
        self._texts, self._characters = MOST_TEXTS, characters

    def parsed(self, text: str, number: str, depth: int) -> Choice | tuple[Piece, ...]:
        """Parse a message, or a branch in which `#` stands for `number`."""
        found = _CHOICE.search(text)
        if found is None:
            self._texts, self._characters = self._texts - 1, self._characters - len(text)
            if min(self._texts, self._characters) < 0:
                raise ValueError("too many texts")
            return _pieces(text, number)
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


def _pieces(text: str, number: str) -> tuple[Piece, ...]:
    """Return the text of a branch, with a code for each sign of its number."""
    first, *others = text.replace("''", "'").split("#") if number else [text.replace("''", "'")]
    pieces: list[Piece] = [first]
    for place, part in enumerate(others):
        pieces += (Code("#", Role.ALONE, place, shown=number), part)
    return joined(pieces)


def _escaped(pieces: Sequence[Piece], doubled: bool) -> str:
    """Write a text; apostrophes are doubled where they would quote, or everywhere if the source has them so."""
    return re.sub("'" if doubled else r"'(?=[{}#|']|\Z)", "''", raw_text(pieces))  # a brace follows the end
