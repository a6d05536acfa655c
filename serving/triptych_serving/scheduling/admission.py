"""Admission control: which calls may join an engine's queue, and which have left it. No threads, no clock.

`CallQueue` is the base of both schedulers: they differ only in how they choose the rows that run together.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, NamedTuple, TypeVar

from triptych_serving.errors import (
    CancelledError,
    DeadlineError,
    InvalidInputError,
    OverloadedError,
    ServingError,
    UnavailableError,
)
from triptych_serving.scheduling.fair_queue import FairQueue
from triptych_serving.scheduling.request import Call, RowT
from triptych_serving.scheduling.wait_estimator import Caution, ExpectedCall, Forecast, WaitEstimator

RETRY_SECONDS = 0.5  # delay suggested to a refused caller while there is no forecast
SHORTEST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 30.0
DEADLINE_SLACK_SECONDS = 0.01  # for a result's way back to the caller
SWEEP_SECONDS = 0.05  # between two searches of the whole queue for dead calls


@dataclass(frozen=True)
class QueueLimits:
    """Bounds of a queue, and of what one request may cost."""

    waiting_rows: int = 16_384
    waiting_tokens: int = 1_048_576  # tokens of all waiting rows
    waiting_calls: int = 4_096
    waiting_seconds: float = math.inf  # reject a call that would have to wait longer
    refuses_late: bool = True  # reject a call whose deadline would pass
    # Of one request; a process that serves nobody else has no such bounds.
    request_characters: int = sys.maxsize  # to split and tokenize
    decode_tokens: int = sys.maxsize  # rows x beams or samples x max_length
    result_bytes: int = sys.maxsize  # of the response, at most


LimitsT = TypeVar("LimitsT", bound=QueueLimits)


def with_queue(limits: LimitsT, queue: QueueLimits) -> LimitsT:
    """Return an engine's limits with the bounds of its queue replaced."""
    return replace(limits, **{field.name: getattr(queue, field.name) for field in fields(QueueLimits)})


@dataclass
class Counters:
    """Outcomes of calls since the engine started."""

    finished: int = 0  # calls
    cancelled: int = 0  # calls
    expired: int = 0  # calls whose deadline passed
    failed: int = 0  # calls
    freed: int = 0  # rows that left before they were done
    rejected: int = 0  # calls that were never accepted: the queue was full, or the wait too long


class Demand(NamedTuple):
    """Rows and tokens that a call would add to a queue."""

    rows: int
    tokens: int  # 0: not known yet
    deadline: float | None  # clock seconds
    field: str = "contents"  # the request's field, for error messages


MakeForecast = Callable[[], Forecast | None]  # for one call; None: too little is known, or nothing waits


class CallQueue(ABC, Generic[RowT]):
    """The queue of one engine, with a lane for each kind of row. Callers hold a lock around every method.

    Args:
        limits: of the queue.
        lanes: keys of the lanes.
        cost, unit, turn: of rows, as of FairQueue.
    """

    def __init__(
        self, limits: QueueLimits, lanes: Iterable[Hashable], cost: Callable[[RowT], int], unit: int = 1, turn: int = 1
    ) -> None:
        lanes = tuple(lanes)
        self.counters = Counters()
        self.calls = 0  # with a waiting row
        self._queues: dict[Any, FairQueue[RowT]] = {lane: FairQueue(cost, unit, turn) for lane in lanes}
        self._retries: dict[Any, deque[RowT]] = {lane: deque() for lane in lanes}
        self._estimators: dict[Any, WaitEstimator] = {lane: WaitEstimator() for lane in lanes}
        self._queue_limits = limits
        self._caution = Caution()
        self.closed = ""  # why new calls are rejected
        self._next_sweep = 0.0

    @abstractmethod
    def lane_of(self, row: RowT) -> Hashable:
        """Return the lane that a row needs."""

    def _in_order(self, call: Call[RowT]) -> Sequence[RowT]:
        """Return a call's rows in the order in which they get their turns."""
        return call.rows

    @abstractmethod
    def _forecast(self, call: Call[RowT], now: float) -> Forecast | None:
        """Forecast for a call that would join now; None: too little is known, or nothing waits."""

    @abstractmethod
    def _forecast_expected(self, expected: ExpectedCall, deadline: float | None, now: float) -> Forecast | None:
        """Forecast for a call before its rows are made."""

    @property
    def rows(self) -> int:
        """Waiting rows, without retries."""
        return sum([queue.rows for queue in self._queues.values()])

    @property
    def tokens(self) -> int:
        """Tokens of these rows."""
        return sum([queue.tokens for queue in self._queues.values()])

    @property
    def waiting(self) -> int:
        """Waiting rows, with retries."""
        return self.rows + sum(map(len, self._retries.values()))

    @property
    def is_empty(self) -> bool:
        """True if no row waits, nor is retried. Needs no lock."""
        return not self.calls and not any(self._retries.values())

    def submit(self, call: Call[RowT], now: float) -> None:
        """Queue all rows of a call, or none.

        Raises:
            UnavailableError: the queue is closed.
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full, or the call would wait too long.
            DeadlineError: the call's deadline has passed.
        """
        call.arrived = now
        demand = Demand(len(call.rows), call.size, call.deadline, call.field)
        call.forecast_seconds = self.check_demand(demand, now, lambda: self._forecast(call, now))
        lanes: dict[Hashable, list[RowT]] = {}
        for row in self._in_order(call):
            row.call = call
            lanes.setdefault(self.lane_of(row), []).append(row)
        call.waiting = len(call.rows)
        self.calls += 1
        for lane, rows in lanes.items():
            self._queues[lane].add(call, rows)

    def check(self, expected: ExpectedCall, deadline: float | None, now: float) -> None:
        """Reject a call before the work of making its rows, if `submit` is expected to reject it.

        Args:
            deadline: clock seconds.
            now: clock seconds.

        Raises:
            ServingError: as `submit`.
        """
        demand = Demand(expected.rows, 0, deadline, expected.field)
        self.check_demand(demand, now, lambda: self._forecast_expected(expected, deadline, now))

    def check_demand(self, demand: Demand, now: float, make_forecast: MakeForecast) -> float:
        """Check room and time for a call; return the forecast seconds to its result, 0 if there is no forecast.

        Raises:
            ServingError: as `submit`.
        """
        if self.closed:
            raise UnavailableError(self.closed)
        if demand.deadline is not None and demand.deadline <= now:
            self.counters.expired += 1
            raise DeadlineError("the deadline had passed on arrival")
        try:
            self._check_room(demand, make_forecast)
            return self._check_time(demand, now, make_forecast)
        except OverloadedError:
            self.counters.rejected += 1
            raise

    def expire(self, call: Call[Any], now: float) -> bool:
        """Fail a call whose deadline has passed. True if the call is over now, for this reason or an earlier one."""
        if call.over:
            return True
        if call.deadline is None or call.deadline > now:
            return False
        self.counters.expired += 1
        call.fail(DeadlineError("the deadline passed before the result was ready"))
        if call.forecast_seconds:
            self._caution.add(in_time=False)
        return True

    def cancel(self, call: Call[RowT], now: float) -> None:
        """Fail a call whose caller has left. Callers often leave at their deadline, just before the engine sees the time."""
        if not self.expire(call, now + DEADLINE_SLACK_SECONDS):
            self.counters.cancelled += 1
            call.fail(CancelledError("the caller went away"))

    def fail(self, call: Call[RowT], error: ServingError) -> None:
        """Fail a call because of the engine."""
        self.counters.failed += not call.over
        call.fail(error)

    def finish(self, call: Call[RowT], now: float) -> None:
        """Count a call all of whose rows have their results."""
        self.counters.finished += 1
        in_time = call.deadline is None or now + DEADLINE_SLACK_SECONDS < call.deadline
        if in_time or call.forecast_seconds:  # calls in time always count: an engine that accepts few needs them
            self._caution.add(in_time)

    def retry(self, rows: Iterable[RowT]) -> None:
        """Put the rows of a failed batch before all waiting rows, each to run alone."""
        for row in rows:
            row.alone = True
            row.restart()
            self._retries[self.lane_of(row)].append(row)

    def close(self, reason: str) -> None:
        """Reject new calls, with the first reason given; those that wait are still served."""
        self.closed = self.closed or reason

    def drain(self) -> list[Call[RowT]]:
        """Empty the queue; return the calls that were in it."""
        calls: dict[Call[RowT], None] = {}
        for queue in self._queues.values():
            for call in queue.calls:
                self._drop(queue, call)
                calls[call] = None
        for retries in self._retries.values():
            calls.update((row.call, None) for row in retries)
            retries.clear()
        return list(calls)

    def _take(self, queue: FairQueue[RowT], row: RowT) -> None:
        queue.remove(row)
        self._uncount(row.call, 1)

    def _drop(self, queue: FairQueue[RowT], call: Call[RowT]) -> list[RowT]:
        rows = queue.drop(call)
        self._uncount(call, len(rows))
        for row in rows:
            del row.call
        return rows

    def _uncount(self, call: Call[RowT], rows: int) -> None:
        call.waiting -= rows
        self.calls -= not call.waiting

    def _first(self, queue: FairQueue[RowT], now: float) -> RowT | None:
        """Return the row whose turn it is, after dropping dead calls before it."""
        while (row := queue.peek()) is not None and self.expire(row.call, now):
            self.counters.freed += len(self._drop(queue, row.call))
        return row

    def _first_retry(self, lane: Hashable, now: float) -> RowT | None:
        """Return the row to be retried next, after dropping dead calls before it."""
        retries = self._retries[lane]
        while retries and self.expire(retries[0].call, now):
            retries.popleft()
        return retries[0] if retries else None

    def _sweep(self, now: float) -> None:
        """Drop dead calls from the whole queue now and then, so that they do not fill it."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_SECONDS
        for queue in self._queues.values():
            for call in queue.calls:
                if self.expire(call, now):
                    self.counters.freed += len(self._drop(queue, call))
            queue.compact()
        for lane, retries in self._retries.items():
            if retries:
                self._retries[lane] = deque(row for row in retries if not self.expire(row.call, now))

    def _check_room(self, demand: Demand, make_forecast: MakeForecast) -> None:
        limits, (rows, tokens) = self._queue_limits, (self.rows, self.tokens) if self.calls else (0, 0)
        for name, held, more, limit in (
            ("requests", self.calls, 1, limits.waiting_calls),
            ("rows", rows, demand.rows, limits.waiting_rows),
            ("tokens", tokens, demand.tokens, limits.waiting_tokens),
        ):
            if more > limit:
                raise InvalidInputError(
                    demand.field, f"{more:,} {name} in one request, at most {limit:,} can wait (--max-queue-{name}); send fewer"
                )
            if held + more > limit:
                raise full_queue(name, held, more, limit, make_forecast())

    def _check_time(self, demand: Demand, now: float, make_forecast: MakeForecast) -> float:
        deadline = demand.deadline if self._queue_limits.refuses_late else None
        if deadline is None and self._queue_limits.waiting_seconds == math.inf:
            return 0.0
        forecast = make_forecast()
        if forecast is None:
            return 0.0
        check_time(forecast.stretched(self._caution.factor), deadline, now, self._queue_limits.waiting_seconds)
        return forecast.total


def full_queue(name: str, held: int, more: int, limit: int, forecast: Forecast | None) -> OverloadedError:
    """Make the error for a call that finds no room: `held` requests, rows or tokens wait, `more` exceed the `limit`."""
    flag = "" if name == "images" else f" (--max-queue-{name})"  # images are limited by memory, too
    message = f"the queue is full: {held:,} {name} are waiting, {more:,} more exceed the limit of {limit:,}{flag}"
    return OverloadedError(message, RETRY_SECONDS if forecast is None else _retry_seconds(forecast))


def check_time(forecast: Forecast | None, deadline: float | None, now: float, longest: float = math.inf) -> None:
    """Reject a call that would wait too long or miss its deadline.

    Args:
        forecast: for the call; None accepts it.
        deadline: clock seconds, if it has one.
        now: clock seconds.
        longest: wait in seconds.

    Raises:
        OverloadedError: names the expected wait and the limit.
    """
    if forecast is None:
        return
    if forecast.wait > longest:
        wait = f"the expected wait is {forecast.wait:.2f} s, the limit {longest:.2f} s"
        message = f"the queue is too long: {wait} (--max-queue-secs)"
        raise OverloadedError(message, _retry_seconds(forecast, forecast.wait - longest))
    if deadline is not None and forecast.total > deadline - now:
        message = (
            f"the deadline in {deadline - now:.2f} s cannot be met: "
            f"expect {forecast.wait:.2f} s of waiting and {forecast.service:.2f} s of work"
        )
        raise OverloadedError(message, _retry_seconds(forecast, forecast.total - (deadline - now)))


def _retry_seconds(forecast: Forecast, excess: float = 0.0) -> float:
    """Suggest a delay in which half of the queue is done, and as much as is too much for the caller."""
    return min(LONGEST_RETRY_SECONDS, max(SHORTEST_RETRY_SECONDS, excess, forecast.wait / 2))
