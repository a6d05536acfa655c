"""Slots of a device: what a row needs from step to step stays there, and each step feeds the next.

Rows need not lie side by side: a step runs the smallest bucket that holds the highest of those in use. The slots between them
run along on what lies there, and nobody looks at what comes out.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count as counter

import numpy as np

from triptych_serving.decoding.cuda.kv_cache import DeviceKVCache, stretches
from triptych_serving.decoding.cuda.row_buckets import RowBuckets
from triptych_serving.decoding.slots import FREE
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, Memory, StreamMark
from triptych_serving.runtime.session import Array, Binding, Session

IN_FLIGHT = 2  # steps that are asked for and not yet read

_graphs = counter(1)  # numbers of captured graphs: no two of a process, whoever shares a session


@dataclass(frozen=True)
class PendingStep:
    """Of a step, on their way to the host."""

    mark: StreamMark
    tokens: Array  # [rows] int64, by slot, once the mark is passed

    def wait(self) -> Array:
        """The newest token of each slot; to be read before two more steps are asked for."""
        self.mark.wait()
        return self.tokens


@dataclass(frozen=True)
class _Bucket:
    binding: Binding
    graph: int
    tokens: DeviceArray


class DeviceSlots:
    """Used by one thread, which is also the one that made them warm.

    Args:
        caches: of these slots.
        step: graph `tokens, positions, lengths, forced, caches, memories -> next, advanced, caches`.
        start: the token that a translation starts from.
        memory: of the graph's place.
    """

    def __init__(self, caches: DeviceKVCache, step: Session, start: int, memory: Memory) -> None:
        self._caches, self._step, self._memory = caches, step, memory
        self.count = count = caches.count
        self.positions = caches.positions
        self.buckets = RowBuckets(count)
        self._tokens = memory.zeros((count,), np.int64)
        self._positions = memory.zeros((count,), np.int32)
        self._lengths = memory.zeros((count,), np.int64)
        self._forced = memory.zeros((count,), np.int64)
        self._starts, self._origins = np.full(count, start, np.int64), np.zeros(count, np.int32)
        self._known_lengths = np.ones(count, np.int64)  # what shall be in `_lengths`; an idle row must attend to something, too
        self._are_lengths_new = False
        self._answers = [memory.staging((count,), np.int64) for _ in range(IN_FLIGHT)]
        self._turn = 0
        self._bound: dict[int, _Bucket] = {}
        self._reset()

    @property
    def bytes(self) -> int:
        """Memory of the caches and of what is fed from step to step."""
        return self._caches.bytes + sum(map(_nbytes, (self._tokens, self._positions, self._lengths, self._forced)))

    @staticmethod
    def bytes_for(count: int) -> int:
        """Of so many slots beside their caches, before there are any."""
        return count * (3 * np.dtype(np.int64).itemsize + np.dtype(np.int32).itemsize)

    def warm_up(self) -> None:
        """Run the encoder and every bucket once, so that the first request finds all of them ready; nothing may be in use.

        On a GPU this captures them. The largest goes first: what it needs between operators is enough for the others.
        """
        is_gpu = self._memory.device.kind == "cuda"
        self._caches.encode(np.zeros((1, 1), np.int64), np.ones(1, np.int64), [0])
        for rows in reversed(self.buckets.sizes if is_gpu else self.buckets.sizes[:1]):
            bucket = self._bucket(rows)
            self._memory.wait()
            with CUDA_GRAPH_LOCK.capturing() if is_gpu else nullcontext():
                bucket.binding.run(bucket.graph)
                self._memory.wait()
        self._caches.clear()
        self._reset()
        self._memory.wait()

    def encode(self, source: Array, lengths: Array, slots: Sequence[int]) -> None:
        """Encode new rows, and let each begin.

        Args:
            source: `[rows, longest]` ids, padded.
            lengths: `[rows]`.
            slots: `[rows]`, ascending: where each row goes.

        Raises:
            EngineError: the runtime failed.
        """
        self._caches.encode(source, lengths, slots)
        for start, stop, slot in stretches(slots):
            self._begin(slot, slot + stop - start)
        self._known_lengths[slots] = lengths
        self._are_lengths_new = True

    def move(self, source: int, target: int, cached: int) -> None:
        """A row goes on in another slot, that is not in use.

        Args:
            source: slot.
            target: slot.
            cached: positions of its cache that steps so far have written.
        """
        length = int(self._known_lengths[source])
        self._caches.copy(source, target, slice(0, cached), length)
        for vector in (self._tokens, self._positions):
            array = vector.shaped((1, self.count, 1, 1, 1))
            one = slice(0, 1)
            self._memory.copy(
                CacheRegion(array, slice(source, source + 1), one), CacheRegion(array, slice(target, target + 1), one)
            )
        self._known_lengths[target] = length
        self._are_lengths_new = True

    def force(self, tokens: Mapping[int, int]) -> None:
        """From the next step on the rows of these slots say these tokens, whatever they would say; all others are free."""
        forced = np.full(self.count, FREE, np.int64)
        for slot, token in tokens.items():
            forced[slot] = token
        self._memory.upload(forced, self._forced)

    def run(self, rows: int) -> PendingStep:
        """Ask for a step of the first slots.

        Args:
            rows: a bucket.

        Raises:
            EngineError: the runtime failed, now or in an earlier step.
        """
        if self._are_lengths_new:
            self._memory.upload(self._known_lengths, self._lengths)
            self._are_lengths_new = False
        bucket = self._bucket(rows)
        bucket.binding.run(bucket.graph)
        answers = self._answers[self._turn][:rows]
        self._turn = (self._turn + 1) % IN_FLIGHT
        self._memory.download(bucket.tokens, answers)
        return PendingStep(self._memory.mark(), answers)

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
            binding = self._step.bind({**inputs, **self._caches.inputs(rows)}, {**outputs, **self._caches.outputs(rows)})
            self._bound[rows] = _Bucket(binding, next(_graphs), tokens)
        return self._bound[rows]


def _nbytes(array: DeviceArray) -> int:
    return array.nbytes
