"""Lanes: rows that need the same graph are stepped together. Every worker of the engine owns one lane of each kind."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from triptych_serving.scheduling.request import Finish, Hypothesis, Row

PADDING_TOKENS = 4  # padding that is always allowed; another encoder run would cost more, it reads all weights again


class Lane(Protocol):
    """Slots and caches over one graph, on the CPU or on a GPU. Used by one thread; others may read `rows`."""

    @property
    def rows(self) -> Sequence[Row]:
        """Rows that are being decoded."""

    @property
    def news(self) -> Sequence[Row]:
        """Running rows to which the last step gave a first token or, for a stream, one more; may have others too."""

    @property
    def free(self) -> int:
        """Number of empty slots."""

    @property
    def bytes(self) -> int:
        """Bytes of the caches."""

    def warm_up(self) -> None:
        """Run the graphs once, so that the first request finds them ready."""

    def join(self, rows: Sequence[Row]) -> None:
        """Encode new rows and give each its slots."""

    def leave(self, rows: Sequence[Row]) -> None:
        """Free the slots of rows before they are done."""

    def reset(self) -> None:
        """Drop all rows, whatever state a failed call has left behind."""

    def step(self) -> list[Row]:
        """Decode one token for every row; return the rows that ended, whose slots are free already."""


def shortlists(rows: Sequence[Row]) -> list[NDArray[np.int64]]:
    """Return the shortlists of rows that have one."""
    return [row.shortlist for row in rows if row.shortlist is not None]


def group_by_length(rows: Sequence[Row], padding: float) -> list[list[Row]]:
    """Split rows into groups of similar source length, longest first; `padding` as KVCache has it."""
    groups: list[list[Row]] = []
    tokens = 0
    for row in sorted(rows, key=lambda row: -row.size):
        length = row.size
        longest = groups[-1][0].size if groups else 0
        padded = longest * (len(groups[-1]) + 1) if groups else math.inf
        if padded <= max(padding * (tokens + length), tokens + length + PADDING_TOKENS):
            groups[-1].append(row)
            tokens += length
        else:
            groups.append([row])
            tokens = length
    return groups


def finish_row(row: Row, finish: Finish) -> None:
    """Complete a greedy row that has all its tokens."""
    row.hypotheses = (Hypothesis(tuple(row.tokens), finish),)
    row.finish = finish
