"""What is inside a paragraph of an office document, as pieces and back.

Word processors write a paragraph as a row of runs, each with the whole of its formatting, and split them at random: at edits,
spelling marks, bookmarks. Here, runs that look alike become one; the look of most of the text becomes the paragraph's own; and
what looks otherwise becomes a pair of codes. Whatever stands at a paragraph's ends and shows nothing is left out of the unit.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from triptych_documents.formats.office.atoms import Atom, Style, nested
from triptych_documents.formats.office.trimming import trimmed
from triptych_documents.unit import Code, Piece, Role, joined


@dataclass(frozen=True, slots=True)
class Inline:
    """A paragraph in three parts: only the middle is for translators.

    Args:
        lead: codes and white space in front.
        pieces: a unit's.
        trail: codes and white space behind.
        atoms: what codes stand for, by pair and role; formatting has none.
        styles: of the text inside of a pair; of 0: outside of all. None: as around it.
    """

    lead: tuple[Piece, ...]
    pieces: tuple[Piece, ...]
    trail: tuple[Piece, ...]
    atoms: Mapping[tuple[int, Role], Atom]
    styles: Mapping[int, Style | None]


def inlined(atoms: Sequence[Atom], raw: Callable[[Atom], str]) -> Inline:
    """A paragraph's atoms as pieces.

    Args:
        atoms: in order.
        raw: what a code is called; the same whenever the same document is read.
    """
    return _Inliner(nested([atom for atom in atoms if atom.role or atom.text]), raw).inline()


class _Inliner:
    """Makes pieces of the atoms of one paragraph."""

    def __init__(self, atoms: list[Atom], raw: Callable[[Atom], str]) -> None:
        self._raw = raw
        self._atoms = _joined_spaces(atoms)
        self._bases = _bases(self._atoms)
        self._codes: dict[tuple[int, Role], Atom] = {}
        self._styles: dict[int, Style | None] = {0: self._bases.get(None)}
        self._pieces: list[Piece] = []
        self._around: list[tuple[int, Style | None]] = [(0, self._styles[0])]  # pairs, and the style of text in them
        self._group: tuple[int, Style] | None = None  # formatting that is open
        self._held: list[Atom] = []  # codes that may stand inside of it or behind it
        self._next = 1

    def inline(self) -> Inline:
        for atom in self._atoms:
            if atom.role is None:
                self._text(atom)
            elif atom.role is Role.ALONE:
                self._held.append(atom)
                if self._group is None:
                    self._release()
            else:
                self._leave()
                self._edge(atom)
        self._leave()
        return Inline(*trimmed(joined(self._pieces)), self._codes, self._styles)

    def _text(self, atom: Atom) -> None:
        style, base = atom.style, self._around[-1][1]
        assert style is not None
        if self._group is not None and self._group[1].key == style.key:
            self._release()
        else:
            self._leave()
            if base is not None and style.key != base.key:
                self._enter(style)
        self._pieces.append(atom.text)

    def _enter(self, style: Style) -> None:
        self._group = (self._number(), style)
        self._styles[self._group[0]] = style
        self._pieces.append(Code(style.key, Role.OPEN, self._group[0]))

    def _leave(self) -> None:
        if self._group is not None:
            self._pieces.append(Code("", Role.CLOSE, self._group[0]))
            self._group = None
        self._release()

    def _release(self) -> None:
        for atom in self._held:
            self._code(atom, self._number())
        self._held.clear()

    def _edge(self, atom: Atom) -> None:
        if atom.role is Role.OPEN:
            number = self._number()
            self._styles[number] = self._bases.get(atom.pair)
            self._around.append((number, self._styles[number] or self._around[-1][1]))
        else:
            number = self._around.pop()[0]
        self._code(atom, number)

    def _code(self, atom: Atom, number: int) -> None:
        assert atom.role is not None
        self._codes[number, atom.role] = atom
        self._pieces.append(Code(self._raw(atom), atom.role, number, atom.text, atom.fixed))

    def _number(self) -> int:
        self._next += 1
        return self._next - 1


def _bases(atoms: Sequence[Atom]) -> dict[Hashable, Style]:
    """For each element with text (None: the paragraph) the style of most of the text directly in it."""
    weights: dict[Hashable, Counter[str]] = {}
    styles: dict[str, Style] = {}
    for around, atom in _placed(atoms):
        if atom.role is None and atom.style is not None:
            styles.setdefault(atom.style.key, atom.style)
            weights.setdefault(around, Counter())[atom.style.key] += len("".join(atom.text.split()))
    return {around: styles[counts.most_common(1)[0][0]] for around, counts in weights.items()}


def _placed(atoms: Sequence[Atom]) -> Iterator[tuple[Hashable, Atom]]:
    """Each with the pair that it stands in."""
    around: list[Hashable] = [None]
    for atom in atoms:
        if atom.role is Role.CLOSE:
            around.pop()
        yield around[-1], atom
        if atom.role is Role.OPEN:
            around.append(atom.pair)


def _joined_spaces(atoms: list[Atom]) -> list[Atom]:
    """Spaces between words take a neighbour's style where nobody can see the difference."""
    out = list(atoms)
    texts: list[int] = []  # of a stretch without edges
    for index, atom in enumerate(out):
        if atom.role is None:
            texts.append(index)
        elif atom.role is not Role.ALONE:
            _join_spaces(out, texts)
            texts = []
    _join_spaces(out, texts)
    return out


def _join_spaces(atoms: list[Atom], texts: Sequence[int]) -> None:
    words = [index for index in texts if atoms[index].text.strip()] or list(texts[:1])
    place = 0
    for index in texts:
        place += place < len(words) and words[place] < index
        if atoms[index].text.strip():
            continue
        before = atoms[words[place - 1]].style if place else None
        after = atoms[words[place]].style if place < len(words) else None
        _, start, end = atoms[index].fragments[0]
        atoms[index] = replace(atoms[index], fragments=((_of_space(atoms[index].style, before, after), start, end),))


def _of_space(own: Style | None, before: Style | None, after: Style | None) -> Style | None:
    other = before or after
    if own is None or other is None or own.inked or other.inked:
        return own
    if before is None or after is None or before.key == after.key:
        return other
    return own if own.key in (before.key, after.key) else before
