"""Who may join a queue, and who has left it: the part of queueing that all engines share."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from triptych_serving.errors import CancelledError, DeadlineError, InvalidInputError, OverloadedError, UnavailableError
from triptych_serving.scheduling.request import Call, Measured
from triptych_serving.scheduling.wait_estimator import Caution, Forecast

RETRY_SECONDS = 0.5  # what a refused caller is told to wait where nothing is known of the engine's pace
SHORTEST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 30.0
DEADLINE_SLACK_SECONDS = 0.01  # for an answer's way back to the caller
SWEEP_SECONDS = 0.05  # between two looks through a whole queue


@dataclass(frozen=True)
class QueueLimits:
    """Bounds of a queue."""

    waiting_rows: int = 16_384
    waiting_tokens: int = 1_048_576  # tokens of all waiting rows
    waiting_calls: int = 4_096
    waiting_seconds: float = math.inf  # a call that would have to wait longer is refused
    refuses_late: bool = True  # and so is one whose deadline would pass


LimitsT = TypeVar("LimitsT", bound=QueueLimits)


def with_queue(limits: LimitsT, queue: QueueLimits) -> LimitsT:
    """The limits of an engine, with those of its queue replaced."""
    return replace(limits, **{field.name: getattr(queue, field.name) for field in fields(QueueLimits)})


@dataclass
class Counters:
    """How calls ended and what was dropped, since the engine started."""

    finished: int = 0  # calls
    cancelled: int = 0  # calls
    expired: int = 0  # calls whose deadline passed
    failed: int = 0  # calls
    freed: int = 0  # rows that left before they were done
    rejected: int = 0  # calls that were never let in: the queue was full, or the wait too long


@dataclass(frozen=True, slots=True)
class Demand:
    """What a call would put into a queue."""

    rows: int
    tokens: int  # 0: not counted yet
    deadline: float | None  # clock seconds
    field: str = "contents"  # of the request, for errors


Foretell = Callable[[], Forecast | None]  # for the call in question; None where too little is known, or nobody is before it


class Admission:
    """Counts what waits in one queue.

    Args:
        limits: of the queue.
    """

    def __init__(self, limits: QueueLimits) -> None:
        self.counters = Counters()
        self.rows = 0
        self.tokens = 0
        self.whole = 0  # tokens that the calls came with of which a row waits
        self._left: dict[Call[Any], int] = {}  # rows that wait
        self._limits = limits
        self._caution = Caution()
        self._closed = False

    @property
    def calls(self) -> int:
        """With a row that waits."""
        return len(self._left)

    def admit(self, call: Call[Any], now: float, foretell: Foretell) -> None:
        """Count all rows of a call as waiting, or none.

        Raises:
            ServingError: as for `check`.
        """
        call.arrived = now
        call.foretold = self.check(Demand(len(call.rows), call.tokens, call.deadline, call.field), now, foretell)
        self._left[call] = len(call.rows)
        self.rows += len(call.rows)
        self.tokens += call.tokens
        self.whole += call.tokens

    def check(self, demand: Demand, now: float, foretell: Foretell) -> float:
        """Whether there is room and time for a call. How long it should take, in seconds; 0: nothing is known.

        Raises:
            UnavailableError: the queue is closed.
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full, or the deadline would pass before the answer.
            DeadlineError: the deadline has passed already.
        """
        if self._closed:
            raise UnavailableError("the model is shutting down")
        if demand.deadline is not None and demand.deadline <= now:
            self.counters.expired += 1
            raise DeadlineError("the deadline had passed on arrival")
        try:
            self._check_room(demand, foretell)
            return self._check_time(demand, now, foretell)
        except OverloadedError:
            self.counters.rejected += 1
            raise

    def release(self, call: Call[Any], *rows: Measured) -> None:
        """These rows of a call wait no longer."""
        self.rows -= len(rows)
        self.tokens -= sum(row.size for row in rows)
        left = self._left[call] - len(rows)
        if left:
            self._left[call] = left
        else:
            del self._left[call]
            self.whole -= call.tokens

    def is_dead(self, call: Call[Any], now: float) -> bool:
        """Nobody waits for its result any more; a call whose deadline has passed fails here."""
        if call.over:
            return True
        if call.deadline is None or call.deadline > now:
            return False
        self.counters.expired += 1
        call.fail(DeadlineError("the deadline passed before the answer was ready"))
        self._learn(call, in_time=False)
        return True

    def cancel(self, call: Call[Any], now: float) -> None:
        """Its caller went away; at its deadline it often does so a moment before the engine sees the time."""
        if not self.is_dead(call, now + DEADLINE_SLACK_SECONDS):
            self.counters.cancelled += 1
            call.fail(CancelledError("the caller went away"))

    def finish(self, call: Call[Any], now: float) -> None:
        """All of its rows have their results."""
        self.counters.finished += 1
        if call.deadline is None or now + DEADLINE_SLACK_SECONDS < call.deadline:
            self._caution.add(in_time=True)  # with a forecast or without: who lets in few must hear of those
        else:
            self._learn(call, in_time=False)

    def close(self) -> None:
        """Refuse what comes from now on."""
        self._closed = True

    def reset(self) -> None:
        """Nothing waits any more."""
        self.rows = self.tokens = self.whole = 0
        self._left.clear()

    def _check_room(self, demand: Demand, foretell: Foretell) -> None:
        limits = self._limits
        for name, held, more, limit in (
            ("requests", self.calls, 1, limits.waiting_calls),
            ("rows", self.rows, demand.rows, limits.waiting_rows),
            ("tokens", self.tokens, demand.tokens, limits.waiting_tokens),
        ):
            if more > limit:
                raise InvalidInputError(
                    demand.field, f"{more:,} {name} in one request, at most {limit:,} can wait (--max-queue-{name}); send fewer"
                )
            if held + more > limit:
                raise full_queue(name, held, more, limit, foretell())

    def _check_time(self, demand: Demand, now: float, foretell: Foretell) -> float:
        deadline = demand.deadline if self._limits.refuses_late else None
        if deadline is None and self._limits.waiting_seconds == math.inf:
            return 0.0
        forecast = foretell()
        if forecast is None:
            return 0.0
        check_time(forecast.stretched(self._caution.factor), deadline, now, self._limits.waiting_seconds)
        return forecast.total

    def _learn(self, call: Call[Any], in_time: bool) -> None:
        if call.foretold:
            self._caution.add(in_time)


def full_queue(name: str, held: int, more: int, limit: int, forecast: Forecast | None) -> OverloadedError:
    """What to tell a caller who finds no room."""
    message = f"the queue is full: {held:,} {name} wait, {more:,} more exceed {limit:,}"
    return OverloadedError(message, RETRY_SECONDS if forecast is None else _retry_seconds(forecast))


def check_time(forecast: Forecast | None, deadline: float | None, now: float, longest: float = math.inf) -> None:
    """Refuse who would wait too long, or in vain.

    Args:
        forecast: for the call; None lets it in.
        deadline: clock seconds, if it has one.
        now: clock seconds.
        longest: wait in seconds.

    Raises:
        OverloadedError: says how long the wait would be.
    """
    if forecast is None:
        return
    if forecast.wait > longest:
        message = f"the queue is too long: a wait of {forecast.wait:.2f} s is expected, at most {longest:.2f} s may be waited"
        raise OverloadedError(message, _retry_seconds(forecast, forecast.wait - longest))
    if deadline is not None and forecast.total > deadline - now:
        message = (
            f"the deadline cannot be met: it is in {deadline - now:.2f} s, but a wait of {forecast.wait:.2f} s "
            f"and then {forecast.service:.2f} s of work are expected"
        )
        raise OverloadedError(message, _retry_seconds(forecast, forecast.total - (deadline - now)))


def _retry_seconds(forecast: Forecast, excess: float = 0.0) -> float:
    """By then half of what waits is done, and as much as is too much for the caller."""
    return min(LONGEST_RETRY_SECONDS, max(SHORTEST_RETRY_SECONDS, excess, forecast.wait / 2))
