"""Device caches for a search whose logic runs on the host: each step uploads small arrays and downloads candidates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from triptych_serving.decoding.cuda.kv_cache import RUN_TOKENS, DeviceKVCache, RowBuckets, entered
from triptych_serving.decoding.kv_cache import BoundStep, StepArrays
from triptych_serving.runtime.memory import DeviceArray, Memory
from triptych_serving.runtime.session import UNCAPTURED, Array, Binding, Session

POSITIONS = "positions"
LAST = "last"  # input of host graphs: index of the last source token
LENGTHS = "lengths"  # input of device graphs instead


class HostMirroredCache:
    """A KVCache with a device copy of every host array that the graph is bound to.

    Args:
        step: the search graph, with `lengths` int64 `[B]` in place of `last`.
    """

    run_tokens = RUN_TOKENS

    def __init__(self, cache: DeviceKVCache, step: Session, memory: Memory) -> None:
        self._cache, self._step, self._memory = cache, step, memory
        self.count = cache.count
        self.bytes = cache.bytes  # grows with each device copy
        self._buckets = RowBuckets(self.count)
        self._copies: dict[int, tuple[Array, DeviceArray]] = {}  # by id of the host array, which is kept alive
        self._lengths = np.ones(self.count, np.int64)
        self._rows = 0  # of the last run
        self._fetched: set[int] = set()  # ids of arrays fetched since

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        return self._memory.staging(shape, dtype)

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        self._cache.encode(source, lengths, range(first, first + len(source)))

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        self._cache.copy(source, target, positions, length)

    def bind(self, arrays: StepArrays, rows: int) -> BoundStep:
        """Bind a bucket of rows; the results of rows that are not in use are ignored."""
        used, rows = rows, self._buckets.of(rows)
        last = arrays.inputs[LAST]
        inputs = {name: array for name, array in arrays.inputs.items() if name != LAST} | {LENGTHS: self._lengths}
        # The runtime copies constants once, when they are bound, to the device that the graph needs them on.
        constants = {name: array[:rows] if len(array) == self.count else array for name, array in arrays.constants.items()}
        outputs = {**arrays.outputs, **arrays.rare}
        binding = self._step.bind(
            {
                **{name: self._device_copy(array).first(rows) for name, array in inputs.items()},
                **constants,
                **self._cache.inputs(rows),
            },
            {**{name: self._device_copy(array).first(rows) for name, array in outputs.items()}, **self._cache.outputs(rows)},
        )
        up, down = ([self._pair(array, rows) for array in each.values()] for each in (inputs, arrays.outputs))
        idle = arrays.inputs[POSITIONS][used:rows]
        return _MirroredRun(self, binding, last[:rows], self._lengths[:rows], idle, up, down)

    def fetch(self, array: Array) -> None:
        if id(array) in self._fetched:
            return
        host, copy = self._pair(array, self._rows)
        self._memory.download(copy, host)
        self._memory.mark().wait()
        self._fetched.add(id(array))

    def run(self, binding: Binding, up: Sequence["Pair"], down: Sequence["Pair"], rows: int) -> None:
        """Upload, run, download and wait."""
        self._rows = rows
        self._fetched.clear()
        with entered(self._memory):
            for host, copy in up:
                self._memory.upload(host, copy)
            binding.run(UNCAPTURED)
            for host, copy in down:
                self._memory.download(copy, host)
            self._memory.mark().wait()

    def _pair(self, array: Array, rows: int) -> "Pair":
        return array[:rows], self._device_copy(array).first(rows)

    def _device_copy(self, array: Array) -> DeviceArray:
        if id(array) not in self._copies:
            copy = self._memory.zeros(array.shape, array.dtype)
            self._copies[id(array)] = array, copy
            self.bytes += copy.nbytes
        return self._copies[id(array)][1]


Pair = tuple[Array, DeviceArray]  # the first rows of an array and of its device copy


@dataclass(frozen=True)
class _MirroredRun:
    """A bound graph, with the arrays to upload before and to download after it."""

    cache: HostMirroredCache
    binding: Binding
    last: Array
    lengths: Array
    idle: Array  # positions of rows that are not in use
    up: list[Pair]
    down: list[Pair]

    def run(self) -> None:
        np.add(self.last, 1, out=self.lengths)
        self.idle.fill(0)  # a row that left may have had a position beyond its cache's end
        self.cache.run(self.binding, self.up, self.down, len(self.last))
