"""Work that was done already: answers are kept for requests that come again, and equal requests in flight share one answer.

    repeats = Repeats(RepeatOptions(cache_bytes=64 << 20, deduplicate=True))
    answer = await repeats.answer(repeats.key(model, "Translate", content), deadline, compute)

Used in one event loop alone. Answers are bytes, so that what they take can be counted. They never go stale, the key being that
of the very model that gave them: there is no time to live.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from hashlib import sha256
from itertools import count
from weakref import WeakKeyDictionary

from triptych_serving.models.model import Model
from triptych_serving.response_cache.cache import AnswerCache, CacheCounters, Key, Shelf
from triptych_serving.response_cache.flight import Flight

__all__ = ["Answer", "Key", "RepeatOptions", "Repeats", "Source"]

Compute = Callable[[], Awaitable[bytes]]


@dataclass(frozen=True)
class RepeatOptions:
    """What is done about requests that come more than once: nothing, unless it is asked for.

    Raises:
        ValueError: `cache_bytes` is negative.
    """

    cache_bytes: int = 0  # of answers, keys and bookkeeping; 0: no answer is kept
    deduplicate: bool = False  # equal requests in flight are computed once

    def __post_init__(self) -> None:
        if self.cache_bytes < 0:
            raise ValueError(f"cache_bytes is {self.cache_bytes}, it must be at least 0")


class Source(Enum):
    """Where an answer comes from."""

    COMPUTED = "computed"
    CACHE = "cache"
    SHARED = "shared"  # an equal request's work


@dataclass(frozen=True, slots=True)
class Answer:
    """What was asked for."""

    value: bytes
    source: Source


class Repeats:
    """The answers that are kept, and the requests whose answers are on their way.

    Args:
        options: see RepeatOptions.
    """

    def __init__(self, options: RepeatOptions) -> None:
        self.options = options
        self.counters = CacheCounters()
        self._cache = AnswerCache(options.cache_bytes, self.counters)
        self._flights: dict[bytes, Flight] = {}
        self._shelves: WeakKeyDictionary[Model, Shelf] = WeakKeyDictionary()  # answers alone keep no model in memory
        self._numbers = count()

    @property
    def is_on(self) -> bool:
        """Whether it does anything."""
        return bool(self.options.cache_bytes) or self.options.deduplicate

    def key(self, model: Model, method: str, content: bytes) -> Key:
        """What makes two requests equal.

        The loaded model stands for its name, version and precision. Loaded anew, it is another one.

        Args:
            model: the one that is to answer.
            method: the RPC.
            content: the request, without the fields that name the model.
        """
        shelf = self._shelves.get(model)
        if shelf is None:
            shelf = self._shelves[model] = Shelf(next(self._numbers))
        digest = sha256(b"%d %s\0" % (shelf.number, method.encode()))
        digest.update(content)  # kept as a digest: all keys are small, and none holds anybody's text
        return Key(digest.digest(), shelf)

    async def answer(self, key: Key, deadline: float | None, compute: Compute) -> Answer:
        """The answer that is kept, else that of an equal request which is being computed, else `compute()`.

        Who waits for another's work keeps its own deadline, and may be cancelled without harm to the others. Where the one who
        computes is cancelled, expires or fails, one of those who wait computes instead; but the error of a request that is
        wrong in itself goes to all of them.

        Args:
            key: of the request.
            deadline: the caller's, clock seconds.
            compute: does the work, which must stop where it is cancelled.

        Raises:
            DeadlineError: the deadline passed while another's work was waited for.
            ServingError: what `compute` raised; it is not kept.
        """
        if (value := self._cache.get(key)) is not None:
            self.counters.hits += 1
            return Answer(value, Source.CACHE)
        if not self.options.deduplicate:
            return Answer(await self._compute(key, compute), Source.COMPUTED)
        flight = self._flights.get(key.digest)
        if flight is None:
            flight = self._flights[key.digest] = Flight(partial(self._flights.pop, key.digest))
        elif (value := await flight.follow(deadline)) is not None:
            self.counters.shared += 1
            return Answer(value, Source.SHARED)
        with flight.lead() as land:
            land(value := await self._compute(key, compute))
        return Answer(value, Source.COMPUTED)

    def retain(self, models: Iterable[Model]) -> None:
        """Drop the answers of all models but these, which are all that are loaded."""
        here = set(models)
        for model, shelf in list(self._shelves.items()):
            if model not in here:
                self._cache.close(shelf)

    async def _compute(self, key: Key, compute: Compute) -> bytes:
        self.counters.misses += 1
        value = await compute()
        self._cache.put(key, value)
        return value
