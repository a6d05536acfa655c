"""Lanes: rows that need the same graph are stepped together. Every worker of the engine owns one lane of each kind."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from triptych_serving.decoding.slots import Slots
from triptych_serving.scheduling.request import Finish, Hypothesis, Row


class Lane(Protocol):
    """Slots and caches over one graph, on the CPU or on a GPU. Used by one thread; others may read `rows`."""

    @property
    def rows(self) -> Sequence[Row]:
        """Rows that are being decoded."""

    @property
    def updated_rows(self) -> Sequence[Row]:
        """Running rows with a new token in the last step: at least those with their first token, and all streams."""

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


def group_by_length(rows: Sequence[Row], run_tokens: int) -> list[list[Row]]:
    """Split rows into groups to encode, longest first, so that padded tokens and runs cost least.

    Args:
        run_tokens: as KVCache has it.
    """
    rows = sorted(rows, key=lambda row: -row.size)
    count = len(rows)
    best = {0: (0, 0)}  # by number of first rows: cost of encoding them, and where their last group starts
    for end in range(1, count + 1):
        if end == count or rows[end].size < rows[end - 1].size:  # rows of equal length are never parted
            best[end] = min((cost + run_tokens + rows[start].size * (end - start), start) for start, (cost, _) in best.items())
    groups: list[list[Row]] = []
    while count:
        start = best[count][1]
        groups.append(rows[start:count])
        count = start
    return groups[::-1]


def encode_rows(new: Sequence[Row], running: Sequence[tuple[Row, int]], slots: Slots) -> Iterator[tuple[Row, int]]:
    """Encode new rows into the next slots; yield each with its slot, in the order of the slots.

    Each source is encoded once: a row with the source of another new or running row gets a copy of what was encoded.

    Args:
        running: rows in the lane, each with a slot that has its encoded source.
    """
    if slots.subset is not None:
        wanted = [row.shortlist for row in new if row.shortlist is not None]
        slots.subset.admit(wanted, [row.shortlist for row, _ in running if row.shortlist is not None])
    encoded = {tuple(row.source): slot for row, slot in running}
    first: dict[tuple[int, ...], Row] = {}
    repeated = []
    for row in new:
        source = tuple(row.source)
        if source in encoded or first.setdefault(source, row) is not row:
            repeated.append((row, source))
    for group in group_by_length([*first.values()], slots.cache.run_tokens):
        for row, slot in zip(group, slots.encode([row.source for row in group]), strict=True):
            encoded[tuple(row.source)] = slot
            yield row, slot
    for row, source in repeated:
        yield row, slots.repeat(source, encoded[source])


def finish_row(row: Row, finish: Finish) -> None:
    """Complete a greedy row that has all its tokens."""
    row.hypotheses = (Hypothesis(tuple(row.tokens), finish),)
    row.finish = finish
