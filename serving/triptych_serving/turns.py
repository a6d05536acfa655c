"""Calls that wait, and whose row is next: turn by turn, within a turn by deadline. No threads, no clock."""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator

from triptych_serving.row import Call, Row

Waiting = tuple[int, float, int, Call[Row], deque[Row]]  # turn, deadline, arrival, and what the order is for


class Turns:
    """In every turn each call gives one row, the most urgent call first.

    So a call of 2,000 rows delays a call of one row by one turn.
    """

    def __init__(self) -> None:
        self._heap: list[Waiting] = []
        self._arrivals = 0
        self._turn = 0
        self.rows = 0

    def add(self, call: Call[Row], rows: Iterable[Row]) -> None:
        """Rows of a new call join the turn that is being served."""
        deadline = math.inf if call.deadline is None else call.deadline
        self._arrivals += 1
        queue = deque(rows)
        heapq.heappush(self._heap, (self._turn, deadline, self._arrivals, call, queue))
        self.rows += len(queue)

    def peek(self) -> tuple[Call[Row], Row] | None:
        """Whose turn it is, and the row that it would give."""
        return (self._heap[0][3], self._heap[0][4][0]) if self._heap else None

    def take(self) -> tuple[Call[Row], Row]:
        """The same, taken out; the call waits for the next turn."""
        turn, deadline, arrival, call, rows = self._heap[0]
        self._turn = turn
        row = rows.popleft()
        self.rows -= 1
        if rows:
            heapq.heapreplace(self._heap, (turn + 1, deadline, arrival, call, rows))
        else:
            heapq.heappop(self._heap)
        return call, row

    def calls(self) -> Iterator[Call[Row]]:
        """All that wait."""
        return (waiting[3] for waiting in self._heap)

    def remove_over(self) -> list[Row]:
        """Drop the calls that are over; returns their rows."""
        gone = [row for waiting in self._heap if waiting[3].over for row in waiting[4]]
        if gone:
            self._heap = [waiting for waiting in self._heap if not waiting[3].over]
            heapq.heapify(self._heap)
            self.rows -= len(gone)
        return gone

    def clear(self) -> list[Call[Row]]:
        """Drop all calls and return them."""
        calls = [waiting[3] for waiting in self._heap]
        self._heap.clear()
        self.rows = 0
        return calls
