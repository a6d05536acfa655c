"""Key-value caches of decoder-only rows, and the prompts that are read into them between two steps."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from threading import Lock

import numpy as np

from triptych_serving.bundle.manifest import DecoderShape
from triptych_serving.decoding.kv_cache import BoundStep, HostArrays, StepArrays, cache_names
from triptych_serving.decoding.slots import Slots
from triptych_serving.runtime.session import Array, Session
from triptych_serving.scheduling.request import Row

BLOCK = 16  # tokens of a prefix that are shared or not
CHUNK_SECONDS = 0.03  # of reading prompts between two steps
TOKEN_SECONDS = 0.08  # from the end of one chunk to that of the next, all lanes' steps included: streams wait less than 100 ms
LONGEST_SECONDS = 0.2  # the same while no row decodes: longer chunks take less time for each token
SMALLEST_CHUNK, LARGEST_CHUNK, FIRST_CHUNK = 8, 512, 32  # tokens
LEARNS = 0.3  # weight of the latest chunk in the average cost of a token; of a slower one: 1
LEAST = 2  # tokens: one token would be a step


class PromptKVCache(HostArrays):
    """Caches in host memory, fp32: `4 * 2L * count * H * D * context` bytes, touched as rows reach them.

    A KVCache for rows without sources.

    Args:
        reader: the greedy step graph, which also reads several tokens of one row.
        step: the graph of the lane.
        shape: of the caches.
        context: positions of each row.
        count: maximum number of rows.
    """

    padding = 1.0

    def __init__(self, reader: Session, step: Session, shape: DecoderShape, context: int, count: int) -> None:
        self._reader = reader
        context = max(2, context)  # with one position, a step would be taken for a prompt
        size = (count, shape.heads, context, shape.head_dim)
        # An array for each name: the system may refuse to reserve all of them as one piece.
        super().__init__(step, {name: np.zeros(size, np.float32) for name in cache_names(shape.layers)}, {})
        self._total = np.array([context], np.int32)
        self._nothing = {"forced": np.array([-1], np.int64)}, {"next": np.zeros(1, np.int64)}
        self._names = frozenset((*step.inputs, *step.outputs))

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        """Do nothing: there is no source."""

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        for cache in self._caches.values():
            cache[target, :, positions] = cache[source, :, positions]

    def bind(self, arrays: StepArrays, rows: int) -> BoundStep:
        own = {"tokens": arrays.inputs["tokens"][:, None], "total": self._total}
        parts = ({**arrays.inputs, **own}, arrays.outputs, arrays.constants, arrays.rare)
        return super().bind(StepArrays(*({name: part[name] for name in part.keys() & self._names} for part in parts)), rows)

    def read(self, slot: int, tokens: Sequence[int], position: int) -> None:
        """Read tokens of a row, the first of them at `position`.

        Raises:
            EngineError: the runtime failed.
        """
        caches = {name: cache[slot : slot + 1] for name, cache in self._caches.items()}
        forced, following = self._nothing
        inputs: dict[str, Array] = {
            "tokens": np.array([tokens], np.int64),
            "positions": np.array([position + len(tokens) - 1], np.int32),
            "total": self._total,
            **forced,
            **{f"cache_{name}": cache for name, cache in caches.items()},
        }
        self._reader.bind(inputs, following | {f"present_{name}": cache for name, cache in caches.items()}).run()

    def take(self, slot: int, start: int) -> Array:
        """Return a copy of the block that begins at a position: `[2L, H, BLOCK, D]`."""
        return np.stack([cache[slot, :, start : start + BLOCK] for cache in self._caches.values()])

    def put(self, slot: int, start: int, block: Array) -> None:
        """Write a block that `take` returned."""
        for cache, part in zip(self._caches.values(), block, strict=True):
            cache[slot, :, start : start + BLOCK] = part

    def _active(self, array: Array, rows: int) -> Array:
        return array[:rows] if len(array) == self.count else array


@dataclass
class PrefixCounters:
    """Counts of a prefix cache since the model was loaded."""

    queries: int = 0  # tokens of prompts
    hits: int = 0  # of these, tokens that were in the cache
    evictions: int = 0  # blocks
    blocks: int = 0  # now
    bytes: int = 0  # now


class PrefixCache:
    """Keys and values of prompts by blocks of tokens; the least recently used are dropped. Thread-safe.

    A block's key is a hash of all tokens up to its end, so that blocks of different prefixes never mix.

    Args:
        limit: bytes; 0: nothing is kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blocks: OrderedDict[bytes, Array] = OrderedDict()
        self._lock = Lock()
        self.counters = PrefixCounters()

    def keys(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the keys of a new prompt's full blocks; none if nothing is kept."""
        if not self._limit:
            return []
        with self._lock:
            self.counters.queries += len(tokens)
        ids, key, keys = np.array(tokens, np.int32), b"", []
        for start, end in pairwise(range(0, len(ids) + 1, BLOCK)):
            key = blake2b(key + ids[start:end].tobytes(), digest_size=16).digest()
            keys.append(key)
        return keys

    def find(self, key: bytes) -> Array | None:
        """Return a block, if it is kept."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                self.counters.hits += BLOCK
            return block

    def clear(self) -> None:
        """Drop all blocks and counts."""
        with self._lock:
            self._blocks.clear()
            self.counters = PrefixCounters()

    def has(self, key: bytes) -> bool:
        """Return True if a block is kept."""
        return key in self._blocks

    def add(self, key: bytes, block: Array) -> None:
        """Keep a block, unless it alone is too large."""
        if block.nbytes > self._limit:
            return
        with self._lock:
            replaced = self._blocks.pop(key, None)
            self._blocks[key] = block
            self.counters.bytes += block.nbytes - (0 if replaced is None else replaced.nbytes)
            while self.counters.bytes > self._limit:
                _, oldest = self._blocks.popitem(last=False)
                self.counters.bytes -= oldest.nbytes
                self.counters.evictions += 1
            self.counters.blocks = len(self._blocks)


@dataclass
class Reading:
    """A row whose prompt is being read: the tokens before `position` are in the slot's caches."""

    row: Row
    slot: int
    position: int

    @property
    def token(self) -> int:
        """The prompt's token at `position`."""
        return self.row.prefix[self.position - 1] if self.position else self.row.source[0]

    def tokens(self, start: int, end: int) -> Sequence[int]:
        """Return tokens of the prompt."""
        return self.row.prefix[start - 1 : end - 1] if start else (self.row.source[0], *self.row.prefix[: end - 1])

    @property
    def end(self) -> int:
        """Position of the prompt's last token, which a step reads."""
        return self.row.prompt


class PromptReader:
    """Reads the prompts of one lane's rows, in turns, for a limited time between two steps.

    Args:
        cache: of the lane.
        prefixes: shared by the model's lanes.
        is_decoding: tells whether a row of the thread's lanes decodes.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        cache: PromptKVCache,
        prefixes: PrefixCache,
        is_decoding: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._cache, self._prefixes = cache, prefixes
        self._is_decoding, self._clock = is_decoding, clock
        self._ended = math.inf  # clock seconds: end of the last chunk, if prompts have been read since
        self._turns: dict[Row, list[bytes]] = {}  # rows that are being read, whose turn it is first; keys of their blocks
        self._seconds = CHUNK_SECONDS / FIRST_CHUNK  # that a token takes, lately

    def read(self, readings: Sequence[Reading], slots: Slots) -> bool:
        """Read on, and set the positions that have been reached; True if no row can take part in a step, and some be read on.

        Rows that are not named any more are forgotten.

        Raises:
            EngineError: the runtime failed.
        """
        if not readings:
            self._turns.clear()
            self._ended = math.inf
            return False
        by_row = {reading.row: reading for reading in readings}
        self._turns = {row: keys for row, keys in self._turns.items() if row in by_row}
        for row, reading in by_row.items():
            if row not in self._turns:
                self._turns[row] = self._prefixes.keys(reading.tokens(0, reading.end))
        left = self._room()
        for row in list(self._turns):
            keys = self._turns.pop(row)
            left -= self._advance(by_row[row], left, keys)
            if by_row[row].position < by_row[row].end:
                self._turns[row] = keys  # after the others
            if left < LEAST:
                break
        self._ended = self._clock()
        for reading in readings:
            slots.positions[reading.slot] = reading.position
            slots.tokens[reading.slot] = reading.token
        unread = [reading.end - reading.position for reading in readings]
        return min(unread) > 0 and max(unread) >= LEAST

    def _room(self) -> int:
        """Return the number of tokens to read now: the fewer, the longer the steps since the last chunk took."""
        seconds = LONGEST_SECONDS
        if self._is_decoding():
            seconds = min(CHUNK_SECONDS, TOKEN_SECONDS - max(0.0, self._clock() - self._ended))
        return max(SMALLEST_CHUNK, min(LARGEST_CHUNK, int(seconds / self._seconds)))

    def _advance(self, reading: Reading, most: int, keys: Sequence[bytes]) -> int:
        """Read up to `most` tokens of one row; return their number."""
        self._take_blocks(reading, keys)
        start, end = reading.position, min(reading.end, reading.position + most)
        if end - start < LEAST:
            return 0
        began = self._clock()
        self._cache.read(reading.slot, reading.tokens(start, end), start)
        seconds = (self._clock() - began) / max(SMALLEST_CHUNK, end - start)
        self._seconds = max(seconds, self._seconds + LEARNS * (seconds - self._seconds))
        reading.position = end
        for index, key in enumerate(keys[: end // BLOCK]):
            if not self._prefixes.has(key):
                self._prefixes.add(key, self._cache.take(reading.slot, index * BLOCK))
        return end - start

    def _take_blocks(self, reading: Reading, keys: Sequence[bytes]) -> None:
        """Copy the blocks of the prompt that are kept."""
        for index in range(reading.position // BLOCK, len(keys)):
            block = self._prefixes.find(keys[index])
            if block is None:
                return
            self._cache.put(reading.slot, index * BLOCK, block)
            reading.row.cached += (index + 1) * BLOCK - reading.position
            reading.position = (index + 1) * BLOCK
