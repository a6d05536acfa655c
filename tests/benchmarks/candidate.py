"""What is measured: something that turns texts into translations."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Decoding:
    """What every candidate is asked for."""

    beam: int  # 1: greedy
    limit: int  # the most tokens of a translation, end of sentence not included
    exact: bool = False  # no fewer than `limit` either: weights that are not trained never end a sentence

    @property
    def least(self) -> int:
        """The fewest tokens to ask for; in greedy search weights that never end a sentence need no such rule."""
        return self.limit if self.exact and self.beam > 1 else 0


@dataclass(frozen=True)
class Answer:
    """One translation."""

    text: str
    tokens: int  # end of sentence not included


class Candidate(ABC):
    """One of those that take turns."""

    name: str
    family: str  # candidates of one family compute the same thing
    searches_beams = True
    settings = ""  # that it chose for itself

    @abstractmethod
    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        """All texts, as one call; order is kept."""

    def tune(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> None:
        """Choose the settings that suit such calls best."""
        return

    def seconds(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> float:
        """What the calls take, one after the other."""
        started = time.perf_counter()
        for call in calls:
            self.translate(call, decoding)
        return time.perf_counter() - started

    def close(self) -> None:
        """Free what it holds."""
        return
