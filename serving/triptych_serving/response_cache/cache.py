"""Answers that are kept in memory: the longest unused give way to new ones."""

from collections import OrderedDict
from dataclasses import dataclass, field

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
class Shelf:
    """One model's part of the cache."""

    number: int
    keys: set[bytes] = field(default_factory=set)
    closed: bool = False  # the model is gone: nothing more is kept


@dataclass(frozen=True, slots=True)
class Key:
    """One request to one model; equal digests are equal requests."""

    digest: bytes
    shelf: Shelf


class AnswerCache:
    """Bounded by bytes.

    Args:
        max_bytes: of values, keys and bookkeeping; 0: nothing is kept.
        counters: are kept up to date.
    """

    def __init__(self, max_bytes: int, counters: CacheCounters) -> None:
        self._max_bytes = max_bytes
        self._counters = counters
        self._entries: OrderedDict[bytes, tuple[bytes, Shelf]] = OrderedDict()  # the longest unused first

    def get(self, key: Key) -> bytes | None:
        """The answer, which counts as used now."""
        entry = self._entries.get(key.digest)
        if entry is None:
            return None
        self._entries.move_to_end(key.digest)
        return entry[0]

    def put(self, key: Key, value: bytes) -> None:
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

    def close(self, shelf: Shelf) -> None:
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
