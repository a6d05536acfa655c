"""Caches on a device for a search, whose logic is the host's: small arrays go up before each step, candidates come down."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from triptych_serving.decoding.cuda.kv_cache import PADDING, DeviceKVCache, entered
from triptych_serving.decoding.cuda.row_buckets import RowBuckets
from triptych_serving.decoding.kv_cache import BoundStep, StepArrays
from triptych_serving.runtime.memory import DeviceArray, Memory
from triptych_serving.runtime.session import UNCAPTURED, Array, Binding, Session

POSITIONS = "positions"
LAST = "last"  # what the host's lanes know of a source: the index of its last token
LENGTHS = "lengths"  # what a device's graphs ask for instead


class HostMirroredCache:
    """Every array of the host that a graph is bound to has a twin on the device.

    Args:
        caches: the device's.
        step: the search graph, with `lengths` int64 `[B]` in place of `last`.
        memory: of the graph's place.
    """

    padding = PADDING

    def __init__(self, caches: DeviceKVCache, step: Session, memory: Memory) -> None:
        self._caches, self._step, self._memory = caches, step, memory
        self.count = caches.count
        self.bytes = caches.bytes  # with the twins so far
        self._buckets = RowBuckets(self.count)
        self._twins: dict[int, tuple[Array, DeviceArray]] = {}  # by the array's identity; holds it, so that no other takes it
        self._lengths = np.ones(self.count, np.int64)
        self._rows = 0  # of the last run
        self._fetched: set[int] = set()  # since then

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        return self._memory.staging(shape, dtype)

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        self._caches.encode(source, lengths, range(first, first + len(source)))

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        self._caches.copy(source, target, positions, length)

    def bind(self, bound: StepArrays, rows: int) -> BoundStep:
        """More rows than are in use may be run: what those that are not compute is looked at by nobody."""
        used, rows = rows, self._buckets.of(rows)
        last = bound.inputs[LAST]
        inputs = {name: array for name, array in bound.inputs.items() if name != LAST} | {LENGTHS: self._lengths}
        # The runtime takes them once, when they are bound, and to where the graph wants them.
        constants = {name: array[:rows] if len(array) == self.count else array for name, array in bound.constants.items()}
        outputs = {**bound.outputs, **bound.rare}
        binding = self._step.bind(
            {
                **{name: self._twin(array).first(rows) for name, array in inputs.items()},
                **constants,
                **self._caches.inputs(rows),
            },
            {**{name: self._twin(array).first(rows) for name, array in outputs.items()}, **self._caches.outputs(rows)},
        )
        up, down = ([self._pair(array, rows) for array in arrays.values()] for arrays in (inputs, bound.outputs))
        idle = bound.inputs[POSITIONS][used:rows]
        return _MirroredRun(self, binding, last[:rows], self._lengths[:rows], idle, up, down)

    def fetch(self, array: Array) -> None:
        if id(array) in self._fetched:
            return
        host, twin = self._pair(array, self._rows)
        self._memory.download(twin, host)
        self._memory.mark().wait()
        self._fetched.add(id(array))

    def run(self, binding: Binding, up: Sequence["Pair"], down: Sequence["Pair"], rows: int) -> None:
        """Upload, run, download and wait."""
        self._rows = rows
        self._fetched.clear()
        with entered(self._memory):
            for host, twin in up:
                self._memory.upload(host, twin)
            binding.run(UNCAPTURED)
            for host, twin in down:
                self._memory.download(twin, host)
            self._memory.mark().wait()

    def _pair(self, array: Array, rows: int) -> "Pair":
        return array[:rows], self._twin(array).first(rows)

    def _twin(self, array: Array) -> DeviceArray:
        if id(array) not in self._twins:
            twin = self._memory.zeros(array.shape, array.dtype)
            self._twins[id(array)] = array, twin
            self.bytes += twin.nbytes
        return self._twins[id(array)][1]


Pair = tuple[Array, DeviceArray]  # the first rows of an array and of its twin


class _MirroredRun:
    """A graph, with what goes up before and comes down after it."""

    def __init__(
        self,
        caches: HostMirroredCache,
        binding: Binding,
        last: Array,
        lengths: Array,
        idle: Array,
        up: list[Pair],
        down: list[Pair],
    ) -> None:
        self._caches, self._binding = caches, binding
        self._last, self._lengths, self._idle = last, lengths, idle
        self._up, self._down = up, down

    def run(self) -> None:
        np.add(self._last, 1, out=self._lengths)
        self._idle.fill(0)  # a row that left may have stood behind its cache's end
        self._caches.run(self._binding, self._up, self._down, len(self._last))
