"""Key-value caches of decoder-only rows, and the prompts that are read into them between two steps.

Keys and values depend in their last bits on whether a token is read alone or together with others: the runtime sums in another
order for a product of one row, and in int8 a sum may then be rounded to another integer. So that other rows, chunks and the
prefix cache never change a result, tokens of a prompt are never read alone, and later tokens always are. In the search lane
the last token of a prompt is read alone, too, by the step that computes its log-probabilities.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from triptych_serving.bundle.manifest import DecoderShape
from triptych_serving.decoding.kv_cache import HostArrays, RunStep, StepArrays, cache_names
from triptych_serving.decoding.slots import FREE, Slots
from triptych_serving.runtime.arrays import sparse_zeros, stack_rows
from triptych_serving.runtime.native.library import cached_bytes
from triptych_serving.runtime.session import Array, Bindable, Session
from triptych_serving.scheduling.request import Row, TokenLogProbability

BLOCK = 16  # tokens of a prefix that are shared or not
CHUNK_SECONDS = 0.03  # of reading prompts between two steps
TOKEN_SECONDS = 0.08  # from the end of one chunk to that of the next, all lanes' steps included: streams wait less than 100 ms
LONGEST_SECONDS = 0.5  # the same while no row decodes: longer chunks take less time for each token
HELD_SECONDS = 5.0  # that a prompt waits for others while no row decodes: between steps they would take much longer
SMALLEST_CHUNK, LARGEST_CHUNK, FIRST_CHUNK = 8, 512, 32  # tokens
SIMILAR = 0.85  # prompts are read together if they have this share of the longest one's tokens
SCORES = 1 << 22  # log-probabilities computed at a time: 16 MB
LEARNS = 0.3  # weight of the latest chunk in the average cost of a token; of a slower one: 1
LEAST = 2  # tokens of a chunk; those of a prompt with at most as many are read by steps

Result = TypeVar("Result")


@dataclass(frozen=True)
class PromptGraphs:
    """The graphs over the caches of one lane."""

    reader: Session
    step: Session
    scorer: Callable[[], Session]  # loads it


class PromptKVCache(HostArrays):
    """Caches in host memory, fp32 or int8: `2L * count * H * context` keys and values, touched as rows reach them.

    A KVCache for rows without sources.

    Args:
        graphs: `reader` is the greedy step graph, which also reads several tokens of one row, or whole prompts of several;
            `step` is the graph of the lane, `scorer` the one that gives log-probabilities after every token of a chunk.
        shape: of the caches.
        context: positions of each row.
        count: maximum number of rows.
    """

    run_tokens = 0  # no encoder

    def __init__(self, graphs: PromptGraphs, shape: DecoderShape, context: int, count: int) -> None:
        self._graphs, step = graphs, graphs.step
        self.context = context = max(2, context)  # with one position, a step would be taken for a prompt
        self._shape, names = shape, cache_names(shape.layers)
        self._kind = step.dtype(f"cache_{names[0]}")
        self._size = cached_bytes(shape.head_dim) if self._kind == np.int8 else shape.head_dim  # numbers of a key or value
        super().__init__(step, self._allocate(names, (count, shape.heads, context, self._size)), {})
        self._total = np.array([context], np.int32)
        self._names = frozenset((*step.inputs, *step.outputs))

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        """Do nothing: there is no source."""

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        for cache in self._caches.values():
            cache[target, :, positions] = cache[source, :, positions]

    def copy_rows(self, copies: Array) -> None:
        for source, start, target, _, count in copies.tolist():
            self.copy(source, target, slice(start, start + count))

    def bind(self, arrays: StepArrays, rows: int) -> RunStep:
        own = {"tokens": arrays.inputs["tokens"][:, None], "total": self._total}
        parts = ({**arrays.inputs, **own}, arrays.outputs, arrays.constants, arrays.rare)
        return super().bind(StepArrays(*({name: part[name] for name in part.keys() & self._names} for part in parts)), rows)

    def read(self, slot: int, tokens: Sequence[int], position: int) -> int:
        """Read tokens of a row, the first of them at `position`; return the most likely next one.

        Raises:
            EngineError: the runtime failed.
        """
        [following] = self._read(np.array([tokens], np.int64), [position + len(tokens) - 1], self._total, self._row(slot))
        return following

    def read_whole(self, prompts: Mapping[int, Sequence[int]]) -> list[int]:
        """Read whole prompts of several slots together, padded to the longest; return the most likely next tokens.

        Raises:
            EngineError: the runtime failed.
        """
        tokens = stack_rows(list(prompts.values()), 0, np.int64)
        rows, longest = tokens.shape
        parts = self._parts(rows, longest)
        last, total = [len(prompt) - 1 for prompt in prompts.values()], np.array([longest], np.int32)
        caches = {name: self._layer(parts, index) for index, name in enumerate(self._caches)}
        following = self._read(tokens, last, total, caches)
        for index, (slot, prompt) in enumerate(prompts.items()):
            self._store(parts, index, slot, 0, len(prompt))
        return following

    def score(self, slot: int, tokens: Sequence[int], position: int, count: int) -> list[TokenLogProbability]:
        """Read tokens but the last; return the log-probabilities of those but the first, with the `count` likeliest ones.

        Raises:
            EngineError: the runtime failed.
        """
        size = len(tokens) - 1
        likely, best = np.zeros((1, size), np.float32), np.zeros((size, max(1, count)), np.float32)
        best_tokens = np.zeros(best.shape, np.int64)
        inputs: dict[str, Array] = {
            "tokens": np.array([tokens[:-1]], np.int64),
            "positions": np.array([position + size - 1], np.int32),
            "total": self._total,
            "targets": np.array([tokens[1:]], np.int64),
            "candidates": np.array([best.shape[1]]),
        }
        outputs: dict[str, Array] = {
            "target_log_probabilities": likely,
            "top_log_probabilities": best,
            "top_tokens": best_tokens,
        }
        self._run(self._graphs.scorer(), self._row(slot), inputs, outputs)
        tops = [zip(*pair, strict=True) for pair in zip(best_tokens[:, :count].tolist(), best[:, :count].tolist(), strict=True)]
        return [
            TokenLogProbability(token, own, tuple(top))
            for token, own, top in zip(tokens[1:], likely[0].tolist(), tops, strict=True)
        ]

    def _allocate(self, names: Sequence[str], size: tuple[int, ...]) -> Mapping[str, Any]:
        """Allocate the caches: an array for each name, since the system may refuse to reserve all of them as one piece."""
        return {name: sparse_zeros(size, self._kind) for name in names}

    def _parts(self, rows: int, length: int) -> Any:
        """Return room for the keys and values of `length` tokens."""
        return np.empty((2 * self._shape.layers, rows, self._shape.heads, length, self._size), self._kind)

    def _layer(self, parts: Any, index: int) -> Bindable:
        layer: Bindable = parts[index]
        return layer

    def _store(self, parts: Any, row: int, slot: int, start: int, length: int) -> None:
        """Copy the first positions of a row of `_parts` to a slot."""
        for cache, part in zip(self._caches.values(), parts, strict=True):
            cache[slot, :, start : start + length] = part[row, :, :length]

    def _row(self, slot: int) -> Mapping[str, Bindable]:
        return {name: cache[slot : slot + 1] for name, cache in self._caches.items()}

    def _read(self, tokens: Array, last: Sequence[int], total: Array, caches: Mapping[str, Bindable]) -> list[int]:
        forced, following = np.full(len(tokens), FREE, np.int64), np.zeros(len(tokens), np.int64)
        inputs = {"tokens": tokens, "positions": np.array(last, np.int32), "total": total, "forced": forced}
        self._run(self._graphs.reader, caches, inputs, {"next": following})
        return list(map(int, following))

    @staticmethod
    def _run(graph: Session, caches: Mapping[str, Bindable], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run a graph over caches that it changes in place."""
        graph.bind(
            {**inputs, **{f"cache_{name}": cache for name, cache in caches.items()}},
            {**outputs, **{f"present_{name}": cache for name, cache in caches.items()}},
        ).run()

    def take(self, slot: int, start: int) -> Array:
        """Return a copy of the block that begins at a position: `[2L, H, BLOCK, numbers]`."""
        return np.stack([cache[slot, :, start : start + BLOCK] for cache in self._caches.values()])

    def put(self, slot: int, start: int, block: Array) -> None:
        """Write a block that `take` returned."""
        self._store(block[:, None], 0, slot, start, BLOCK)


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
            if key not in self._blocks:  # another worker may have read the same prompt
                self._blocks[key] = block
                self.counters.bytes += block.nbytes
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
    end: int  # position up to which to read
    following: int = 0  # the most likely token after those that were read

    @property
    def token(self) -> int:
        """The token at `position`: the prompt's, or the first one after it."""
        return self.following if self.position > self.row.prompt else self.tokens(self.position, self.position + 1)[0]

    def tokens(self, start: int, end: int) -> Sequence[int]:
        """Return tokens of the prompt."""
        return self.row.prefix[start - 1 : end - 1] if start else (self.row.source[0], *self.row.prefix[: end - 1])

    @property
    def is_unread(self) -> bool:
        """True if tokens are left to read."""
        return self.position < self.end


def is_unread(row: Row, position: int) -> bool:
    """Tell whether tokens of a row's prompt are left from `position` on that no step reads."""
    return position < row.prompt and row.prompt >= LEAST


class PromptReader:
    """Reads the prompts of one lane's rows: in turns for a limited time between two steps, together while no row decodes.

    Args:
        cache: of the lane.
        prefixes: shared by the model's lanes.
        is_decoding: tells whether a row of the thread's lanes decodes.
        vocabulary_size: log-probabilities after each token of a scored prompt.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        cache: PromptKVCache,
        prefixes: PrefixCache,
        is_decoding: Callable[[], bool] = lambda: True,
        vocabulary_size: int = 1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._cache, self._prefixes = cache, prefixes
        self._is_decoding, self._clock = is_decoding, clock
        self._most_scored = max(LEAST, SCORES // vocabulary_size)  # tokens
        self._ended = math.inf  # clock seconds: end of the last chunk, if prompts have been read since
        self._held = math.inf  # clock seconds: until then rows wait for the prompts of others
        self._turns: dict[Row, list[bytes]] = {}  # rows being read, in the order of their turns -> keys of their blocks
        self._seconds = CHUNK_SECONDS / FIRST_CHUNK  # that a token takes, lately

    def warm_up(self) -> None:
        """Read something, to learn how long it takes. No slot may be in use."""
        tokens = min(FIRST_CHUNK, self._cache.context)
        self._learn(tokens, lambda: self._cache.read(0, [0] * tokens, 0))

    def read(self, readings: Sequence[Reading], slots: Slots) -> bool:
        """Read on, and set the positions that have been reached; True if rows that have been read should wait for others.

        All readings are unread. Rows that are not named any more are forgotten.

        Raises:
            EngineError: the runtime failed.
        """
        by_row = {reading.row: reading for reading in readings}
        self._turns = {row: keys for row, keys in self._turns.items() if row in by_row}
        if not by_row:
            self._ended = self._held = math.inf
            return False
        for row, reading in by_row.items():
            if row not in self._turns:
                kept = reading.tokens(0, row.prompt + 1 - LEAST)  # without what is read again, to choose the next token
                self._turns[row] = [] if row.scored else self._prefixes.keys(kept)
        decodes = self._is_decoding()
        self._held = min(self._held, self._clock() + HELD_SECONDS)
        left = self._room(decodes)
        if decodes or not self._read_together(by_row, left):
            self._read_in_turns(by_row, left)
        self._ended = self._clock()
        for reading in by_row.values():
            slots.positions[reading.slot] = reading.position
            slots.tokens[reading.slot] = reading.token
        short = any(reading.is_unread and reading.end - reading.position <= LARGEST_CHUNK for reading in by_row.values())
        return short and not decodes and self._ended < self._held

    def _room(self, decodes: bool) -> int:
        """Return the number of tokens to read now: the fewer, the longer the steps since the last chunk took."""
        seconds = LONGEST_SECONDS
        if decodes:
            seconds = min(CHUNK_SECONDS, TOKEN_SECONDS - max(0.0, self._clock() - self._ended))
        return max(SMALLEST_CHUNK, min(LARGEST_CHUNK, int(seconds / self._seconds)))

    def _read_together(self, by_row: Mapping[Row, Reading], most: int) -> bool:
        """Read whole prompts of similar length, `most` tokens altogether; False if there are none."""
        new: dict[bytes | int, Reading] = {}  # by the first block: where prompts begin alike, only one is read now
        for row, keys in self._turns.items():
            reading = by_row[row]
            self._take_blocks(reading, keys)
            if not reading.position and not row.scored and reading.end <= most:
                new.setdefault(keys[0] if keys else reading.slot, reading)
        if not new:
            return False
        longest = max(reading.end for reading in new.values())
        chosen = [reading for reading in new.values() if reading.end >= SIMILAR * longest][: most // longest]
        prompts = {reading.slot: reading.tokens(0, reading.end) for reading in chosen}
        following = self._learn(len(chosen) * longest, lambda: self._cache.read_whole(prompts))
        for reading, token in zip(chosen, following, strict=True):
            reading.position, reading.following = reading.end, token
            self._keep_blocks(reading, self._turns.pop(reading.row))
        return True

    def _read_in_turns(self, by_row: Mapping[Row, Reading], left: int) -> None:
        for row in list(self._turns):
            keys = self._turns.pop(row)
            left -= self._advance(by_row[row], left, keys)
            if by_row[row].is_unread:
                self._turns[row] = keys  # after the others
            if left < LEAST:
                break

    def _advance(self, reading: Reading, most: int, keys: Sequence[bytes]) -> int:
        """Read up to `most` tokens of one row, or one more rather than leave it; return their number."""
        self._take_blocks(reading, keys)
        if not reading.is_unread:
            return 0
        if reading.row.scored:
            most = min(most, self._most_scored)
        start = min(reading.position, reading.end - LEAST)  # reads a token again that would be alone
        end = reading.end if reading.end - start - most < LEAST else start + most
        if reading.row.scored:
            self._learn(end - start, lambda: self._score(reading, start, end))
        else:
            tokens = reading.tokens(start, end)
            reading.following = self._learn(end - start, lambda: self._cache.read(reading.slot, tokens, start))
        reading.position = end
        self._keep_blocks(reading, keys)
        return end - start

    def _score(self, reading: Reading, start: int, end: int) -> None:
        """Read on, and add the log-probabilities of the tokens after those that were read."""
        row = reading.row
        scored = self._cache.score(reading.slot, reading.tokens(start, end + 1), start, row.search.top_log_probabilities or 0)
        row.log_probabilities += scored[reading.position - start :]

    def _learn(self, tokens: int, run: Callable[[], Result]) -> Result:
        """Run something that reads tokens, and note how long each takes; return its result."""
        began = self._clock()
        result = run()
        seconds = (self._clock() - began) / max(SMALLEST_CHUNK, tokens)
        self._seconds = max(seconds, self._seconds + LEARNS * (seconds - self._seconds))
        return result

    def _keep_blocks(self, reading: Reading, keys: Sequence[bytes]) -> None:
        for index, key in enumerate(keys[: reading.position // BLOCK]):
            if not self._prefixes.has(key):
                self._prefixes.add(key, self._cache.take(reading.slot, index * BLOCK))

    def _take_blocks(self, reading: Reading, keys: Sequence[bytes]) -> None:
        """Copy the blocks of the prompt that are kept."""
        for index in range(reading.position // BLOCK, len(keys)):
            block = self._prefixes.find(keys[index])
            if block is None:
                return
            self._cache.put(reading.slot, index * BLOCK, block)
            reading.row.cached += (index + 1) * BLOCK - reading.position
            reading.position = (index + 1) * BLOCK
