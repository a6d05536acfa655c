"""Which items run together, once: fair order, padding, admission. No runtime, no threads, no clock.

Calls share the engine by self-clocked fair queueing (Golestani 1994): every item is tagged with the virtual time at which a
fair share of the engine would have finished it, and the item with the lowest tag is in the next batch. A lone text so passes a
call of 1,000, and as every batch moves the virtual time on, nobody waits for ever. The rest of the batch is chosen by size
around that item, because padding is work for nothing. Callers hold a lock around every method.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

from triptych_serving.scheduling.admission import SWEEP_SECONDS, Admission, Counters, Demand, QueueLimits
from triptych_serving.scheduling.request import Call, Item
from triptych_serving.scheduling.wait_estimator import ExpectedCall, Forecast, WaitEstimator

NOBODY = ExpectedCall()
STALE_TICKETS = 64  # so many dropped ones may lie between the others before somebody cleans up


@dataclass(frozen=True)
class BatchLimits(QueueLimits):
    """Bounds of the queue and of one batch. Padded tokens are the rows times the longest of them."""

    batch_tokens: int = 1_024  # padded; a single longer item runs by itself
    batch_rows: int = 64
    # Rows of BERT-base run alone at the speed of any batch: on a CPU padding is dear (12 % at a share of 1/8), batching cheap.
    saturating_tokens: int = 64  # padded; a smaller batch takes about as long, so up to here padding is free
    padding: float = 1 / 32  # share of a larger batch's padded tokens that may be padding


class Ticket:
    """An item in the queue, or in a batch."""

    __slots__ = ("call", "item", "number", "tag", "waiting")

    def __init__(self, item: Item, call: Call[Item], tag: int, number: int) -> None:
        self.item = item
        self.call = call
        self.tag = tag  # virtual time, in tokens
        self.number = number  # decides between equal tags
        self.waiting = True


class BatchScheduler:
    """The queue of one engine."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._admission = Admission(limits)
        self._pace = WaitEstimator()
        self._turns: list[tuple[int, int, _Turn]] = []  # heap; a turn's key is never above its head's
        self._shelves: dict[int, list[tuple[int, int, Ticket]]] = {}  # a heap for every size that waits
        self._sizes: list[int] = []  # of the shelves, ascending
        self._retries: deque[Ticket] = deque()
        self._virtual_time = 0
        self._number = 0
        self._stale = 0  # tickets on the shelves that nobody waits for
        self._next_sweep = 0.0

    @property
    def counters(self) -> Counters:
        """How calls ended."""
        return self._admission.counters

    @property
    def waiting(self) -> int:
        """Items in the queue, those to be tried again included."""
        return self._admission.rows + len(self._retries)

    def ready(self, idle: bool) -> bool:
        """Whether to plan a batch now.

        An idle engine takes what there is. While it is busy, a small batch is better left open: what arrives until the
        engine is free can still join it.
        """
        if self._retries:
            return True
        rows, tokens, limits = self._admission.rows, self._admission.tokens, self._limits
        return rows > 0 and (idle or rows >= limits.batch_rows or tokens >= limits.saturating_tokens)

    def submit(self, call: Call[Item], now: float) -> None:
        """Queue all items of a call, or none.

        Raises:
            UnavailableError: the engine is shutting down.
            InvalidInputError: the call alone is larger than the queue.
            OverloadedError: the queue is full, or the call would wait too long.
            DeadlineError: the call's deadline has passed already.
        """
        self._admission.admit(call, now, lambda: self._forecast(call.tokens, call.rows[-1].size))
        tag, tickets = self._virtual_time, []
        for item in call.rows:
            tag += item.size
            self._number += 1
            ticket = Ticket(item, call, tag, self._number)
            tickets.append(ticket)
            self._shelve(ticket)
        heappush(self._turns, (tickets[0].tag, tickets[0].number, _Turn(call, tickets)))

    def check(self, expected: ExpectedCall, deadline: float | None, now: float) -> None:
        """Refuse a call before the work of making its items, if it is expected to be refused.

        Args:
            expected: its items.
            deadline: clock seconds.
            now: clock seconds.

        Raises:
            ServingError: as `submit`.
        """
        own = expected.tokens or (self._sizes[0] if self._sizes else 1)
        demand = Demand(expected.rows, 0, deadline)
        self._admission.check(demand, now, lambda: self._forecast(own, own // expected.rows, expected))

    def cancel(self, call: Call[Item], now: float) -> None:
        """Its caller went away."""
        self._admission.cancel(call, now)

    def finish(self, call: Call[Item], now: float) -> None:
        """All of its items have their results."""
        self._admission.finish(call, now)

    def served(self, seconds: float) -> None:
        """A batch has its results, so long after it was planned."""
        self._pace.serve(seconds)

    def forecast(self, tokens: int) -> Forecast | None:
        """For an item that joins after so many tokens that are on their way to the queue; None: too little is known."""
        return self._pace.forecast(self._admission.tokens + tokens)

    def is_dead(self, call: Call[Item], now: float) -> bool:
        """Nobody waits for its result any more; a call whose deadline has passed fails here."""
        return self._admission.is_dead(call, now)

    def retry(self, tickets: Iterable[Ticket]) -> None:
        """Queue items whose batch failed, each to run by itself, before everything else."""
        for ticket in tickets:
            ticket.item.alone = True
            ticket.item.result = None
            self._retries.append(ticket)

    def close(self) -> None:
        """Refuse what comes from now on; what waits is still served."""
        self._admission.close()

    def drain(self) -> list[Call[Item]]:
        """Empty the queue; returns the calls that were in it."""
        turns = [turn for _, _, turn in sorted(self._turns, key=lambda entry: entry[:2]) if turn.head()]
        calls = dict.fromkeys([turn.call for turn in turns] + [ticket.call for ticket in self._retries])
        self._turns.clear()
        self._shelves.clear()
        self._sizes.clear()
        self._retries.clear()
        self._stale = 0
        self._admission.reset()
        return list(calls)

    def plan(self, idle_runs: int, now: float) -> tuple[Ticket, ...]:
        """Take the next batch out of the queue; empty if nobody waits.

        Args:
            idle_runs: batches that could start now, this one included; a short queue is shared among them.
            now: clock seconds.
        """
        self._sweep(now)
        while self._retries:
            retried = self._retries.popleft()
            if not self.is_dead(retried.call, now):
                return (retried,)
        first = self._first(now)
        if first is None:
            self._pace.pause()
            return ()
        self._virtual_time = first.tag
        share = math.ceil(self._admission.tokens / max(1, idle_runs))
        batch = self._gather(first, _Window(self._limits, share, first.item.size), now)
        self._pace.take(sum(ticket.item.size for ticket in batch), now, left=self._admission.rows > 0)
        self._clean()
        return tuple(batch)

    def _first(self, now: float) -> Ticket | None:
        """The item with the lowest tag."""
        while self._turns:
            tag, number, turn = self._turns[0]
            head = turn.head()
            if head is None:
                heappop(self._turns)
            elif self.is_dead(turn.call, now):
                heappop(self._turns)
                self._drop(turn)
            elif (head.tag, head.number) != (tag, number):
                heapreplace(self._turns, (head.tag, head.number, turn))
            else:
                return head
        return None

    def _gather(self, first: Ticket, window: "_Window", now: float) -> list[Ticket]:
        """`first` and what goes well with it: a window of the queue sorted by size."""
        ticket = self._unshelve(first.item.size)
        while ticket is not first:  # only dropped ones lie before it
            ticket = self._unshelve(first.item.size)
        self._take(first)
        batch = [first]
        while (size := self._neighbour(window)) is not None:
            ticket = self._unshelve(size)
            if not ticket.waiting:
                continue
            self._take(ticket)
            if self.is_dead(ticket.call, now):
                self.counters.freed += 1
            else:
                batch.append(ticket)
                window.add(size)
        return batch

    def _neighbour(self, window: "_Window") -> int | None:
        """The next size beside the window, below or above, that wastes least and still fits."""
        above = bisect_right(self._sizes, window.longest)
        sizes = self._sizes[max(0, above - 1) : above + 1]
        return min(filter(window.fits, sizes), key=window.waste, default=None)

    def _shelve(self, ticket: Ticket) -> None:
        shelf = self._shelves.get(ticket.item.size)
        if shelf is None:
            shelf = self._shelves[ticket.item.size] = []
            insort(self._sizes, ticket.item.size)
        heappush(shelf, (ticket.tag, ticket.number, ticket))

    def _unshelve(self, size: int) -> Ticket:
        """The ticket of this size with the lowest tag."""
        shelf = self._shelves[size]
        ticket = heappop(shelf)[2]
        if not shelf:
            del self._shelves[size]
            del self._sizes[bisect_left(self._sizes, size)]
        if not ticket.waiting:
            self._stale -= 1
        return ticket

    def _take(self, ticket: Ticket) -> None:
        ticket.waiting = False
        self._admission.release(ticket.call, ticket.item)

    def _drop(self, turn: "_Turn") -> None:
        """Nobody waits for this call any more; its tickets stay on the shelves until somebody passes by."""
        for ticket in turn.rest():
            self._take(ticket)
            self._stale += 1
            self.counters.freed += 1

    def _sweep(self, now: float) -> None:
        """Now and then, drop what nobody waits for any more, so that it does not fill the queue."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_SECONDS
        dead = [turn for _, _, turn in self._turns if self.is_dead(turn.call, now)]
        for turn in dead:
            self._drop(turn)
        self._turns = [entry for entry in self._turns if entry[2].head() is not None]
        heapify(self._turns)
        self._retries = deque(ticket for ticket in self._retries if not self.is_dead(ticket.call, now))
        self._clean()

    def _forecast(self, own: int, last: int, expected: ExpectedCall = NOBODY) -> Forecast | None:
        """For a call of `own` tokens that would join now: of each other call about as many go before its last item.

        Where calls keep coming, the next ones take the place of those that end meanwhile: so much as these had at first.
        """
        admission = self._admission
        if not admission.rows:
            return None
        others = min(admission.whole + expected.tokens_ahead, own * (admission.calls + expected.calls_ahead))
        return self._pace.forecast(others + own - last)

    def _clean(self) -> None:
        """Throw dropped tickets away once they are more than those that wait."""
        if self._stale <= self._admission.rows + STALE_TICKETS:
            return
        tickets = [entry[2] for shelf in self._shelves.values() for entry in shelf if entry[2].waiting]
        self._shelves.clear()
        self._sizes.clear()
        self._stale = 0
        for ticket in tickets:
            self._shelve(ticket)


class _Window:
    """Neighbours in size that will run together."""

    __slots__ = ("_limits", "_rows", "_share", "_tokens", "longest")

    def __init__(self, limits: BatchLimits, share: int, size: int) -> None:
        self._limits = limits
        self._share = share  # tokens that others do not need to keep busy
        self._rows = 1
        self._tokens = self.longest = size

    def add(self, size: int) -> None:
        """One item more."""
        self._rows += 1
        self._tokens += size
        self.longest = max(self.longest, size)

    def waste(self, size: int) -> int:
        """Padding that another item brings with it."""
        return self.longest - size if size <= self.longest else (size - self.longest) * self._rows

    def fits(self, size: int) -> bool:
        """Whether another item may join."""
        limits = self._limits
        padded, tokens = (self._rows + 1) * max(self.longest, size), self._tokens + size
        if self._rows >= limits.batch_rows or padded > limits.batch_tokens or tokens > self._share:
            return False
        return padded <= limits.saturating_tokens or padded - tokens < limits.padding * padded


class _Turn:
    """What is left of a call, in the order of its tags."""

    __slots__ = ("_next", "_tickets", "call")

    def __init__(self, call: Call[Item], tickets: list[Ticket]) -> None:
        self.call = call
        self._tickets = tickets
        self._next = 0

    def head(self) -> Ticket | None:
        """The first ticket that waits."""
        while self._next < len(self._tickets):
            ticket = self._tickets[self._next]
            if ticket.waiting:
                return ticket
            self._next += 1
        self._tickets, self._next = [], 0
        return None

    def rest(self) -> list[Ticket]:
        """All tickets that wait."""
        return [ticket for ticket in self._tickets[self._next :] if ticket.waiting]
