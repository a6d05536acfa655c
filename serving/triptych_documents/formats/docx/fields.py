"""Fields of WordprocessingML (ECMA-376, part 1, 17.16): instructions that are not text, and results that may be.

A complex field is a row of marks in runs: begin, instruction, separate, result, end. Fields stand inside of fields, and reach
over paragraphs: a table of contents does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.office.atoms import Atom, balanced, codes_only
from triptych_documents.unit import Role

MAX_DEPTH = 64  # fields inside each other

# Results of these are text of the document; others are made anew from elsewhere, such as page numbers.
_TEXTS = {"HYPERLINK", "TOC", "INDEX", "TOA", "QUOTE", "FORMTEXT", "INCLUDETEXT"}


class Mark(Enum):
    """A part of a field."""

    BEGIN = "begin"
    INSTRUCTION = "instruction"
    SEPARATE = "separate"
    END = "end"


@dataclass(frozen=True, slots=True)
class Step:
    """An atom, and what it is in a field."""

    atom: Atom
    mark: Mark | None = None
    instruction: str = ""


@dataclass
class _Open:
    """A field whose end has not come."""

    number: int
    atoms: list[Atom] = field(default_factory=list)
    instruction: str = ""
    separated: int | None = None  # atoms up to the result
    inherited: bool = False  # begins in an earlier paragraph


class Fields:
    """Those of a story: paragraphs that follow each other."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._number = 0

    @staticmethod
    def is_text(instruction: str) -> bool:
        """The result of such a field is for translators."""
        return (instruction.split(None, 1) or [""])[0].upper() in _TEXTS

    def folded(self, steps: Iterable[Step]) -> list[Atom]:
        """A paragraph's atoms, with whole fields as one code each."""
        out: list[Atom] = []
        for step in steps:
            self._take(step, out)
        for one in self._open:
            out += _flat(one)
            one.atoms, one.inherited = [], True
            one.separated = None if one.separated is None else 0
        return out

    def _take(self, step: Step, out: list[Atom]) -> None:
        if step.mark is Mark.BEGIN:
            if len(self._open) >= MAX_DEPTH:
                raise DamagedDocumentError(f"fields nest deeper than {MAX_DEPTH}")
            self._number += 1
            self._open.append(_Open(self._number))
        here = self._open[-1] if self._open else None
        (out if here is None else here.atoms).append(step.atom)
        if here is None:
            return
        if step.mark is Mark.INSTRUCTION:
            here.instruction += step.instruction
        elif step.mark is Mark.SEPARATE and here.separated is None:
            here.separated = len(here.atoms)
        elif step.mark is Mark.END:
            self._open.pop()
            (self._open[-1].atoms if self._open else out).extend(_closed(here))


def _closed(one: _Open) -> Sequence[Atom]:
    """A field whose end is the last of its atoms."""
    if one.inherited or not balanced(one.atoms):
        return _flat(one)
    if one.separated is None:
        return [codes_only(one.atoms, shown=False)]
    before, result = one.atoms[: one.separated], one.atoms[one.separated : -1]
    if not Fields.is_text(one.instruction) or not (balanced(before) and balanced(result)):
        shown = "".join(atom.text for atom in result)
        return [replace(codes_only(one.atoms), text=shown)]
    pair = ("field", one.number)
    first = replace(codes_only(before, shown=False), role=Role.OPEN, pair=pair, soft=True)
    return [first, *result, replace(one.atoms[-1], role=Role.CLOSE, pair=pair, soft=True)]


def _flat(one: _Open) -> list[Atom]:
    """A part of a field that is not whole here: what is before its result is no text."""
    separated = len(one.atoms) if one.separated is None else one.separated
    return [_untouched(atom) for atom in one.atoms[:separated]] + one.atoms[separated:]


def _untouched(atom: Atom) -> Atom:
    return replace(atom, role=atom.role or Role.ALONE, text="", fixed=False)
