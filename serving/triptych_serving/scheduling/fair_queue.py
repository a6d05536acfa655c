"""Calls that wait, and whose row is next: turn by turn, within a turn by deadline. No threads, no clock."""

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from triptych_serving.scheduling.request import Call, Row

PATIENCE_SECONDS = 30.0  # whoever has a later deadline, or none, is served as if it were then: nobody is passed for ever

Waiting = tuple[int, float, int, Call[Row], deque[Row]]  # turn, deadline, arrival, and what the order is for


class FairQueue:
    """In every turn each call gives one row, the most urgent call first.

    So a call of 2,000 rows delays a call of one row by one turn. A new call joins the turn that is being served if somebody in
    it is less urgent, else the next one: calls that keep coming would make the turn endless for those who have had theirs.
    """

    def __init__(self) -> None:
        self._heap: list[Waiting] = []
        self._deadlines: list[float] = []  # of all that wait, ascending
        self._latest: dict[int, float] = {}  # deadline in the turn that is being served, and in those after it
        self._arrivals = 0
        self._turn = 0
        self.rows = 0
        self.tokens = 0
        self._whole = 0  # rows that those who wait came with

    def add(self, call: Call[Row], rows: Sequence[Row]) -> None:
        """Rows of a new call, which has arrived."""
        deadline = _urgency(call.deadline, call.arrived)
        turn = self._turn + (deadline >= self._latest.get(self._turn, -math.inf))
        self._arrivals += 1
        heapq.heappush(self._heap, (turn, deadline, self._arrivals, call, deque(rows)))
        self._whole += len(call.rows)
        insort(self._deadlines, deadline)
        self._note(turn, deadline)
        self._count(rows, 1)

    def ahead(self, rows: int, deadline: float | None, now: float) -> float:
        """Tokens of others, about, that would be taken before the last row of a call with so many, if it joined now."""
        if not self._heap:
            return 0.0
        others, urgent = len(self._deadlines), bisect_right(self._deadlines, _urgency(deadline, now))
        # Nobody is before it for more than one row in each of its turns, and in the last turn the more urgent calls alone.
        # Where calls keep coming, the next ones take the place of those that end meanwhile: so much as these had at first.
        share = min(self._whole, (rows - 1) * others + urgent)
        return share * self.tokens / self.rows

    def peek(self) -> tuple[Call[Row], Row] | None:
        """Whose turn it is, and the row that it would give."""
        return (self._heap[0][3], self._heap[0][4][0]) if self._heap else None

    def take(self) -> tuple[Call[Row], Row]:
        """The same, taken out; the call waits for the next turn."""
        turn, deadline, arrival, call, rows = self._heap[0]
        self._begin(turn)
        row = rows.popleft()
        self._count((row,), -1)
        if rows:
            heapq.heapreplace(self._heap, (turn + 1, deadline, arrival, call, rows))
            self._note(turn + 1, deadline)
        else:
            heapq.heappop(self._heap)
            self._forget(call, deadline)
        return call, row

    def calls(self) -> Iterator[Call[Row]]:
        """All that wait."""
        return (waiting[3] for waiting in self._heap)

    def remove_over(self) -> list[tuple[Call[Row], Sequence[Row]]]:
        """Drop the calls that are over; returns them with their rows."""
        gone = [waiting for waiting in self._heap if waiting[3].over]
        if gone:
            self._heap = [waiting for waiting in self._heap if not waiting[3].over]
            heapq.heapify(self._heap)
            for _, deadline, _, call, rows in gone:
                self._count(rows, -1)
                self._forget(call, deadline)
        return [(call, tuple(rows)) for _, _, _, call, rows in gone]

    def clear(self) -> list[Call[Row]]:
        """Drop all calls and return them."""
        calls = [waiting[3] for waiting in self._heap]
        self._heap.clear()
        self._deadlines.clear()
        self.rows = self.tokens = self._whole = 0
        return calls

    def _begin(self, turn: int) -> None:
        while self._turn < turn:
            self._latest.pop(self._turn, None)
            self._turn += 1

    def _note(self, turn: int, deadline: float) -> None:
        self._latest[turn] = max(deadline, self._latest.get(turn, deadline))

    def _count(self, rows: Iterable[Row], sign: int) -> None:
        for row in rows:
            self.rows += sign
            self.tokens += sign * row.size

    def _forget(self, call: Call[Row], deadline: float) -> None:
        self._whole -= len(call.rows)
        del self._deadlines[bisect_left(self._deadlines, deadline)]


def _urgency(deadline: float | None, arrived: float) -> float:
    """Clock seconds when a call is to be served."""
    latest = arrived + PATIENCE_SECONDS
    return latest if deadline is None else min(deadline, latest)
