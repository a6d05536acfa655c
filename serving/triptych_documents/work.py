"""Units on their way through a translator.

Whoever has a translator drives it: `add` units, have the asks answered in any order, `answer` them, take what is `done`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from triptych_documents.asking import Answer, Ask, Refusal
from triptych_documents.findings import Finding
from triptych_documents.rules import Rules
from triptych_documents.unit import Piece, Unit


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, as readers see them; what bilingual outputs and memories are made of."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Done:
    """A unit that is translated."""

    key: Hashable
    unit: Unit
    pieces: tuple[Piece, ...]  # for Document.render
    pairs: tuple[Pair, ...]
    findings: tuple[Finding, ...]


class Work:
    """Units between `add` and `done`. Of one thread.

    Equal asks are asked once: while one is under way others wait for it, and answers are remembered.

    Args:
        rules: for all units.
    """

    def __init__(self, rules: Rules) -> None:
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        """Units that are not done."""
        raise NotImplementedError

    def add(self, key: Hashable, unit: Unit) -> list[Ask]:
        """What must be asked for this unit now; nothing where it has no words or others are asking the same."""
        raise NotImplementedError

    def answer(self, ask: Ask, answer: Answer | Refusal) -> list[Ask]:
        """What must be asked next, now that this is known."""
        raise NotImplementedError

    def done(self) -> Sequence[Done]:
        """The units that have become done since this was called last."""
        raise NotImplementedError
