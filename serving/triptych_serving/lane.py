"""Rows that one graph steps together: slots over static buffers, the active ones always a dense prefix.

A row that leaves is replaced by the last one, so no idle row is ever computed. Memory is allocated once, `bytes` long:
`4 * 2L * slots * H * D * (max_source + max_target)`; pages are touched only as rows reach them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from triptych_serving.manifest import TranslationManifest
from triptych_serving.row import Finish
from triptych_serving.scheduler import Job
from triptych_serving.session import Array, Binding, Session

FREE = -1  # in `forced`: the graph answers with its arg-max
PREFILL_WASTE = 1.3  # rows are encoded together while padding stays below this factor


class GreedyLane:
    """Greedy decoding. Used by one thread.

    Args:
        encoder: graph `source, lengths -> memory`.
        step: graph `tokens, positions, last, forced, caches, memories -> next, caches`.
        manifest: shapes, limits and special tokens.
        slots: the most rows at once.
    """

    def __init__(self, encoder: Session, step: Session, manifest: TranslationManifest, slots: int) -> None:
        self._encoder, self._step = encoder, step
        self._tokens_of = manifest.tokens
        shape, limits = manifest.decoder, manifest.limits
        self.slots = slots
        self.jobs: list[Job] = []
        self._names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("key", "value")]
        self._cache = [self._buffer(shape.heads, limits.max_target_tokens, shape.head_dim) for _ in self._names]
        self._memory = [self._buffer(shape.heads, limits.max_source_tokens, shape.head_dim) for _ in self._names]
        self._tokens = np.zeros(slots, np.int64)
        self._positions = np.zeros(slots, np.int32)
        self._last = np.zeros(slots, np.int32)
        self._forced = np.full(slots, FREE, np.int64)
        self._next = np.zeros(slots, np.int64)
        self._bindings: dict[int, Binding] = {}

    @property
    def free(self) -> int:
        """Empty slots."""
        return self.slots - len(self.jobs)

    @property
    def bytes(self) -> int:
        """Memory of the caches, in bytes."""
        return sum(buffer.nbytes for buffer in (*self._cache, *self._memory))

    def warm_up(self) -> None:
        """Run both graphs once, so that the first request finds them ready."""
        self._encoder.run({"source": np.full((1, 1), self._tokens_of.end), "lengths": np.ones(1, np.int32)})
        self._binding(1).run()
        self._positions[:] = 0

    def join(self, jobs: Sequence[Job]) -> None:
        """Encode new rows and give each a slot; similar lengths are encoded together."""
        for group in _by_length(jobs):
            self._prefill(group)

    def leave(self, jobs: Sequence[Job]) -> None:
        """Free the slots of rows that are done or that nobody waits for."""
        if jobs:
            gone = set(map(id, jobs))
            for slot in reversed([i for i, job in enumerate(self.jobs) if id(job) in gone]):
                self._vacate(slot)

    def step(self) -> list[Job]:
        """One token for every row; returns the rows that ended, their slots free already."""
        rows = len(self.jobs)
        self._binding(rows).run()
        self._tokens[:rows] = self._next[:rows]
        self._positions[:rows] += 1
        ended = []
        end = self._tokens_of.end
        for job, token in zip(self.jobs, self._next[:rows].tolist(), strict=True):
            row = job.row
            if token == end:
                row.finish = Finish.STOP
            else:
                row.tokens.append(token)
                if len(row.tokens) < row.max_tokens:
                    continue
                row.finish = Finish.LENGTH
            ended.append(job)
        if ended:
            self.leave(ended)
        return ended

    def _buffer(self, heads: int, length: int, head_dim: int) -> Array:
        return np.zeros((self.slots, heads, max(2, length), head_dim), np.float32)

    def _prefill(self, jobs: Sequence[Job]) -> None:
        sources = [job.row.source for job in jobs]
        lengths = np.array([len(source) for source in sources], np.int32)
        padded = np.full((len(jobs), int(lengths.max())), self._tokens_of.pad, np.int64)
        for index, source in enumerate(sources):
            padded[index, : len(source)] = source
        [memory] = self._encoder.run({"source": padded, "lengths": lengths})  # [2L, B, H, S, D]
        first = len(self.jobs)
        new = slice(first, first + len(jobs))
        for buffer, values in zip(self._memory, memory, strict=True):
            buffer[new, :, : padded.shape[1]] = values
        self._tokens[new] = self._tokens_of.start
        self._positions[new] = 0
        self._last[new] = lengths - 1
        self._forced[new] = FREE
        self.jobs.extend(jobs)

    def _vacate(self, slot: int) -> None:
        """Move the last row into `slot`: only as much of it as is in use."""
        last = len(self.jobs) - 1
        job = self.jobs.pop()
        if slot == last:
            return
        self.jobs[slot] = job
        cached, source = int(self._positions[last]), int(self._last[last]) + 1
        for buffer in self._cache:
            buffer[slot, :, :cached] = buffer[last, :, :cached]
        for buffer in self._memory:
            buffer[slot, :, :source] = buffer[last, :, :source]
        for vector in (self._tokens, self._positions, self._last, self._forced):
            vector[slot] = vector[last]

    def _binding(self, rows: int) -> Binding:
        """The graph over the first `rows` slots; made when first needed."""
        if rows not in self._bindings:
            caches = {name: buffer[:rows] for name, buffer in zip(self._names, self._cache, strict=True)}
            memories = {name: buffer[:rows] for name, buffer in zip(self._names, self._memory, strict=True)}
            vectors: dict[str, NDArray[np.integer]] = {
                "tokens": self._tokens[:rows],
                "positions": self._positions[:rows],
                "last": self._last[:rows],
                "forced": self._forced[:rows],
            }
            inputs = {
                **vectors,
                **{f"cache_{name}": array for name, array in caches.items()},
                **{f"memory_{name}": array for name, array in memories.items()},
            }
            outputs = {"next": self._next[:rows], **{f"present_{name}": array for name, array in caches.items()}}
            self._bindings[rows] = self._step.bind(inputs, outputs)
        return self._bindings[rows]


def _by_length(jobs: Sequence[Job]) -> list[list[Job]]:
    """Groups of like source length, longest first."""
    groups: list[list[Job]] = []
    tokens = 0
    for job in sorted(jobs, key=lambda job: -len(job.row.source)):
        length = len(job.row.source)
        longest = len(groups[-1][0].row.source) if groups else 0
        if groups and longest * (len(groups[-1]) + 1) <= PREFILL_WASTE * (tokens + length):
            groups[-1].append(job)
            tokens += length
        else:
            groups.append([job])
            tokens = length
    return groups
