"""Greedy search on a device: steps are enqueued ahead, and the tokens of one are read while the next one runs.

When the host reads that a row ended in a step, the row was in the step after it as well: that token is ignored. With hundreds
of rows a step takes a GPU less time than a few lines of Python for each row would. So tokens are stored for all rows at once,
and a row is handled by itself only when it ends, begins, or is streamed.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.decoding.cuda.kv_cache import RUN_TOKENS, entered
from triptych_serving.decoding.cuda.slots import IN_FLIGHT, DeviceSlots
from triptych_serving.decoding.lane import finish_row, group_by_length
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.memory import Memory, StreamMark
from triptych_serving.scheduling.request import Finish, Row

GONE = -1  # slot of a row that has left
NEVER = np.iinfo(np.int64).max  # first step of an empty slot

Ints = NDArray[np.int64]


@dataclass(eq=False, slots=True)
class _SlottedRow:
    """A row in its slot. A row that leaves and joins again gets a new one, with a later first step."""

    row: Row
    slot: int
    born: int  # number of its first step

    @property
    def next_step(self) -> int:
        """First step whose token the row does not have yet."""
        return self.born + len(self.row.tokens)


@dataclass(frozen=True)
class _EnqueuedStep:
    number: int
    mark: StreamMark
    tokens: Ints  # `[rows]`, by slot, valid once the mark is passed
    moves: list[tuple[int, int]] = field(default_factory=list)  # of rows from slot to slot since it was enqueued


class DeviceGreedyLane:
    """A lane with its rows on a device. Used by one thread, the one that warmed it up."""

    def __init__(self, slots: DeviceSlots, tokens: SpecialTokens, memory: Memory) -> None:
        self._slots, self._memory = slots, memory
        self._pad, self._end = tokens.pad, tokens.end
        self._tokens: Ints = np.zeros((slots.positions + IN_FLIGHT, slots.count), np.int64)  # ring of steps, by slot
        self._enqueued = 0  # number of steps
        self.reset()

    def reset(self) -> None:
        count = self._slots.count
        self._by_slot: list[_SlottedRow | None] = [None] * count
        self._born = np.full(count, NEVER)  # by slot: first step of its row
        self._last = np.full(count, NEVER)  # by slot: the step with the last token that its row may have
        self._by_row: dict[int, _SlottedRow] = {}  # by id of the row
        self.rows: Sequence[Row] = []  # replaced when it changes, because other threads read it
        self._vacant = list(range(count))  # slots, ascending
        self._high = 0  # one more than the highest slot in use
        self._read = self._enqueued  # number of steps, skipped ones included
        self._steps: deque[_EnqueuedStep] = deque()
        self._streams: list[_SlottedRow] = []
        self._fresh: list[_SlottedRow] = []  # rows that wait for their first token, or got it in the last step
        self._forcing: list[_SlottedRow] = []  # rows that have or had a prefix to follow
        self._forced: dict[int, int] | None = None  # by slot: tokens that the device has; None: unknown

    @property
    def updated_rows(self) -> Sequence[Row]:
        read = self._read - 1
        changed = dict.fromkeys((*self._fresh, *self._streams))
        return [each.row for each in changed if each.slot != GONE and each.born <= read]

    @property
    def free(self) -> int:
        return len(self._vacant)

    @property
    def bytes(self) -> int:
        return self._slots.bytes

    def warm_up(self) -> None:
        self._slots.warm_up()

    def join(self, rows: Sequence[Row]) -> None:
        with entered(self._memory):
            for group in group_by_length(rows, RUN_TOKENS):
                self._encode(group)

    def leave(self, rows: Sequence[Row]) -> None:
        for row in rows:
            each = self._by_row[id(row)]
            row.tokens.extend(self._new_tokens(each, self._read))
            self._vacate(each)
        self._publish()

    def step(self) -> list[Row]:
        with entered(self._memory):
            self._move_down()
            while len(self._steps) < IN_FLIGHT:
                self._enqueue()
            step = self._steps.popleft()
            step.mark.wait()
        return self._store(step)

    def _encode(self, rows: Sequence[Row]) -> None:
        """Encode rows in the lowest empty slots."""
        slots = self._vacant[: len(rows)]
        lengths = np.array([row.size for row in rows], np.int64)
        self._slots.encode(stack_rows([row.source for row in rows], self._pad, np.int64), lengths, slots)
        del self._vacant[: len(rows)]
        for row, slot in zip(rows, slots, strict=True):
            each = self._by_row[id(row)] = _SlottedRow(row, slot, self._enqueued)
            self._occupy(each)
            self._fresh.append(each)
            if row.call.streams:
                self._streams.append(each)
            if row.prefix:
                self._forcing.append(each)
        self._high = max(self._high, slots[-1] + 1)
        self._publish()

    def _publish(self) -> None:
        self.rows = [each.row for each in self._by_row.values()]

    def _occupy(self, each: _SlottedRow) -> None:
        self._by_slot[each.slot] = each
        self._born[each.slot] = each.born
        self._last[each.slot] = each.born + each.row.max_tokens - 1

    def _vacate(self, each: _SlottedRow) -> None:
        del self._by_row[id(each.row)]
        self._free_slot(each.slot)
        each.slot = GONE
        if not self._by_row:
            self._steps.clear()  # their tokens belong to no row
            self._read = self._enqueued

    def _free_slot(self, slot: int) -> None:
        self._by_slot[slot] = None
        self._born[slot] = self._last[slot] = NEVER
        insort(self._vacant, slot)
        while self._high and self._by_slot[self._high - 1] is None:
            self._high -= 1

    def _move_down(self) -> None:
        """Move rows to lower slots if a bucket of half the size or less can hold all of them."""
        bucket = self._slots.buckets.of
        enough = bucket(len(self._by_row))
        if 2 * enough > bucket(self._high):
            return
        while self._high > enough:
            each = self._by_slot[self._high - 1]
            assert each is not None
            self._move(each, self._vacant[0])

    def _move(self, each: _SlottedRow, target: int) -> None:
        source = each.slot
        self._slots.move(source, target, min(self._enqueued - each.born, self._slots.positions))
        self._tokens[:, target] = self._tokens[:, source]
        for step in self._steps:
            step.moves.append((source, target))
        self._vacant.remove(target)
        each.slot = target
        self._occupy(each)
        self._free_slot(source)

    def _enqueue(self) -> None:
        self._force()
        mark, tokens = self._slots.run(self._slots.buckets.of(self._high))
        self._steps.append(_EnqueuedStep(self._enqueued, mark, tokens))
        self._enqueued += 1

    def _force(self) -> None:
        """Upload the forced tokens of the next step, if they differ from those of the last one."""
        self._forcing = [
            each for each in self._forcing if each.slot != GONE and self._enqueued - each.born < len(each.row.prefix)
        ]
        forced = {each.slot: each.row.prefix[self._enqueued - each.born] for each in self._forcing}
        if forced != self._forced:
            self._forced = None  # until the upload has succeeded
            self._slots.force(forced)
            self._forced = forced

    def _store(self, step: _EnqueuedStep) -> list[Row]:
        """Store a step's tokens; return the rows that ended with it."""
        number, count = step.number, len(step.tokens)
        self._read = number + 1
        stored = self._tokens[number % len(self._tokens), :count]
        stored[:] = step.tokens
        for source, target in step.moves:
            if source < count:  # else the row joined after the step was enqueued
                stored[target] = stored[source]
        over = (self._born[:count] <= number) & ((stored == self._end) | (self._last[:count] <= number))
        ended = [each for slot in np.flatnonzero(over).tolist() if (each := self._by_slot[slot]) is not None]
        for each in ended:
            self._finish(each, number)
        if ended:
            self._publish()
        self._streams = [each for each in self._streams if each.slot != GONE]
        self._fresh = [each for each in self._fresh if each.slot != GONE and each.born >= number]
        for each in self._streams:
            each.row.tokens.extend(self._new_tokens(each, self._read))
        return [each.row for each in ended]

    def _finish(self, each: _SlottedRow, number: int) -> None:
        row = each.row
        tokens = self._new_tokens(each, number + 1)
        stops = tokens[-1] == self._end
        row.tokens.extend(tokens[:-1] if stops else tokens)  # in one call: other threads read a stream's tokens
        finish_row(row, Finish.STOP if stops else Finish.LENGTH)
        self._vacate(each)

    def _new_tokens(self, each: _SlottedRow, stop: int) -> list[int]:
        """Return a row's tokens of steps up to `stop` that it does not have yet."""
        steps = np.arange(each.next_step, max(each.next_step, stop)) % len(self._tokens)
        tokens: list[int] = self._tokens[steps, each.slot].tolist()
        return tokens
