"""Atoms: the parts of an office document's paragraph, either text in a style or a code with its source spans."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from triptych_documents.unit import Role

SOFT_HYPHEN = "\u00ad"  # hyphenation of the source language; dropped


@dataclass(frozen=True, slots=True)
class Style:
    """Appearance of a run."""

    key: str  # equal for styles that look alike
    opening: str  # markup before a run's content
    closing: str  # markup after it
    inked: bool = False  # visible on spaces too, as underlining is


Fragment = tuple[Style | None, int, int]  # a span of the source and the style of its run, if any


@dataclass(frozen=True, slots=True)
class Atom:
    """A text or a code in a paragraph."""

    fragments: tuple[Fragment, ...]  # spans of the source; copied for codes
    role: Role | None = None  # role of a code; None for text
    text: str = ""  # what a reader sees
    fixed: bool = False  # see Code
    pair: Hashable = None  # shared by the opening and the closing atom
    soft: bool = False
    """A pair, such as a bookmark, that may become two standalone codes where it does not nest; other pairs are elements."""

    @property
    def style(self) -> Style | None:
        return self.fragments[0][0]


def codes_only(atoms: Iterable[Atom], shown: bool = True) -> Atom:
    """Combine atoms into one code that shows what they show."""
    found = tuple(atoms)
    text = "".join(atom.text for atom in found) if shown else ""
    return Atom(tuple(fragment for atom in found for fragment in atom.fragments), Role.ALONE, text)


def balanced(atoms: Iterable[Atom]) -> bool:
    """Return whether all elements that open here also close here."""
    opened: list[Hashable] = []
    for atom in atoms:
        if atom.soft or atom.role not in (Role.OPEN, Role.CLOSE):
            continue
        if atom.role is Role.OPEN:
            opened.append(atom.pair)
        elif not opened or opened.pop() != atom.pair:
            return False
    return not opened


def nested(atoms: Sequence[Atom]) -> list[Atom]:
    """Turn soft pairs that are incomplete or cross others into standalone atoms."""
    lone = _unpaired(atoms)
    opened: list[Atom] = []
    for atom in atoms:
        while opened and opened[-1].pair in lone:
            opened.pop()
        if atom.role is Role.OPEN and atom.pair not in lone:
            opened.append(atom)
        elif atom.role is Role.CLOSE and atom.pair not in lone:
            if atom.soft and opened[-1].pair != atom.pair:
                lone.add(atom.pair)
                continue
            while opened[-1].pair != atom.pair:
                lone.add(opened.pop().pair)
            opened.pop()
    return [replace(atom, role=Role.ALONE, pair=None) if atom.role and atom.pair in lone else atom for atom in atoms]


def _unpaired(atoms: Sequence[Atom]) -> set[Hashable]:
    """Return the pairs that do not open once and close once, in this order."""
    roles: dict[Hashable, list[Role]] = {}
    for atom in atoms:
        if atom.role in (Role.OPEN, Role.CLOSE):
            roles.setdefault(atom.pair, []).append(atom.role)
    return {pair for pair, found in roles.items() if found != [Role.OPEN, Role.CLOSE]}
