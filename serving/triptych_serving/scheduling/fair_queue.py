"""Order in which calls that share an engine get their rows served. No threads, no clock.

Self-clocked fair queueing (Golestani 1994): each row is tagged with the virtual time at which a fair share of the engine
would have finished it, and the lowest tag is next. A single row so passes a call of 2,000 rows after one row of it. Between
equal tags the earlier deadline is first. Where a row costs 1, virtual time counts rounds: each call gives one row per round.
"""

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Generic

from triptych_serving.scheduling.request import Call, RowT

PATIENCE_SECONDS = 30.0  # a call with a later deadline, or none, is ordered as if it were due then: no call waits for ever


class _Entry(Generic[RowT]):
    """The rows of one call that are still in the queue."""

    __slots__ = ("call", "cost", "due", "left", "rows")

    def __init__(self, call: Call[RowT], rows: Sequence[RowT], cost: int, due: float) -> None:
        self.call = call
        self.rows = deque(rows)  # rows taken out of turn are skipped later
        self.left = len(rows)
        self.cost = cost
        self.due = due

    def head(self) -> RowT | None:
        """Return the first row that waits."""
        rows = self.rows
        while rows and not rows[0].waiting:
            rows.popleft()
        return rows[0] if rows else None


class FairQueue(Generic[RowT]):
    """Waiting rows of one lane.

    A new call starts in the current round if a call in it is less urgent, else in the next one: otherwise calls that keep
    coming could make a round endless for those that already had their turn.

    Args:
        cost: share of the engine that a row takes, at least 1.
        unit: a row takes its cost in virtual time, rounded up to a multiple of it: rows that cost less do not pass each other.
        turn: rows of a call that take so much together share a turn. With a part of every batch each, calls would all end with
            the last one: late together under load, and a device would wait for their next rows. Rows of a call that streams
            have turns of their own, so that the first one is soon served.
    """

    def __init__(self, cost: Callable[[RowT], int], unit: int = 1, turn: int = 1) -> None:
        self._cost, self._unit, self._turn = cost, unit, turn
        self._heap: list[tuple[tuple[int, float, int], _Entry[RowT]]] = []  # an entry's key is never above its head's order
        self._entries: dict[Call[Any], _Entry[RowT]] = {}
        self._due_times: list[float] = []  # when each call should be served, ascending
        self._latest_due: dict[int, float] = {}  # by tag, from the current one on: of the calls seen there
        self._arrivals = 0
        self._now = 0  # virtual time
        self.rows = 0
        self.tokens = 0
        self.cost = 0  # of the waiting rows
        self.whole = 0  # cost of the waiting calls, rows that they have been given included

    @property
    def calls(self) -> list[Call[Any]]:
        """Calls with a waiting row, in order of arrival."""
        return list(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, call: Call[Any], rows: Sequence[RowT]) -> None:
        """Queue rows of a call that has just arrived."""
        due = _due(call.deadline, call.arrived)
        joins = due < self._latest_due.get(self._now, -math.inf)
        times = [self._time(row) for row in rows]
        turn = 1 if call.streams else self._turn
        total = sum(times)  # a call that ends inside a turn does not wait for the turn's end
        start = self._now - (min(_rounded(times[0], turn), total) if joins else 0)
        for row, taken in zip(rows, accumulate(times), strict=True):
            self._arrivals += 1
            row.order, row.waiting = (start + min(_rounded(taken, turn), total), due, self._arrivals), True
            self.tokens += row.size
        cost = sum(map(self._cost, rows))
        entry = self._entries[call] = _Entry(call, rows, cost, due)
        self.rows += len(rows)
        self.cost += cost
        self.whole += cost
        insort(self._due_times, due)
        heapq.heappush(self._heap, (rows[0].order, entry))
        self._note(rows[0])

    def peek(self) -> RowT | None:
        """Return the row whose turn it is."""
        while self._heap:
            order, entry = self._heap[0]
            head = entry.head()
            if head is None:
                heapq.heappop(self._heap)
            elif head.order == order:
                return head
            else:
                heapq.heapreplace(self._heap, (head.order, entry))
                self._note(head)
        return None

    def advance(self, row: RowT) -> None:
        """Move virtual time on to a row whose turn it is."""
        if row.order[0] != self._now:
            self._latest_due.pop(self._now, None)
            self._now = row.order[0]

    def remove(self, row: RowT) -> None:
        """Take a row out, in turn or not."""
        row.waiting = False
        self.rows -= 1
        self.tokens -= row.size
        self.cost -= self._cost(row)
        entry = self._entries[row.call]
        entry.left -= 1
        if not entry.left:
            del self._entries[row.call]
            del self._due_times[bisect_left(self._due_times, entry.due)]
            self.whole -= entry.cost

    def drop(self, call: Call[Any]) -> list[RowT]:
        """Take out all rows of a call and return them."""
        rows = [row for row in self._entries[call].rows if row.waiting]
        for row in rows:
            self.remove(row)
        return rows

    def compact(self) -> None:
        """Free what removed calls left behind."""
        self._heap = [pair for pair in self._heap if pair[1].left]
        heapq.heapify(self._heap)
        self._latest_due = {tag: due for tag, due in self._latest_due.items() if tag >= self._now}

    def ahead(self, cost: int, last: int, deadline: float | None, now: float) -> int:
        """Cost of other calls' rows that would be served before a call's last row, if it joined now.

        `cost` is that of all its rows, `last` that of the last one. No call is served for more than its rows before the last
        cost, and while the last one waits only the more urgent ones are.
        Where calls keep coming, they take the place of those that end meanwhile: their cost is counted as it was at first.
        """
        urgent = bisect_right(self._due_times, _due(deadline, now))
        return min(self.whole, (cost - last) * len(self._due_times) + last * urgent)

    def _time(self, row: RowT) -> int:
        """Return the virtual time that a row takes."""
        return _rounded(self._cost(row), self._unit)

    def _note(self, head: RowT) -> None:
        tag, due, _ = head.order
        self._latest_due[tag] = max(due, self._latest_due.get(tag, due))


def _rounded(number: int, unit: int) -> int:
    """Round up to a multiple."""
    return -(-number // unit) * unit


def _due(deadline: float | None, arrived: float) -> float:
    """Return the clock seconds by which a call should be served."""
    latest = arrived + PATIENCE_SECONDS
    return latest if deadline is None else min(deadline, latest)
