"""One-shot batching: which items run together through a graph that runs once. No runtime, no threads, no clock.

The item whose turn it is always runs next. The rest of its batch is chosen by size around it, because padding is wasted work.
"""

import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from heapq import heappop, heappush

from triptych_serving.scheduling.admission import CallQueue, QueueLimits
from triptych_serving.scheduling.fair_queue import FairQueue
from triptych_serving.scheduling.request import Call, Item
from triptych_serving.scheduling.wait_estimator import ExpectedCall, Forecast

LANE = "batch"  # all items share one lane
# Items of up to so many tokens have turns of equal length. With turns as long as the items, short texts passed longer ones so
# often that the 99th percentile of 64 requests in flight was 2.2 times the median, instead of 1.8.
TURN_TOKENS = 64
STALE_ITEMS = 64  # dropped items that may lie in the index by size before it is rebuilt


@dataclass(frozen=True)
class BatchLimits(QueueLimits):
    """Bounds of the queue and of one batch. Padded tokens are the rows times the longest of them."""

    batch_tokens: int = 1_024  # padded; a single longer item runs by itself
    batch_rows: int = 64
    # On a CPU, rows of BERT-base are as fast alone as in a batch, and padding costs time: 12 % at a share of 1/8.
    saturating_tokens: int = 64  # padded; a smaller batch takes about as long, so up to here padding is free
    padding: float = 1 / 32  # share of a larger batch's padded tokens that may be padding


class BatchScheduler(CallQueue[Item]):
    """The queue of a one-shot engine."""

    def __init__(self, limits: BatchLimits) -> None:
        turn = max(TURN_TOKENS, limits.saturating_tokens)
        super().__init__(limits, [LANE], lambda item: item.size, TURN_TOKENS, turn)
        self._limits = limits
        self._queue, self._estimator = self._queues[LANE], self._estimators[LANE]
        self._by_size: dict[int, list[tuple[tuple[int, float, int], Item]]] = {}  # for every waiting size, a heap
        self._sizes: list[int] = []  # ascending
        self._stale = 0  # items in `_by_size` that do not wait any more

    def ready(self, idle: bool) -> bool:
        """Tell whether to plan a batch now.

        An idle engine takes what there is. While it is busy a small batch is better left open: more items can still join it.
        """
        if self._retries[LANE]:
            return True
        queue, limits = self._queue, self._limits
        return queue.rows > 0 and (idle or queue.rows >= limits.batch_rows or queue.tokens >= limits.saturating_tokens)

    def submit(self, call: Call[Item], now: float) -> None:
        super().submit(call, now)
        for item in call.rows:
            self._index(item)

    def served(self, seconds: float) -> None:
        """Learn from a batch that has its results, `seconds` after it was planned."""
        self._estimator.record_served(seconds)

    def forecast(self, tokens: int) -> Forecast | None:
        """Forecast for an item that joins after so many tokens that are on their way to the queue."""
        return self._estimator.forecast(self.tokens + tokens)

    def plan(self, idle_runs: int, now: float) -> tuple[Item, ...]:
        """Take the next batch out of the queue; empty if nothing waits.

        Args:
            idle_runs: batches that could start now, this one included; they share a short queue.
            now: clock seconds.
        """
        self._sweep(now)
        if self._first_retry(LANE, now) is not None:
            return (self._retries[LANE].popleft(),)
        first = self._first(self._queue, now)
        if first is None:
            self._estimator.record_empty()
            return ()
        self._queue.advance(first)
        share = math.ceil(self.tokens / max(1, idle_runs))
        batch = self._gather(first, _Window(self._limits, share, first.size), now)
        self._estimator.record_taken(sum(item.size for item in batch), now, left=self._queue.rows > 0)
        self._clean()
        return tuple(batch)

    def _gather(self, first: Item, window: "_Window", now: float) -> list[Item]:
        """Return `first` and its neighbours in size, as many as fit."""
        while self._pop(first.size) is not first:
            pass  # dropped items of this size
        self._take(self._queue, first)
        batch = [first]
        while (size := self._neighbour(window)) is not None:
            item = self._pop(size)
            if not item.waiting:
                continue
            self._take(self._queue, item)
            if self.expire(item.call, now):
                self.counters.freed += 1
            else:
                batch.append(item)
                window.add(size)
        return batch

    def _neighbour(self, window: "_Window") -> int | None:
        """Return the next size beside the window, below or above, that fits and wastes least."""
        above = bisect_right(self._sizes, window.longest)
        sizes = self._sizes[max(0, above - 1) : above + 1]
        return min(filter(window.fits, sizes), key=window.waste, default=None)

    def _index(self, item: Item) -> None:
        items = self._by_size.get(item.size)
        if items is None:
            items = self._by_size[item.size] = []
            insort(self._sizes, item.size)
        heappush(items, (item.order, item))

    def _pop(self, size: int) -> Item:
        """Take the first item of this size, waiting or dropped, out of the index."""
        items = self._by_size[size]
        item = heappop(items)[1]
        if not items:
            del self._by_size[size]
            del self._sizes[bisect_left(self._sizes, size)]
        self._stale -= not item.waiting
        return item

    def _drop(self, queue: FairQueue[Item], call: Call[Item]) -> list[Item]:
        items = super()._drop(queue, call)
        self._stale += len(items)  # they stay in the index until they are met or cleaned up
        return items

    def _clean(self) -> None:
        """Rebuild the index once most of it is stale."""
        if self._stale > self._queue.rows + STALE_ITEMS:
            items = [item for same in self._by_size.values() for _, item in same if item.waiting]
            self._by_size.clear()
            self._sizes.clear()
            self._stale = 0
            for item in items:
                self._index(item)

    def _sweep(self, now: float) -> None:
        super()._sweep(now)
        self._clean()

    def lane_of(self, row: Item) -> str:
        return LANE

    def _forecast(self, call: Call[Item], now: float) -> Forecast | None:
        return self._forecast_for(call.size, call.rows[-1].size, ExpectedCall())

    def _forecast_expected(self, expected: ExpectedCall, deadline: float | None, now: float) -> Forecast | None:
        own = expected.tokens or (self._sizes[0] if self._sizes else 1)
        return self._forecast_for(own, own // expected.rows, expected)

    def _forecast_for(self, own: int, last: int, expected: ExpectedCall) -> Forecast | None:
        """Forecast for a call of `own` tokens: of each other call about as many are served before its last item.

        Where calls keep coming, they take the place of those that end meanwhile: their tokens count as they were at first.
        """
        queue = self._queue
        if not queue.rows:
            return None
        others = min(queue.whole + expected.tokens_ahead, own * (len(queue) + expected.calls_ahead))
        return self._estimator.forecast(others + own - last)


class _Window:
    """Neighbours in size that will run together."""

    __slots__ = ("_limits", "_rows", "_share", "_tokens", "longest")

    def __init__(self, limits: BatchLimits, share: int, size: int) -> None:
        self._limits = limits
        self._share = share  # tokens that other runs do not need
        self._rows = 1
        self._tokens = self.longest = size

    def add(self, size: int) -> None:
        """Add an item."""
        self._rows += 1
        self._tokens += size
        self.longest = max(self.longest, size)

    def waste(self, size: int) -> int:
        """Return the padding that another item would add."""
        return self.longest - size if size <= self.longest else (size - self.longest) * self._rows

    def fits(self, size: int) -> bool:
        """Tell whether another item may join."""
        limits = self._limits
        padded, tokens = (self._rows + 1) * max(self.longest, size), self._tokens + size
        if self._rows >= limits.batch_rows or padded > limits.batch_tokens or tokens > self._share:
            return False
        return padded <= limits.saturating_tokens or padded - tokens < limits.padding * padded
