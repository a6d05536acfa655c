"""Greedy search on a device: the host asks for steps ahead, and hears of each step's tokens while the next one runs.

When the host hears that a row ended in a step, the row was in the step after it as well: what it said there is not looked at.
With hundreds of rows a step takes a GPU less time than a few lines of Python for each of them would, so a step is noted for all
rows at once, and one is looked at by itself only when it ends, begins, or is streamed.
"""

from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import SpecialTokens
from triptych_serving.decoding.cuda.kv_cache import PADDING, entered
from triptych_serving.decoding.cuda.slots import IN_FLIGHT, DeviceSlots, PendingStep
from triptych_serving.decoding.greedy_lane import by_length, conclude
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.memory import Memory
from triptych_serving.scheduling.decode_scheduler import Job
from triptych_serving.scheduling.request import Finish

GONE = -1  # the slot of a row that has left
NEVER = np.iinfo(np.int64).max  # the first step of a slot that is vacant

Ints = NDArray[np.int64]


@dataclass(eq=False, slots=True)
class _Seat:
    """A row in its slot. One that leaves and comes again has another seat, whose first step is a later one."""

    job: Job
    slot: int
    born: int  # number of its first step

    @property
    def settled(self) -> int:
        """The first step whose token the row does not have yet."""
        return self.born + len(self.job.row.tokens)


@dataclass(frozen=True)
class _Flight:
    """A step that was asked for."""

    number: int
    answers: PendingStep
    moves: list[tuple[int, int]] = field(default_factory=list)  # of rows from slot to slot, since then


class DeviceGreedyLane:
    """Used by one thread, which is also the one that made it warm.

    Args:
        slots: over the step graph.
        tokens: ids of the special tokens.
        memory: of the slots.
    """

    def __init__(self, slots: DeviceSlots, tokens: SpecialTokens, memory: Memory) -> None:
        self._slots, self._memory = slots, memory
        self._pad, self._end = tokens.pad, tokens.end
        self._seats: list[_Seat | None] = [None] * slots.count  # by slot
        self._born = np.full(slots.count, NEVER)  # by slot: the first step of its row
        self._last = np.full(slots.count, NEVER)  # and the one that brings the last token that it may have
        self._said: Ints = np.zeros((slots.positions + IN_FLIGHT, slots.count), np.int64)  # steps, round and round, by slot
        self._seat_of: dict[int, _Seat] = {}  # by the job's identity
        self._jobs: list[Job] = []  # of the seats; made anew when they change, for other threads look at it
        self._vacant = list(range(slots.count))  # slots, ascending
        self._high = 0  # one more than the highest slot in use
        self._asked = 0  # steps
        self._heard = 0  # steps, those that nobody waited for included
        self._flights: deque[_Flight] = deque()
        self._streams: list[_Seat] = []
        self._fresh: list[_Seat] = []  # rows whose first token is yet to come, or came just now
        self._forcing: list[_Seat] = []  # rows whose prefixes the device was told of last, or is to be told of

    @property
    def jobs(self) -> Sequence[Job]:
        return self._jobs

    @property
    def news(self) -> Sequence[Job]:
        heard = self._heard - 1
        seats = dict.fromkeys((*self._fresh, *self._streams))
        return [seat.job for seat in seats if seat.slot != GONE and seat.born <= heard]

    @property
    def free(self) -> int:
        return len(self._vacant)

    @property
    def bytes(self) -> int:
        return self._slots.bytes

    def warm_up(self) -> None:
        self._slots.warm_up()

    def join(self, jobs: Sequence[Job]) -> None:
        with entered(self._memory):
            for group in by_length(jobs, PADDING):
                self._seat(group)

    def leave(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            seat = self._seat_of[id(job)]
            job.row.tokens.extend(self._tokens(seat, self._heard))
            self._vacate(seat)
        self._tell()

    def step(self) -> list[Job]:
        with entered(self._memory):
            self._move_down()
            while len(self._flights) < IN_FLIGHT:
                self._ask()
            flight = self._flights.popleft()
            tokens = flight.answers.wait()
        return self._hear(flight, tokens)

    def _seat(self, jobs: Sequence[Job]) -> None:
        """Encode rows, and give each a slot, the lowest that are vacant."""
        sources = [job.row.source for job in jobs]
        slots = self._vacant[: len(jobs)]
        lengths = np.array([len(source) for source in sources], np.int64)
        self._slots.encode(stack_rows(sources, self._pad, np.int64), lengths, slots)
        del self._vacant[: len(jobs)]
        for job, slot in zip(jobs, slots, strict=True):
            seat = self._seat_of[id(job)] = _Seat(job, slot, self._asked)
            self._occupy(seat)
            self._fresh.append(seat)
            if job.call.streams:
                self._streams.append(seat)
            if job.row.prefix:
                self._forcing.append(seat)
        self._high = max(self._high, slots[-1] + 1)
        self._tell()

    def _tell(self) -> None:
        """Let other threads see who runs."""
        self._jobs = [seat.job for seat in self._seat_of.values()]

    def _occupy(self, seat: _Seat) -> None:
        self._seats[seat.slot] = seat
        self._born[seat.slot] = seat.born
        self._last[seat.slot] = seat.born + seat.job.row.max_tokens - 1

    def _vacate(self, seat: _Seat) -> None:
        del self._seat_of[id(seat.job)]
        self._give_up(seat.slot)
        seat.slot = GONE
        if not self._seat_of:
            self._flights.clear()  # nobody waits for their answers
            self._heard = self._asked

    def _give_up(self, slot: int) -> None:
        self._seats[slot] = None
        self._born[slot] = self._last[slot] = NEVER
        insort(self._vacant, slot)
        while self._high and self._seats[self._high - 1] is None:
            self._high -= 1

    def _move_down(self) -> None:
        """Into a bucket that is at most half as large, if all rows fit into it."""
        bucket = self._slots.buckets.of
        enough = bucket(len(self._seat_of))
        if 2 * enough > bucket(self._high):
            return
        while self._high > enough:
            seat = self._seats[self._high - 1]
            assert seat is not None
            self._move(seat, self._vacant[0])

    def _move(self, seat: _Seat, target: int) -> None:
        source = seat.slot
        self._slots.move(source, target, min(self._asked - seat.born, self._slots.positions))
        self._said[:, target] = self._said[:, source]
        for flight in self._flights:
            flight.moves.append((source, target))
        self._vacant.remove(target)
        seat.slot = target
        self._occupy(seat)
        self._give_up(source)

    def _ask(self) -> None:
        if self._forcing:
            self._force()
        answers = self._slots.run(self._slots.buckets.of(self._high))
        self._flights.append(_Flight(self._asked, answers))
        self._asked += 1

    def _force(self) -> None:
        """Tell the device what the next step's rows must say."""
        self._forcing = [
            seat for seat in self._forcing if seat.slot != GONE and self._asked - seat.born < len(seat.job.row.prefix)
        ]
        self._slots.force({seat.slot: seat.job.row.prefix[self._asked - seat.born] for seat in self._forcing})

    def _hear(self, flight: _Flight, tokens: Ints) -> list[Job]:
        """Note a step's tokens, `[rows]` by slot; returns whose last ones they are."""
        number, rows = flight.number, len(tokens)
        self._heard = number + 1
        said = self._said[number % len(self._said), :rows]
        said[:] = tokens
        for source, target in flight.moves:
            if source < rows:  # else the row came later than the step
                said[target] = said[source]
        over = (self._born[:rows] <= number) & ((said == self._end) | (self._last[:rows] <= number))
        ended = [seat for slot in np.flatnonzero(over).tolist() if (seat := self._seats[slot]) is not None]
        for seat in ended:
            self._conclude(seat, number)
        if ended:
            self._tell()
        self._streams = [seat for seat in self._streams if seat.slot != GONE]
        self._fresh = [seat for seat in self._fresh if seat.slot != GONE and seat.born >= number]
        for seat in self._streams:
            seat.job.row.tokens.extend(self._tokens(seat, self._heard))
        return [seat.job for seat in ended]

    def _conclude(self, seat: _Seat, number: int) -> None:
        row = seat.job.row
        tokens = self._tokens(seat, number + 1)
        stops = tokens[-1] == self._end
        row.tokens.extend(tokens[:-1] if stops else tokens)  # at once: of a stream other threads look at it
        conclude(row, Finish.STOP if stops else Finish.LENGTH)
        self._vacate(seat)

    def _tokens(self, seat: _Seat, stop: int) -> list[int]:
        """What a row has said in steps up to `stop`, as far as it does not know yet."""
        steps = np.arange(seat.settled, max(seat.settled, stop)) % len(self._said)
        tokens: list[int] = self._said[steps, seat.slot].tolist()
        return tokens
