"""Slots on a device: per-row inputs stay there, and each step writes those of the next.

Slots in use need not be consecutive: a step runs the smallest bucket that holds the highest one. Empty slots between them run
too, on stale data, and their results are ignored.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from triptych_serving.decoding.cuda.kv_cache import GRAPHS, DeviceKVCache, RowBuckets, runs_of
from triptych_serving.decoding.slots import FREE
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, Memory, StreamMark
from triptych_serving.runtime.session import Array, Binding, Session

IN_FLIGHT = 2  # steps that are enqueued and not yet read


@dataclass(frozen=True)
class _Bucket:
    binding: Binding
    graph: int
    tokens: DeviceArray


class DeviceSlots:
    """Slots over a step graph. Used by one thread, the one that warmed them up.

    Args:
        step: graph `tokens, positions, lengths, forced, caches, memories -> next, advanced, caches`.
        start: the token that a translation starts from.
    """

    def __init__(self, cache: DeviceKVCache, step: Session, start: int, memory: Memory) -> None:
        self._cache, self._step, self._memory = cache, step, memory
        self.count = count = cache.count
        self.positions = cache.positions
        self.buckets = RowBuckets(count)
        self._tokens = memory.zeros((count,), np.int64)
        self._positions = memory.zeros((count,), np.int32)
        self._lengths = memory.zeros((count,), np.int64)
        self._forced = memory.zeros((count,), np.int64)
        self._starts, self._origins = np.full(count, start, np.int64), np.zeros(count, np.int32)
        self._known_lengths = np.ones(count, np.int64)  # on the host; idle rows have 1, to attend to some token
        self._lengths_changed = False
        self._results = [memory.staging((count,), np.int64) for _ in range(IN_FLIGHT)]
        self._turn = 0
        self._bound: dict[int, _Bucket] = {}
        self._reset()

    @property
    def bytes(self) -> int:
        """Bytes of the caches and of the per-row inputs."""
        return self._cache.bytes + sum(array.nbytes for array in (self._tokens, self._positions, self._lengths, self._forced))

    @staticmethod
    def bytes_for(count: int) -> int:
        """Return the bytes of so many slots beside their caches, before they are made."""
        return count * (3 * np.dtype(np.int64).itemsize + np.dtype(np.int32).itemsize)

    def warm_up(self) -> None:
        """Run the encoder and every bucket once, so that the first request finds all of them ready; no slot may be in use.

        On a GPU this captures them, the largest first: its intermediate memory is enough for the others.
        """
        is_gpu = self._memory.device.kind == "cuda"
        self._cache.encode(np.zeros((1, 1), np.int64), np.ones(1, np.int64), [0])
        for rows in reversed(self.buckets.sizes if is_gpu else self.buckets.sizes[:1]):
            bucket = self._bucket(rows)
            self._memory.wait()
            with CUDA_GRAPH_LOCK.capturing() if is_gpu else nullcontext():
                bucket.binding.run(bucket.graph)
                self._memory.wait()
        self._cache.clear()
        self._reset()
        self._memory.wait()

    def encode(self, source: Array, lengths: Array, slots: Sequence[int]) -> None:
        """Encode new rows and set their inputs for the first step; arguments and errors as for DeviceKVCache."""
        self._cache.encode(source, lengths, slots)
        for start, stop, slot in runs_of(slots):
            self._begin(slot, slot + stop - start)
        self._known_lengths[slots] = lengths
        self._lengths_changed = True

    def move(self, source: int, target: int, cached: int) -> None:
        """Move a row, of whose cache `cached` positions are written, from slot `source` to the empty slot `target`."""
        length = int(self._known_lengths[source])
        self._cache.copy(source, target, slice(0, cached), length)
        for vector in (self._tokens, self._positions):
            array = vector.shaped((1, self.count, 1, 1, 1))
            one = slice(0, 1)
            self._memory.copy(
                CacheRegion(array, slice(source, source + 1), one), CacheRegion(array, slice(target, target + 1), one)
            )
        self._known_lengths[target] = length
        self._lengths_changed = True

    def force(self, tokens: Mapping[int, int]) -> None:
        """Force tokens by slot, from the next step on; all other slots are free."""
        forced = np.full(self.count, FREE, np.int64)
        for slot, token in tokens.items():
            forced[slot] = token
        self._memory.upload(forced, self._forced)

    def run(self, rows: int) -> tuple[StreamMark, Array]:
        """Enqueue a step of the first slots; return the newest token of each, `[rows]` int64, and the mark to wait for before.

        Read them before two more steps are enqueued.

        Args:
            rows: size of a bucket.

        Raises:
            EngineError: the runtime failed, now or in an earlier step.
        """
        if self._lengths_changed:
            self._memory.upload(self._known_lengths, self._lengths)
            self._lengths_changed = False
        bucket = self._bucket(rows)
        bucket.binding.run(bucket.graph)
        tokens = self._results[self._turn][:rows]
        self._turn = (self._turn + 1) % IN_FLIGHT
        self._memory.download(bucket.tokens, tokens)
        return self._memory.mark(), tokens

    def _begin(self, first: int, stop: int) -> None:
        self._memory.upload(self._starts[first:stop], self._tokens.part(first, stop))
        self._memory.upload(self._origins[first:stop], self._positions.part(first, stop))

    def _reset(self) -> None:
        self._begin(0, self.count)
        self._memory.upload(self._known_lengths, self._lengths)
        self.force({})

    def _bucket(self, rows: int) -> _Bucket:
        if rows not in self._bound:
            tokens, positions, lengths, forced = (
                vector.first(rows) for vector in (self._tokens, self._positions, self._lengths, self._forced)
            )
            inputs = {"tokens": tokens, "positions": positions, "lengths": lengths, "forced": forced}
            outputs = {"next": tokens, "advanced": positions}
            binding = self._step.bind({**inputs, **self._cache.inputs(rows)}, {**outputs, **self._cache.outputs(rows)})
            self._bound[rows] = _Bucket(binding, next(GRAPHS), tokens)
        return self._bound[rows]
