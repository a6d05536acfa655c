"""Key-value caches of decoder-only rows in a device's memory, fp16; what else a graph takes is on the host, and copied."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from triptych_serving.bundle.manifest import DecoderShape
from triptych_serving.decoding.cuda.kv_cache import HALF
from triptych_serving.decoding.kv_cache import RunStep, StepArrays
from triptych_serving.decoding.prompt_cache import BLOCK, LARGEST_CHUNK, PromptGraphs, PromptKVCache
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, Memory
from triptych_serving.runtime.session import Array, Bindable


class DevicePromptCache(PromptKVCache):
    """A PromptKVCache in device memory: `2 * 2L * count * H * D * context` bytes, and those of LARGEST_CHUNK tokens more.

    A run binds the graph anew, as the runtime copies the host's arrays when they are bound. Used by one thread.
    """

    def __init__(self, graphs: PromptGraphs, shape: DecoderShape, context: int, count: int, memory: Memory) -> None:
        self._memory = memory
        self._copies: dict[int, tuple[Array, DeviceArray]] = {}  # of rare outputs, by id of the host's array
        self._rows = 0  # of the last run
        self._fetched: set[int] = set()  # ids of arrays fetched since
        super().__init__(graphs, shape, context, count)

    def copy(self, source: int, target: int, positions: slice, length: int = 0) -> None:
        if positions.stop > positions.start:
            self._memory.copy(self._region(source, positions), self._region(target, positions))

    def bind(self, arrays: StepArrays, rows: int) -> RunStep:
        rare: dict[str, Any] = {name: self._copy_of(array) for name, array in arrays.rare.items() if name in self._names}
        return partial(self._bind_and_run, replace(arrays, rare=rare), rows)

    def _bind_and_run(self, arrays: StepArrays, rows: int) -> None:
        self._rows = rows
        self._fetched.clear()
        super().bind(arrays, rows)()

    def fetch(self, array: Array) -> None:
        if id(array) not in self._fetched:
            self._memory.download(self._copy_of(array).first(self._rows), array[: self._rows])
            self._memory.mark().wait()
            self._fetched.add(id(array))

    def take(self, slot: int, start: int) -> Array:
        part = self._parts(1, BLOCK)
        self._memory.copy(self._region(slot, slice(start, start + BLOCK)), CacheRegion(part, slice(0, 1), slice(0, BLOCK)))
        block = np.empty(part.shape, HALF)
        self._memory.download(part, block)
        self._memory.mark().wait()
        return block[:, 0]

    def put(self, slot: int, start: int, block: Array) -> None:
        part = self._parts(1, BLOCK)
        self._memory.upload(np.ascontiguousarray(block[:, None]), part)
        self._store(part, 0, slot, start, BLOCK)

    def _allocate(self, names: Sequence[str], size: tuple[int, ...]) -> Mapping[str, Any]:
        _, heads, _, dim = size
        self._whole = self._memory.zeros((len(names), *size), HALF)
        self._room = self._memory.zeros((len(names), LARGEST_CHUNK, heads, dim), HALF)
        return {name: self._whole.at(index) for index, name in enumerate(names)}

    def _parts(self, rows: int, length: int) -> DeviceArray:
        return self._room.shaped((2 * self._shape.layers, rows, self._shape.heads, length, self._shape.head_dim))

    def _layer(self, parts: DeviceArray, index: int) -> Bindable:
        return parts.at(index)

    def _store(self, parts: DeviceArray, row: int, slot: int, start: int, length: int) -> None:
        source = CacheRegion(parts, slice(row, row + 1), slice(0, length))
        self._memory.copy(source, self._region(slot, slice(start, start + length)))

    def _row(self, slot: int) -> Mapping[str, Bindable]:
        return {name: cache.part(slot, slot + 1) for name, cache in self._caches.items()}

    def _region(self, slot: int, positions: slice) -> CacheRegion:
        return CacheRegion(self._whole, slice(slot, slot + 1), positions)

    def _copy_of(self, array: Array) -> DeviceArray:
        if id(array) not in self._copies:
            self._copies[id(array)] = array, self._memory.zeros(array.shape, array.dtype)
        return self._copies[id(array)][1]

    @staticmethod
    def _first(array: Any, rows: int) -> Any:
        return array.first(rows) if isinstance(array, DeviceArray) else array[:rows]
