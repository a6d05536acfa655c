"""The response cache: responses kept for repeated requests, and one computation for equal requests in flight.

    cache = ResponseCache(ResponseCacheOptions(cache_bytes=64 << 20, deduplicate=True))
    packed = await cache.respond(cache.key(model, "Translate", content), deadline, compute)

Used in one event loop alone. Responses are bytes, so that their memory can be counted. They never expire: the key belongs to
the very model that computed them, so there is no time to live.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import count
from weakref import WeakKeyDictionary

from triptych_serving.models.model import Model
from triptych_serving.response_cache.single_flight import SingleFlight

ENTRY_BYTES = 400  # of an entry besides its value, including the key: 300 to 330 were measured, and malloc rounds up

Compute = Callable[[], Awaitable[bytes]]


@dataclass(frozen=True)
class ResponseCacheOptions:
    """Treatment of repeated requests; both parts are off by default. Raises ValueError: `cache_bytes` is negative."""

    cache_bytes: int = 0  # of responses, keys and bookkeeping; 0: no response is kept
    deduplicate: bool = False  # compute equal requests in flight once

    def __post_init__(self) -> None:
        if self.cache_bytes < 0:
            raise ValueError(f"cache_bytes is {self.cache_bytes}, it must be at least 0")


@dataclass(slots=True)
class CacheCounters:
    """Counters since the start; `entries` and `bytes` are current values."""

    hits: int = 0
    misses: int = 0  # requests that were computed
    shared: int = 0  # requests served by the computation of an equal one
    evictions: int = 0  # responses displaced by newer ones
    purged: int = 0  # responses dropped with their model
    entries: int = 0
    bytes: int = 0


@dataclass(eq=False, slots=True)
class ModelEntries:
    """The entries of one model."""

    number: int
    keys: set[bytes] = field(default_factory=set)
    closed: bool = False  # the model is unloaded: nothing more is kept


@dataclass(frozen=True, slots=True)
class CacheKey:
    """One request to one model; equal digests mean equal requests."""

    digest: bytes
    entries: ModelEntries


class ResponseCache:
    """The kept responses, of which the least recently used are displaced, and the computations in flight."""

    def __init__(self, options: ResponseCacheOptions) -> None:
        self.options = options
        self.counters = CacheCounters()
        self._entries: OrderedDict[bytes, tuple[bytes, ModelEntries]] = OrderedDict()  # the least recently used first
        self._flights: dict[bytes, SingleFlight] = {}
        self._models: WeakKeyDictionary[Model, ModelEntries] = WeakKeyDictionary()  # responses keep no model in memory
        self._numbers = count()

    @property
    def is_on(self) -> bool:
        """True if the cache or the deduplication is on."""
        return bool(self.options.cache_bytes) or self.options.deduplicate

    def key(self, model: Model, method: str, content: bytes) -> CacheKey:
        """Return the key of a request.

        The loaded model stands for its name, version and precision; loaded again, it is another model.

        Args:
            content: the request, without the fields that select the model.
        """
        entries = self._models.get(model)
        if entries is None:
            entries = self._models[model] = ModelEntries(next(self._numbers))
        digest = sha256(b"%d %s\0" % (entries.number, method.encode()))
        digest.update(content)  # kept as a digest: all keys are small, and none holds a caller's text
        return CacheKey(digest.digest(), entries)

    async def respond(self, key: CacheKey, deadline: float | None, compute: Compute) -> bytes:
        """Return the kept response, else that of an equal request in flight, else `compute()`.

        A request that waits for another's computation keeps its own deadline, and may be cancelled without harm to the others.
        If the computing request is cancelled, expires or fails, one of the waiting ones computes instead; but the error of an
        invalid request goes to all of them.

        Args:
            deadline: the caller's, clock seconds.
            compute: does the work, and must stop if it is cancelled.

        Raises:
            DeadlineError: the deadline passed while waiting for another request.
            ServingError: raised by `compute`; it is not kept.
        """
        if key.digest in self._entries:
            self._entries.move_to_end(key.digest)
            self.counters.hits += 1
            return self._entries[key.digest][0]
        if not self.options.deduplicate:
            return await self._compute(key, compute)
        flight = self._flights.get(key.digest)
        if flight is None:
            flight = self._flights[key.digest] = SingleFlight(partial(self._flights.pop, key.digest))
        elif (value := await flight.follow(deadline)) is not None:
            self.counters.shared += 1
            return value
        with flight.lead() as finish:
            finish(value := await self._compute(key, compute))
        return value

    def retain(self, models: Iterable[Model]) -> None:
        """Drop the responses of all models except these, which are all that are loaded, and keep no more of them."""
        loaded = set(models)
        for model, entries in list(self._models.items()):
            if model not in loaded:
                entries.closed = True
                self.counters.purged += len(entries.keys)
                for digest in list(entries.keys):
                    self._remove(digest)

    async def _compute(self, key: CacheKey, compute: Compute) -> bytes:
        self.counters.misses += 1
        value = await compute()
        self._keep(key, value)
        return value

    def _keep(self, key: CacheKey, value: bytes) -> None:
        """Keep a response, unless it is larger than the whole cache or its model is unloaded."""
        if key.entries.closed or len(value) + ENTRY_BYTES > self.options.cache_bytes:
            return
        if key.digest in self._entries:  # two equal requests were computed at once
            self._remove(key.digest)
        self._entries[key.digest] = value, key.entries
        key.entries.keys.add(key.digest)
        self.counters.entries += 1
        self.counters.bytes += len(value) + ENTRY_BYTES
        while self.counters.bytes > self.options.cache_bytes:
            self._remove(next(iter(self._entries)))
            self.counters.evictions += 1

    def _remove(self, digest: bytes) -> None:
        value, entries = self._entries.pop(digest)
        entries.keys.discard(digest)
        self.counters.entries -= 1
        self.counters.bytes -= len(value) + ENTRY_BYTES
