"""Answers that are kept in memory: the longest unused give way to new ones."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from hashlib import sha256
from itertools import count
from weakref import WeakKeyDictionary

from triptych_serving.models.model import Model
from triptych_serving.response_cache.single_flight import SingleFlight

ENTRY_BYTES = 400  # what an entry takes beside its value, the key included: 300 to 330 were measured, and malloc rounds up


@dataclass(slots=True)
class CacheCounters:
    """Since the start, but `entries` and `bytes`, which are what is kept now."""

    hits: int = 0
    misses: int = 0  # requests that were computed
    shared: int = 0  # answered with an equal request's work
    evictions: int = 0  # answers that gave way to newer ones
    purged: int = 0  # answers that went with their model
    entries: int = 0
    bytes: int = 0


@dataclass(eq=False, slots=True)
class ModelEntries:
    """One model's part of the cache."""

    number: int
    keys: set[bytes] = field(default_factory=set)
    closed: bool = False  # the model is gone: nothing more is kept


@dataclass(frozen=True, slots=True)
class CacheKey:
    """One request to one model; equal digests are equal requests."""

    digest: bytes
    shelf: ModelEntries


class LruCache:
    """Bounded by bytes.

    Args:
        max_bytes: of values, keys and bookkeeping; 0: nothing is kept.
        counters: are kept up to date.
    """

    def __init__(self, max_bytes: int, counters: CacheCounters) -> None:
        self._max_bytes = max_bytes
        self._counters = counters
        self._entries: OrderedDict[bytes, tuple[bytes, ModelEntries]] = OrderedDict()  # the longest unused first

    def get(self, key: CacheKey) -> bytes | None:
        """The answer, which counts as used now."""
        entry = self._entries.get(key.digest)
        if entry is None:
            return None
        self._entries.move_to_end(key.digest)
        return entry[0]

    def put(self, key: CacheKey, value: bytes) -> None:
        """Keep an answer, unless it is larger than the whole cache or its model is gone."""
        if key.shelf.closed or len(value) + ENTRY_BYTES > self._max_bytes:
            return
        if key.digest in self._entries:  # computed twice at once
            self._remove(key.digest)
        self._entries[key.digest] = value, key.shelf
        key.shelf.keys.add(key.digest)
        self._counters.entries += 1
        self._counters.bytes += len(value) + ENTRY_BYTES
        while self._counters.bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))
            self._counters.evictions += 1

    def close(self, shelf: ModelEntries) -> None:
        """Drop a model's answers, and keep no more of them."""
        shelf.closed = True
        self._counters.purged += len(shelf.keys)
        for digest in list(shelf.keys):
            self._remove(digest)

    def _remove(self, digest: bytes) -> None:
        value, shelf = self._entries.pop(digest)
        shelf.keys.discard(digest)
        self._counters.entries -= 1
        self._counters.bytes -= len(value) + ENTRY_BYTES


__all__ = ["CacheKey", "CachedResponse", "ResponseCache", "ResponseCacheOptions", "ResponseSource"]

Compute = Callable[[], Awaitable[bytes]]


@dataclass(frozen=True)
class ResponseCacheOptions:
    """What is done about requests that come more than once: nothing, unless it is asked for.

    Raises:
        ValueError: `cache_bytes` is negative.
    """

    cache_bytes: int = 0  # of answers, keys and bookkeeping; 0: no answer is kept
    deduplicate: bool = False  # equal requests in flight are computed once

    def __post_init__(self) -> None:
        if self.cache_bytes < 0:
            raise ValueError(f"cache_bytes is {self.cache_bytes}, it must be at least 0")


class ResponseSource(Enum):
    """Where an answer comes from."""

    COMPUTED = "computed"
    CACHE = "cache"
    SHARED = "shared"  # an equal request's work


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """What was asked for."""

    value: bytes
    source: ResponseSource


class ResponseCache:
    """The answers that are kept, and the requests whose answers are on their way.

    Args:
        options: see ResponseCacheOptions.
    """

    def __init__(self, options: ResponseCacheOptions) -> None:
        self.options = options
        self.counters = CacheCounters()
        self._cache = LruCache(options.cache_bytes, self.counters)
        self._flights: dict[bytes, SingleFlight] = {}
        self._shelves: WeakKeyDictionary[Model, ModelEntries] = WeakKeyDictionary()  # answers alone keep no model in memory
        self._numbers = count()

    @property
    def is_on(self) -> bool:
        """Whether it does anything."""
        return bool(self.options.cache_bytes) or self.options.deduplicate

    def key(self, model: Model, method: str, content: bytes) -> CacheKey:
        """What makes two requests equal.

        The loaded model stands for its name, version and precision. Loaded anew, it is another one.

        Args:
            model: the one that is to answer.
            method: the RPC.
            content: the request, without the fields that name the model.
        """
        shelf = self._shelves.get(model)
        if shelf is None:
            shelf = self._shelves[model] = ModelEntries(next(self._numbers))
        digest = sha256(b"%d %s\0" % (shelf.number, method.encode()))
        digest.update(content)  # kept as a digest: all keys are small, and none holds anybody's text
        return CacheKey(digest.digest(), shelf)

    async def answer(self, key: CacheKey, deadline: float | None, compute: Compute) -> CachedResponse:
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
            return CachedResponse(value, ResponseSource.CACHE)
        if not self.options.deduplicate:
            return CachedResponse(await self._compute(key, compute), ResponseSource.COMPUTED)
        flight = self._flights.get(key.digest)
        if flight is None:
            flight = self._flights[key.digest] = SingleFlight(partial(self._flights.pop, key.digest))
        elif (value := await flight.follow(deadline)) is not None:
            self.counters.shared += 1
            return CachedResponse(value, ResponseSource.SHARED)
        with flight.lead() as land:
            land(value := await self._compute(key, compute))
        return CachedResponse(value, ResponseSource.COMPUTED)

    def retain(self, models: Iterable[Model]) -> None:
        """Drop the answers of all models but these, which are all that are loaded."""
        here = set(models)
        for model, shelf in list(self._shelves.items()):
            if model not in here:
                self._cache.close(shelf)

    async def _compute(self, key: CacheKey, compute: Compute) -> bytes:
        self.counters.misses += 1
        value = await compute()
        self._cache.put(key, value)
        return value
