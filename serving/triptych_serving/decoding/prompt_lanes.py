"""Lanes of decoder-only models: rows read their prompts first, a chunk between two steps, then decode like all others.

What reads the last token of a greedy row's prompt chooses the first one after it. Until the row's first step, that token is
in the slot alone, so that no stream begins while its row waits for the prompts of others.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.hypotheses import HypothesisGroup
from triptych_serving.decoding.prompt_cache import PromptReader, Reading, is_unread
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.decoding.slots import SearchSlots, Slots
from triptych_serving.scheduling.request import Row
from triptych_serving.text.vocabulary import Vocabulary


class PromptGreedyLane(GreedyLane):
    """Greedy search of a decoder-only model; `reader` reads prompts into the slots' caches."""

    def __init__(self, slots: Slots, reader: PromptReader, tokens: SpecialTokens) -> None:
        super().__init__(slots, tokens)
        self._reader = reader

    @property
    def updated_rows(self) -> Sequence[Row]:
        return [row for row in self.rows if len(row.tokens) > row.prompt]

    def warm_up(self) -> None:
        super().warm_up()
        self._reader.warm_up()

    def step(self) -> list[Row]:
        slots = self._slots
        unread = [(slot, row) for slot, row in enumerate(self.rows) if _is_unread(row)]
        readings = [Reading(row, slot, len(row.tokens), row.prompt + 1) for slot, row in unread]
        waits = self._reader.read(readings, slots)
        for reading in readings:
            row = reading.row
            row.tokens.extend(row.prefix[len(row.tokens) : reading.position])
        if waits:
            return []
        first = [slot for slot, row in enumerate(self.rows) if slots.position_view[slot] > len(row.tokens)]
        ended = self._remove([slot for slot in first if self._append(self.rows[slot], slots.token_view[slot])])
        return ended if all(map(_is_unread, self.rows)) else ended + super().step()

    def _run(self) -> None:
        with _up_to((slot for slot, row in enumerate(self.rows) if not _is_unread(row)), self._slots):
            super()._run()

    def _append(self, row: Row, token: int) -> bool:
        return not _is_unread(row) and super()._append(row, token)


class PromptSearchLane(SearchLane):
    """Searches of a decoder-only model that need log-probabilities; `reader` reads prompts into the slots' caches."""

    def __init__(self, slots: SearchSlots, reader: PromptReader, tokens: SpecialTokens, vocabulary: Vocabulary) -> None:
        super().__init__(slots, tokens, vocabulary)
        self._reader = reader

    @property
    def updated_rows(self) -> Sequence[Row]:
        return [group.row for group in self._groups if group.length > group.row.prompt]

    def step(self) -> list[Row]:
        groups = [group for group in self._groups if is_unread(group.row, group.length)]
        readings = [Reading(group.row, group.slots[0], group.length, group.row.prompt) for group in groups]
        waits = self._reader.read(readings, self._slots)
        for group, reading in zip(groups, readings, strict=True):
            new = slice(group.length, reading.position)
            self._slots.history[reading.slot, new] = group.row.prefix[new]
            group.length = reading.position
        return [] if waits or not self._stepping else super().step()

    @property
    def _stepping(self) -> Sequence[HypothesisGroup]:
        return [group for group in self._groups if not is_unread(group.row, group.length)]

    def _run(self) -> None:
        with _up_to((slot for group in self._stepping for slot in group.slots), self._slots):
            super()._run()


def _is_unread(row: Row) -> bool:
    return is_unread(row, len(row.tokens))


@contextmanager
def _up_to(ready: Iterable[int], slots: Slots) -> Iterator[None]:
    """Leave out the slots after the last of these, which are of rows whose prompts are being read."""
    used = slots.used
    slots.used = 1 + max(ready, default=0)
    try:
        yield
    finally:
        slots.used = used
