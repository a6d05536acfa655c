"""Translation graphs driven directly on a device's memory, without a scheduler."""

from collections.abc import Sequence
from itertools import count as counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, Memory
from triptych_serving.runtime.session import UNCAPTURED, Binding, Session, SessionPlace

FREE = -1  # a row whose token is not forced
HALF = np.float16


class Rig:
    """Decoder rows 0 to `count` - 1, each with a source and a translation in progress.

    Args:
        bundle: Bundle with fp16 graphs.
        memory: Memory of the device.
        count: Number of rows.
        captures: Capture each bucket when it first runs; else every run is eager.
    """

    def __init__(self, bundle: Bundle, memory: Memory, count: int, captures: bool) -> None:
        manifest = bundle.manifest_of(TranslationManifest)
        graphs, limits, shape = manifest.precisions["fp16"], manifest.limits, manifest.decoder
        self._memory, self._captures, self.count = memory, captures, count
        self._start = manifest.tokens.start
        self._encoder = Session(bundle.path(graphs.encoder), place=SessionPlace(memory))
        self._step = Session(bundle.path(graphs.step), place=SessionPlace(memory, captures=captures))
        _, heads, _, dim = self._step.shape("memory_key_0")
        assert isinstance(heads, int)
        assert isinstance(dim, int)
        pairs = 2 * shape.layers
        self._names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("key", "value")]
        self.sources = limits.max_source_tokens
        self.cache = memory.zeros((pairs, count, shape.heads, limits.max_target_tokens, shape.head_dim), HALF)
        self.memory = memory.zeros((pairs, count, heads, self.sources, dim), HALF)
        self.tokens, self.lengths, self.forced = (memory.zeros((count,), np.int64) for _ in range(3))
        self.positions = memory.zeros((count,), np.int32)
        self._bindings: dict[int, tuple[Binding, int]] = {}
        self._numbers = counter(1)
        self.put(self.forced, 0, [FREE] * count)
        self.put(self.lengths, 0, [1] * count)

    def begin(self, row: int, sources: Sequence[Sequence[int]]) -> None:
        """Restart the rows from `row` on with these sources."""
        width = max(map(len, sources))
        ids = np.zeros((len(sources), width), np.int64)
        for index, source in enumerate(sources):
            ids[index, : len(source)] = source
        lengths = np.array([len(source) for source in sources])
        padded = self._memory.zeros(ids.shape, np.int64)
        sizes = self._memory.zeros(lengths.shape, self._encoder.dtype("lengths"))
        self._memory.upload(ids, padded)
        self._memory.upload(lengths.astype(sizes.dtype), sizes)
        pairs, _, heads, _, dim = self.memory.shape
        encoded = self._memory.zeros((pairs, len(sources), heads, width, dim), HALF)
        self._encoder.bind({"source": padded, "lengths": sizes}, {"memory": encoded}).run(UNCAPTURED)
        rows, whole = slice(row, row + len(sources)), slice(0, len(sources))
        self._memory.copy(CacheRegion(encoded, whole, slice(0, width)), CacheRegion(self.memory, rows, slice(0, width)))
        self.put(self.lengths, row, lengths)
        self.put(self.tokens, row, [self._start] * len(sources))
        self.put(self.positions, row, [0] * len(sources))

    def put(self, vector: DeviceArray, row: int, values: Sequence[int] | NDArray[Any]) -> None:
        """Write into one of the vectors, starting at a row."""
        array = np.asarray(values, vector.dtype)
        self._memory.upload(array, vector.part(row, row + len(array)))

    def step(self, rows: int) -> None:
        """Enqueue a step of the first `rows` rows, without waiting for it."""
        if rows in self._bindings:
            binding, number = self._bindings[rows]
            binding.run(number)
            return
        binding = self._step.bind(self._inputs(rows), self._outputs(rows))
        number = next(self._numbers) if self._captures else UNCAPTURED
        self._bindings[rows] = binding, number
        if self._captures and self._memory.device.kind == "cuda":
            self._capture(rows, binding, number)
        binding.run(number)

    def read(self, array: DeviceArray) -> NDArray[Any]:
        """Wait for all work and return the content of an array."""
        host = self._memory.staging(array.shape, array.dtype)
        self._memory.download(array, host)
        self._memory.wait()
        return host.copy()

    def _capture(self, rows: int, binding: Binding, number: int) -> None:
        """Capture the step, and restore the rows that the capturing runs changed."""
        kept = [(array, self.read(array)) for array in (self.tokens, self.positions, self.cache)]
        with CUDA_GRAPH_LOCK.capturing():
            binding.run(number)
            self._memory.wait()
        for array, host in kept:
            self._memory.upload(host, array)
        self._memory.wait()

    def _inputs(self, rows: int) -> dict[str, DeviceArray]:
        vectors = {"tokens": self.tokens, "positions": self.positions, "lengths": self.lengths, "forced": self.forced}
        arrays = {"cache": self.cache, "memory": self.memory}
        return {name: vector.first(rows) for name, vector in vectors.items()} | {
            f"{kind}_{name}": array.at(index).first(rows)
            for kind, array in arrays.items()
            for index, name in enumerate(self._names)
        }

    def _outputs(self, rows: int) -> dict[str, DeviceArray]:
        caches = {f"present_{name}": self.cache.at(index).first(rows) for index, name in enumerate(self._names)}
        return {"next": self.tokens.first(rows), "advanced": self.positions.first(rows), **caches}
