"""Pieces written as the runs of an office document's paragraph."""

from collections.abc import Callable, Sequence

from triptych_documents.errors import DocumentError
from triptych_documents.formats.office.atoms import Style
from triptych_documents.formats.office.inline import Inline
from triptych_documents.unit import Code, Piece, Role

Escape = Callable[[str, bool], str]  # text, and whether it follows text that does not end in white space
Copy = Callable[[int, int], str]  # a span of the source, with the paragraphs in it written anew


class Runs:
    """Puts what follows each other in the same style into one run.

    Args:
        escape: writes text.
        copy: reads the source.
    """

    def __init__(self, escape: Escape, copy: Copy) -> None:
        self._escape, self._copy = escape, copy
        self._out: list[str] = []
        self._style: Style | None = None
        self._word = False

    def text(self, text: str, style: Style | None) -> None:
        """Text in this style."""
        if not text:
            return
        self._enter(style)
        self._out.append(self._escape(text, self._word))
        self._word = not text[-1].isspace()

    def copied(self, style: Style | None, start: int, end: int) -> None:
        """A part of the source."""
        self._enter(style)
        self._out.append(self._copy(start, end))
        self._word = False

    def written(self) -> str:
        """All of it."""
        self._enter(None)
        return "".join(self._out)

    def _enter(self, style: Style | None) -> None:
        old, self._style = self._style, style
        if (old and (old.opening, old.closing)) == (style and (style.opening, style.closing)):
            return
        if old is not None:
            self._out.append(old.closing)
        if style is not None:
            self._out.append(style.opening)


def written(inline: Inline, pieces: Sequence[Piece], runs: Runs, where: str) -> str:
    """A paragraph with these pieces in its middle.

    Raises:
        DocumentError: its codes are not the unit's, or cannot be written in this order.
    """
    _check(inline.pieces, pieces, where)
    around: list[tuple[int, Style | None]] = [(0, inline.styles[0])]
    for piece in (*inline.lead, *pieces, *inline.trail):
        if isinstance(piece, str):
            runs.text(piece, around[-1][1])
            continue
        atom = inline.atoms.get((piece.pair, piece.role))
        for style, start, end in atom.fragments if atom else ():
            runs.copied(style, start, end)
        if piece.role is Role.OPEN:
            around.append((piece.pair, inline.styles[piece.pair] or around[-1][1]))
        elif piece.role is Role.CLOSE:
            around.pop()  # codes nest
    return runs.written()


def _check(own: Sequence[Piece], pieces: Sequence[Piece], where: str) -> None:
    """Elements would be broken if codes were lost or crossed each other."""
    codes = [piece for piece in pieces if isinstance(piece, Code)]
    known = {(piece.pair, piece.role) for piece in own if isinstance(piece, Code)}
    if len(codes) != len(known) or {(code.pair, code.role) for code in codes} != known:
        raise DocumentError(f"{where}: the codes of the translation are not those of the source")
    opened: list[int] = []
    for code in codes:
        if code.role is Role.OPEN:
            opened.append(code.pair)
        elif code.role is Role.CLOSE and (not opened or opened.pop() != code.pair):
            raise DocumentError(f"{where}: codes of the translation do not nest")
