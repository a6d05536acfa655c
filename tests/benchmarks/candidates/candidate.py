"""Interface of a translation implementation that is measured."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

CLOCK = "TRIPTYCH_BENCHMARK_CLOCK"  # environment: "cpu" or "wall"


@dataclass(frozen=True)
class Decoding:
    """Decoding options, the same for every candidate."""

    beam: int  # 1: greedy
    limit: int  # maximum tokens of a translation, without the end of sentence
    exact: bool = False  # exactly `limit` tokens: untrained weights never end a sentence

    @property
    def least(self) -> int:
        """Minimum number of tokens; greedy search does not need one with weights that never end a sentence."""
        return self.limit if self.exact and self.beam > 1 else 0


@dataclass(frozen=True)
class Answer:
    """Translation of one text."""

    text: str
    tokens: int  # without the end of sentence


def answers_of(tokenizer: Tokenizer, rows: Sequence[list[int]], end: int | None = None) -> list[Answer]:
    """Decode rows of ids, each up to the token `end`."""
    cut = [row[: row.index(end)] if end in row else row for row in rows]
    return [Answer(text, len(row)) for text, row in zip(tokenizer.decode_batch(cut), cut, strict=True)]


class Candidate(ABC):
    """Implementation that takes turns with others."""

    name: str
    family: str  # candidates of a family compute the same
    searches_beams = True
    settings = ""  # chosen by the candidate

    @abstractmethod
    def translate(self, texts: Sequence[str], decoding: Decoding) -> list[Answer]:
        """Translate all texts in one call, in order."""

    def tune(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> None:
        """Choose the fastest settings for such calls."""
        return

    def seconds(self, calls: Sequence[Sequence[str]], decoding: Decoding) -> float:
        """Return the duration of the calls, one after the other, or the CPU time of this process with CLOCK=cpu."""
        clock = time.process_time if os.environ.get(CLOCK) == "cpu" else time.perf_counter
        started = clock()
        for call in calls:
            self.translate(call, decoding)
        return clock() - started

    def close(self) -> None:
        """Free memory and processes."""
        return
