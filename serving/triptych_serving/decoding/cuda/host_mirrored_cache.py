"""Device caches for a search whose logic runs on the host: each step uploads small arrays and downloads candidates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from triptych_serving.decoding.cuda.kv_cache import GRAPHS, RUN_TOKENS, DeviceKVCache, RowBuckets, entered
from triptych_serving.decoding.kv_cache import RunStep, StepArrays
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.memory import DeviceArray, Memory, RowCopy
from triptych_serving.runtime.session import UNCAPTURED, Array, Binding, Session

CAPTURE_AFTER = 8  # runs of a graph that was not captured at the start: with edits, or more candidates
MOST_GRAPHS = 64  # captured, of a lane
POSITIONS = "positions"
LAST = "last"  # input of host graphs: index of the last source token
LENGTHS = "lengths"  # input of device graphs instead


class HostMirroredCache:
    """A KVCache with a device copy of every host array that the graph is bound to.

    Copies of rows are collected, and made together before the next run.

    Args:
        step: the search graph, with `lengths` int64 `[B]` in place of `last`; on a GPU its session captures.
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
        self._graphs: dict[tuple[int, frozenset[int]], _Graph] = {}  # by rows and ids of the host's arrays
        self._captured = 0  # number of graphs
        self._capture_after = CAPTURE_AFTER  # runs
        self._moves: tuple[list[RowCopy], list[RowCopy]] = [], []  # of caches and encoded sources
        self._sources: set[int] = set()  # rows of the moves
        self._targets: set[int] = set()

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> Array:
        return self._memory.staging(shape, dtype)

    def warm_up(self, run: Callable[[int], None]) -> None:
        """Capture the graph for every number of rows that it runs with, the largest first, as in DeviceSlots."""
        if self._memory.device.kind != "cuda":
            run(1)
            return
        if self.count > 1:
            self._cache.copy_rows([(0, 1, 0, 1)], [])  # compiles the kernel
        self._capture_after = 0
        for rows in reversed(self._buckets.sizes):
            run(rows)
        self._capture_after = CAPTURE_AFTER

    def encode(self, source: Array, lengths: Array, first: int) -> None:
        self._move()
        self._cache.encode(source, lengths, range(first, first + len(source)))

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        if source in self._targets or target in self._targets or target in self._sources:
            self._move()
        self._sources.add(source)
        self._targets.add(target)
        for moves, part in zip(self._moves, (positions, slice(0, length)), strict=True):
            if part.stop > part.start:
                moves.append((source, target, part.start, part.stop))

    def copy_rows(self, copies: Array) -> None:
        self._move()
        rows = copies[:, (0, 2, 1, 1)]
        rows[:, 3] += copies[:, 4]
        self._moves[0].extend(map(tuple, rows.tolist()))
        self._sources.update(copies[:, 0].tolist())
        self._targets.update(copies[:, 2].tolist())

    def bind(self, arrays: StepArrays, rows: int) -> RunStep:
        """Bind a bucket of rows; the results of rows that are not in use are ignored."""
        used, rows = rows, self._buckets.of(rows)
        last = arrays.inputs[LAST]
        inputs = {name: array for name, array in arrays.inputs.items() if name != LAST} | {LENGTHS: self._lengths}
        # The runtime copies constants once, when they are bound, to the device that the graph needs them on.
        constants = {name: array[:rows] if len(array) == self.count else array for name, array in arrays.constants.items()}
        outputs = {**arrays.outputs, **arrays.rare}
        up, down = ([self._pair(array, rows) for array in each.values()] for each in (inputs, arrays.outputs))
        key = rows, frozenset(map(id, (*inputs.values(), *outputs.values())))  # the constants depend on these arrays
        graph = self._graphs.get(key)
        if graph is None:
            given, returned = (
                {name: self._device_copy(array).first(rows) for name, array in each.items()} for each in (inputs, outputs)
            )
            binding = self._step.bind(
                {**given, **constants, **self._cache.inputs(rows)}, {**returned, **self._cache.outputs(rows)}
            )
            graph = self._graphs[key] = _Graph(binding)
        last, lengths, idle = last[:rows], self._lengths[:rows], arrays.inputs[POSITIONS][used:rows]

        def run() -> None:
            np.add(last, 1, out=lengths)
            idle.fill(0)  # a row that left may have had a position beyond its cache's end
            self._run(graph, up, down, rows)

        return run

    def fetch(self, array: Array) -> None:
        if id(array) in self._fetched:
            return
        host, copy = self._pair(array, self._rows)
        self._memory.download(copy, host)
        self._memory.mark().wait()
        self._fetched.add(id(array))

    def _run(self, graph: "_Graph", up: Sequence["Pair"], down: Sequence["Pair"], rows: int) -> None:
        """Upload, run, download and wait."""
        self._rows = rows
        self._fetched.clear()
        with entered(self._memory):
            self._move()
            for host, copy in up:
                self._memory.upload(host, copy)
        if self._memory.device.kind == "cuda" and graph.runs == self._capture_after and self._captured < MOST_GRAPHS:
            self._capture(graph)
        graph.runs += 1
        with entered(self._memory):
            graph.binding.run(graph.number)
            for host, copy in down:
                self._memory.download(copy, host)
            self._memory.mark().wait()

    def _capture(self, graph: "_Graph") -> None:
        self._captured += 1
        graph.number = next(GRAPHS)
        with CUDA_GRAPH_LOCK.capturing():
            graph.binding.run(graph.number)
            self._memory.wait()

    def _move(self) -> None:
        """Make the copies of rows that were collected."""
        if self._targets:
            self._cache.copy_rows(*self._moves)
            self._moves = [], []
            self._sources.clear()
            self._targets.clear()

    def _pair(self, array: Array, rows: int) -> "Pair":
        return array[:rows], self._device_copy(array).first(rows)

    def _device_copy(self, array: Array) -> DeviceArray:
        if id(array) not in self._copies:
            copy = self._memory.zeros(array.shape, array.dtype)
            self._copies[id(array)] = array, copy
            self.bytes += copy.nbytes
        return self._copies[id(array)][1]


Pair = tuple[Array, DeviceArray]  # the first rows of an array and of its device copy


@dataclass(slots=True)
class _Graph:
    """The graph bound to a bucket's memory."""

    binding: Binding
    number: int = UNCAPTURED
    runs: int = 0
