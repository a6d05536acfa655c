"""Key-value caches in a device's memory, fp16, and the encoder that fills them: encoded sources never leave the device."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count as counter
from math import prod

import numpy as np

from triptych_serving.bundle.manifest import DecoderShape, Limits, TranslationManifest
from triptych_serving.decoding.kv_cache import cache_lengths, cache_names
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, Memory, RowCopy
from triptych_serving.runtime.session import UNCAPTURED, Array, Binding, Session

HALF = np.dtype(np.float16)
RUN_TOKENS = 1 << 20  # one run of any rows: another takes longer than padding would; Prefill splits what is too much for one
TOKENS = 4_096  # padded, of one encoder run: larger ones are hardly faster, and take more memory
WIDTH_STEP = 16  # lengths are padded to multiples, and rows to powers of two, so that few shapes are ever run
SIZES = (1, 8, 16, 32, 64, 128, 256, 512, 1024)
GRAPHS = counter(1)  # numbers of captured graphs, unique in the process: lanes share sessions


class RowBuckets:
    """Numbers of up to `count` rows that a device's graphs run with: few, as the graph is bound and captured for each."""

    def __init__(self, count: int) -> None:
        self.sizes = (*SIZES[: bisect_left(SIZES, count)], count)
        self._of = [self.sizes[bisect_left(self.sizes, rows)] for rows in range(count + 1)]

    def of(self, rows: int) -> int:
        """Return the smallest bucket that holds so many rows."""
        return self._of[rows]


class Prefill:
    """Encoder with static buffers for one run at a time, and a binding for each shape. Used by one thread.

    Args:
        encoder: graph `source, lengths -> memory`, `memory` fp16 `[2L, B, H, S, D]`.
        longest: maximum tokens of a source.
        shape: 2L, H and D.
    """

    def __init__(self, encoder: Session, longest: int, shape: tuple[int, int, int], memory: Memory) -> None:
        self._encoder, self._memory = encoder, memory
        self._longest, self._shape = longest, shape
        self._tokens = max(TOKENS, longest)
        self._source = memory.zeros((self._tokens,), np.int64)
        self._lengths = memory.zeros((self._tokens,), encoder.dtype("lengths"))
        self._encoded = memory.zeros((self._tokens * prod(shape),), np.float16)
        self._bindings: dict[tuple[int, int], Binding] = {}

    @property
    def bytes(self) -> int:
        """Bytes of the buffers."""
        return self._source.nbytes + self._lengths.nbytes + self._encoded.nbytes

    @staticmethod
    def bytes_for(longest: int, shape: tuple[int, int, int]) -> int:
        """Return the bytes of the buffers before they are made; arguments as for the class."""
        lengths = np.dtype(np.int64).itemsize  # at most
        return max(TOKENS, longest) * (8 + lengths + HALF.itemsize * prod(shape))

    def encode(self, source: Array, lengths: Array) -> Iterator[tuple[slice, DeviceArray]]:
        """Encode in one run or several.

        Args:
            source: `[rows, longest]` ids, padded; sorted by length, longest first, rows need the least padding.
            lengths: `[rows]`.

        Yields:
            a part of the rows, and their memory `[2L, rows or more, H, their longest or more, D]`. Enqueue its use before
            taking the next part, which overwrites it.

        Raises:
            EngineError: the runtime failed.
        """
        first = 0
        while first < len(source):
            width = self._width(lengths[first:])
            part = slice(first, min(len(source), first + (1 << (self._tokens // width).bit_length() - 1)))
            yield part, self._run(source[part], lengths[part])
            first = part.stop

    def _width(self, lengths: Array) -> int:
        """Return the length that these rows are padded to."""
        return min(self._longest, -(-int(lengths.max()) // WIDTH_STEP) * WIDTH_STEP)

    def _run(self, source: Array, lengths: Array) -> DeviceArray:
        rows, width = len(source), self._width(lengths)
        padded = 1 << (rows - 1).bit_length()
        ids = np.zeros((padded, width), np.int64)
        known = min(width, source.shape[1])
        ids[:rows, :known] = source[:, :known]
        sizes = np.ones(padded, self._lengths.dtype)  # padding rows need a token to attend to
        sizes[:rows] = lengths
        inputs = {"source": self._source.shaped(ids.shape), "lengths": self._lengths.first(padded)}
        pairs, heads, dim = self._shape
        encoded = self._encoded.shaped((pairs, padded, heads, width, dim))
        self._memory.upload(ids, inputs["source"])
        self._memory.upload(sizes, inputs["lengths"])
        if (padded, width) not in self._bindings:
            self._bindings[padded, width] = self._encoder.bind(inputs, {"memory": encoded})
        self._bindings[padded, width].run(UNCAPTURED)
        return encoded


class DeviceKVCache:
    """Caches of `count` rows: `2 * 2L * count * H * D * (max_target + max_source)` bytes. Used by one thread.

    Args:
        step: graph with at least `caches, memories -> caches`.
        count: maximum number of rows.
    """

    def __init__(self, prefill: Prefill, step: Session, manifest: TranslationManifest, count: int, memory: Memory) -> None:
        self._prefill, self._memory = prefill, memory
        self.count = count
        self._names = cache_names(manifest.decoder.layers)
        self.positions, sources = cache_lengths(manifest.limits)
        shape = manifest.decoder
        pairs, heads, dim = memory_shape(step, shape)
        self.cache = memory.zeros((pairs, count, shape.heads, self.positions, shape.head_dim), HALF)
        self.encoded = memory.zeros((pairs, count, heads, sources, dim), HALF)

    @property
    def bytes(self) -> int:
        """Allocated bytes."""
        return self.cache.nbytes + self.encoded.nbytes

    def encode(self, source: Array, lengths: Array, slots: Sequence[int]) -> None:
        """Run the encoder.

        Args:
            source: `[rows, longest]` ids, padded.
            lengths: `[rows]`.
            slots: `[rows]`, ascending: the slot of each row.

        Raises:
            EngineError: the runtime failed.
        """
        for rows, encoded in self._prefill.encode(source, lengths):
            longest = slice(0, int(lengths[rows].max()))
            for start, stop, slot in runs_of(slots[rows]):
                target = slice(slot, slot + stop - start)
                self._memory.copy(CacheRegion(encoded, slice(start, stop), longest), CacheRegion(self.encoded, target, longest))

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        """Copy one row to another; arguments as for KVCache."""
        rows = slice(source, source + 1), slice(target, target + 1)
        for array, part in ((self.cache, positions), (self.encoded, slice(0, length))):
            if part.stop > part.start:
                self._memory.copy(CacheRegion(array, rows[0], part), CacheRegion(array, rows[1], part))

    def copy_rows(self, copies: Sequence[RowCopy], encoded: Sequence[RowCopy]) -> None:
        """Copy parts of many rows to others, of the caches and of the encoded sources; arguments as for Memory."""
        for array, each in ((self.cache, copies), (self.encoded, encoded)):
            if each:
                self._memory.copy_rows(array, each)

    def clear(self) -> None:
        """Fill all memory with zeros."""
        self._memory.fill(self.cache, 0)
        self._memory.fill(self.encoded, 0)

    def inputs(self, rows: int) -> Mapping[str, DeviceArray]:
        """Return the first rows' caches and encoded sources, by input name."""
        return {
            f"{kind}_{name}": array.at(index).first(rows)
            for kind, array in (("cache", self.cache), ("memory", self.encoded))
            for index, name in enumerate(self._names)
        }

    def outputs(self, rows: int) -> Mapping[str, DeviceArray]:
        """Return the same caches by output name: the graph writes them in place."""
        return {f"present_{name}": self.cache.at(index).first(rows) for index, name in enumerate(self._names)}


def entered(memory: Memory) -> AbstractContextManager[None]:
    """Hold the graph lock around many pieces of work on a GPU, which would each take it to keep clear of captures."""
    return CUDA_GRAPH_LOCK.running() if memory.device.kind == "cuda" else nullcontext()


def memory_shape(step: Session, shape: DecoderShape) -> tuple[int, int, int]:
    """Return 2L, H and D of encoded sources as the step graph takes them: heads may be merged into one of `H * D`."""
    _, heads, _, dim = step.shape("memory_key_0")
    return 2 * shape.layers, int(heads or 0), int(dim or 0)


def bytes_for(shape: DecoderShape, limits: Limits, count: int) -> int:
    """Return the bytes of the caches of `count` rows before they are made."""
    return HALF.itemsize * 2 * shape.layers * count * shape.heads * shape.head_dim * sum(cache_lengths(limits))


def runs_of(slots: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Split ascending slots into runs of consecutive ones; yield start and stop of each among them, and its first slot."""
    start = 0
    for index in range(1, len(slots) + 1):
        if index == len(slots) or slots[index] != slots[index - 1] + 1:
            yield start, index, slots[start]
            start = index
