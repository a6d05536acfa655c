"""Lanes of decoder-only models: rows read their prompts first, a chunk between two steps, then decode like all others.

While a prompt is read, every step forces its next token: the row costs no more than a decoding one, and advances by one token.
"""

from collections.abc import Sequence

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.prompt_cache import PromptReader, Reading
from triptych_serving.decoding.search_lane import SearchLane
from triptych_serving.decoding.slots import SearchSlots, Slots
from triptych_serving.scheduling.request import Row
from triptych_serving.text.vocabulary import Vocabulary


class PromptGreedyLane(GreedyLane):
    """Greedy search of a decoder-only model.

    Args:
        slots: over the step graph.
        reader: reads into the slots' caches.
        tokens: ids of the special tokens.
    """

    def __init__(self, slots: Slots, reader: PromptReader, tokens: SpecialTokens) -> None:
        super().__init__(slots, tokens)
        self._reader = reader

    @property
    def news(self) -> Sequence[Row]:
        return [row for row in self.rows if len(row.tokens) > row.prompt]

    def step(self) -> list[Row]:
        readings = [Reading(row, slot, len(row.tokens)) for slot, row in enumerate(self.rows) if len(row.tokens) < row.prompt]
        reads_on = self._reader.read(readings, self._slots)
        for reading in readings:
            row = reading.row
            row.tokens.extend(row.prefix[len(row.tokens) : reading.position])
        return [] if reads_on and len(readings) == len(self.rows) else super().step()


class PromptSearchLane(SearchLane):
    """Searches of a decoder-only model that need log-probabilities.

    Args:
        slots: over the search graph.
        reader: reads into the slots' caches.
        tokens: ids of the special tokens.
        vocabulary: bytes of each token, for texts that must not occur.
    """

    def __init__(self, slots: SearchSlots, reader: PromptReader, tokens: SpecialTokens, vocabulary: Vocabulary) -> None:
        super().__init__(slots, tokens, vocabulary)
        self._reader = reader

    @property
    def news(self) -> Sequence[Row]:
        return [group.row for group in self._groups if group.length > group.row.prompt]

    def step(self) -> list[Row]:
        groups = [group for group in self._groups if group.length < group.row.prompt and not group.row.scored]
        readings = [Reading(group.row, group.slots[0], group.length) for group in groups]
        reads_on = self._reader.read(readings, self._slots)
        for group, reading in zip(groups, readings, strict=True):
            new = slice(group.length, reading.position)
            self._slots.history[reading.slot, new] = group.row.prefix[new]
            group.length = reading.position
        return [] if reads_on and len(groups) == len(self._groups) else super().step()
