"""Paragraphs of office documents as pieces, and back.

Word processors write a paragraph as a row of runs, each with all of its formatting, and split them arbitrarily: at edits,
spelling marks, bookmarks. A reader converts them to atoms: texts in a style, or codes. Here, runs that look alike are merged;
the style of most of the text becomes the paragraph's own; other styles become pairs of codes. Invisible content at a
paragraph's ends is left out of the unit.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from triptych_documents.errors import DocumentError
from triptych_documents.formats.shared.inline_codes import split_ends
from triptych_documents.unit import Code, Piece, Role, joined, nests, partners

SOFT_HYPHEN = "\u00ad"  # hyphenation of the source language; dropped


@dataclass(frozen=True, slots=True)
class Style:
    """Appearance of a run."""

    key: str  # equal for styles that look alike
    opening: str  # markup before a run's content
    closing: str  # markup after it
    inked: bool = False  # visible on spaces too, as underlining is


PLAIN = Style("", "", "")
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


@dataclass(frozen=True, slots=True)
class Inline:
    """A paragraph in three parts, of which only the middle is translated."""

    lead: tuple[Piece, ...]  # codes and white space at the start
    pieces: tuple[Piece, ...]  # pieces of the unit
    trail: tuple[Piece, ...]  # codes and white space at the end
    atoms: Mapping[tuple[int, Role], Atom]  # sources of the codes, by pair and role; formatting has none
    styles: Mapping[int, Style | None]
    """Style of the text inside of a pair; pair 0 is the paragraph. None: that of the enclosing pair."""


def inlined(atoms: Sequence[Atom], raw: Callable[[Atom], str]) -> Inline:
    """Convert the atoms of a paragraph to pieces; `raw` names a code, the same on every reading."""
    return _Inliner(nested([atom for atom in atoms if atom.role or atom.text]), raw).inline()


class _Inliner:
    def __init__(self, atoms: list[Atom], raw: Callable[[Atom], str]) -> None:
        self._raw = raw
        self._atoms = _joined_spaces(atoms)
        self._bases = _bases(self._atoms)
        self._codes: dict[tuple[int, Role], Atom] = {}
        self._styles: dict[int, Style | None] = {0: self._bases.get(None)}
        self._pieces: list[Piece] = []
        self._around: list[tuple[int, Style | None]] = [(0, self._styles[0])]  # enclosing pairs and their styles
        self._group: tuple[int, Style] | None = None  # open formatting
        self._held: list[Atom] = []  # codes that may belong inside of it or after it
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
    """Return the most frequent style of the text directly inside of each element (None: the paragraph)."""
    weights: dict[Hashable, Counter[str]] = {}
    styles: dict[str, Style] = {}
    around: list[Hashable] = [None]
    for atom in atoms:
        if atom.role is Role.OPEN:
            around.append(atom.pair)
        elif atom.role is Role.CLOSE:
            around.pop()
        elif atom.role is None and atom.style is not None:
            styles.setdefault(atom.style.key, atom.style)
            weights.setdefault(around[-1], Counter())[atom.style.key] += len("".join(atom.text.split()))
    return {around: styles[counts.most_common(1)[0][0]] for around, counts in weights.items()}


def _joined_spaces(atoms: list[Atom]) -> list[Atom]:
    """Give white space between words the style of a neighbour where the difference is invisible."""
    out = list(atoms)
    texts: list[int] = []  # texts of a stretch without pair edges
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


def trimmed(pieces: Sequence[Piece]) -> tuple[tuple[Piece, ...], tuple[Piece, ...], tuple[Piece, ...]]:
    """Split into leading, translatable and trailing pieces.

    Invisible pieces at both ends are cut off, and so are pairs around all of the rest.
    """
    lead: list[Piece] = []
    trails: list[Sequence[Piece]] = []  # last ones first
    first, last = 0, len(pieces)
    ends = _Ends(pieces)
    while first < last:
        if after := ends.blank_from(first, last):
            lead += pieces[first:after]
            first = after
        elif (before := ends.blank_until(first, last)) is not None:
            trails.append(pieces[before:last])
            last = before
        elif ends.whole(first, last):
            lead.append(pieces[first])
            trails.append((pieces[last - 1],))
            first, last = first + 1, last - 1
        else:
            break
    front, middle, back = split_ends(pieces[first:last], None)
    trail = [piece for part in reversed(trails) for piece in part]
    return joined([*lead, front]), middle, joined([back, *trail])


class _Ends:
    """Finds invisible pieces at the ends of a paragraph."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._shown = [0]  # number of visible pieces before each piece
        for piece in pieces:
            self._shown.append(self._shown[-1] + bool((piece if isinstance(piece, str) else piece.shown).strip()))
        tags = (("", Role.ALONE) if isinstance(piece, str) else (str(piece.pair), piece.role) for piece in pieces)
        opened = partners(tags)
        self._others = opened | {start: end for end, start in opened.items()}  # index of the other half of a pair

    def blank_from(self, first: int, last: int) -> int | None:
        """Return the end of an invisible piece or pair that starts here, if any."""
        end = self._others.get(first, first) + 1
        return end if first < end <= last and self._shown[end] == self._shown[first] else None

    def blank_until(self, first: int, last: int) -> int | None:
        """Return the start of an invisible piece or pair that ends here, if any."""
        start = self._others.get(last - 1, last - 1)
        return start if first <= start < last and self._shown[start] == self._shown[last] else None

    def whole(self, first: int, last: int) -> bool:
        """Return whether one pair encloses everything."""
        return self._others.get(first) == last - 1 > first


Escape = Callable[[str, bool], str]  # arguments: text, and whether it follows a word without white space
Copy = Callable[[int, int], str]  # returns a span of the source, with new content of the paragraphs inside


def written(inline: Inline, pieces: Sequence[Piece], escape: Escape, copy: Copy, where: str) -> str:
    """Write a paragraph with new pieces in its middle. Raises DocumentError: the codes are not the unit's, or do not nest."""
    _check(inline.pieces, pieces, where)
    content: list[tuple[Style, bool, str]] = []  # texts (True), and copies of the source
    around = [inline.styles[0] or PLAIN]
    for piece in (*inline.lead, *pieces, *inline.trail):
        if isinstance(piece, str):
            content.append((around[-1], True, piece))
            continue
        atom = inline.atoms.get((piece.pair, piece.role))
        content += ((style or PLAIN, False, copy(start, end)) for style, start, end in (atom.fragments if atom else ()))
        if piece.role is Role.OPEN:
            around.append(inline.styles[piece.pair] or around[-1])
        elif piece.role is Role.CLOSE:
            around.pop()  # codes nest
    return "".join(_runs(content, escape))


def _runs(content: Sequence[tuple[Style, bool, str]], escape: Escape) -> Iterator[str]:
    """Yield one run for consecutive content of one style, with one text for consecutive texts: some runs have room for one."""
    follows_word = False
    for (opening, closing), run in groupby(content, key=lambda part: (part[0].opening, part[0].closing)):
        yield opening
        for is_text, parts in groupby(run, key=lambda part: part[1]):
            text = "".join(part for _, _, part in parts)
            yield escape(text, follows_word) if is_text and text else text
            follows_word = is_text and not (text or " ")[-1].isspace()
        yield closing


def _check(own: Sequence[Piece], pieces: Sequence[Piece], where: str) -> None:
    """Check the codes: elements would break if codes were lost or crossed."""
    codes = [piece for piece in pieces if isinstance(piece, Code)]
    known = {(piece.pair, piece.role) for piece in own if isinstance(piece, Code)}
    if len(codes) != len(known) or {(code.pair, code.role) for code in codes} != known:
        raise DocumentError(f"{where}: the codes of the translation are not those of the source")
    if not nests((code.role, code.pair) for code in codes):
        raise DocumentError(f"{where}: codes of the translation do not nest")
