"""Parts of a paragraph of an office document: text in a style, and codes with the places that they are copied from."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from triptych_documents.unit import Role

SOFT_HYPHEN = "\u00ad"  # says where words of this language may break; not for translators


@dataclass(frozen=True, slots=True)
class Style:
    """How a run looks.

    Args:
        key: equal for styles that look alike.
        opening: written before a run's content.
        closing: and behind it.
        inked: it shows on spaces too, as underlining does.
    """

    key: str
    opening: str
    closing: str
    inked: bool = False


Fragment = tuple[Style | None, int, int]  # a span of the source inside a run, or outside of any


@dataclass(frozen=True, slots=True)
class Atom:
    """A part of a paragraph that is text, or a code.

    Args:
        fragments: where it stands; copied for codes.
        role: of a code; None for text.
        text: what a reader sees.
        fixed: as of Code.
        pair: equal for the atoms that open and close the same thing.
        soft: a pair that stands alone twice where it does not nest, such as a bookmark; others are elements.
    """

    fragments: tuple[Fragment, ...]
    role: Role | None = None
    text: str = ""
    fixed: bool = False
    pair: Hashable = None
    soft: bool = False

    @property
    def style(self) -> Style | None:
        """Of its first run."""
        return self.fragments[0][0]


def codes_only(atoms: Iterable[Atom], shown: bool = True) -> Atom:
    """All of these as one code, which shows what they show."""
    found = tuple(atoms)
    text = "".join(atom.text for atom in found) if shown else ""
    return Atom(tuple(fragment for atom in found for fragment in atom.fragments), Role.ALONE, text)


def balanced(atoms: Iterable[Atom]) -> bool:
    """Elements that open here close here."""
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
    """Soft pairs that lie across others, or are none, stand alone."""
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
    """Of pairs that do not open once and close once, in this order."""
    roles: dict[Hashable, list[Role]] = {}
    for atom in atoms:
        if atom.role in (Role.OPEN, Role.CLOSE):
            roles.setdefault(atom.pair, []).append(atom.role)
    return {pair for pair, found in roles.items() if found != [Role.OPEN, Role.CLOSE]}
