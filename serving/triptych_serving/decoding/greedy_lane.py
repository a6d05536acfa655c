"""Lanes: rows that need the same graph. Every worker of an engine owns one of each kind, all stepped by its loop."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.kv_cache import HostKVCache, StepArrays
from triptych_serving.decoding.slots import FREE, Slots
from triptych_serving.decoding.vocab_subset import VocabSubset
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.decode_scheduler import Job
from triptych_serving.scheduling.request import Finish, Hypothesis, Row

PADDING_TOKENS = (
    4  # that rows which are encoded together are padded with at least: to read the encoder's weights anew costs more
)


class Lane(Protocol):
    """Used by one thread."""

    @property
    def jobs(self) -> Sequence[Job]:
        """Those that run."""

    @property
    def news(self) -> Sequence[Job]:
        """Of those that run, at least all that the last step brought a first token, or one more for a stream."""

    @property
    def free(self) -> int:
        """Empty slots."""

    @property
    def bytes(self) -> int:
        """Memory of the caches, in bytes."""

    def warm_up(self) -> None:
        """Run the graphs once, so that the first request finds them ready."""

    def join(self, jobs: Sequence[Job]) -> None:
        """Encode new rows and give each its slots."""

    def leave(self, jobs: Sequence[Job]) -> None:
        """Free the slots of rows that nobody waits for."""

    def step(self) -> list[Job]:
        """One token for every row; returns the rows that ended, their slots free already."""


class GreedyLane:
    """The arg-max at every step, taken inside the graph.

    Args:
        encoder: graph `source, lengths -> memory`.
        step: graph `tokens, positions, last, forced, caches, memories -> next, caches`.
        manifest: shapes, limits and special tokens.
        slots: the most rows at once.
        columns: of the output projection, if the graph is a short one.
    """

    def __init__(
        self, encoder: Session, step: Session, manifest: TranslationManifest, slots: int, columns: VocabSubset | None = None
    ) -> None:
        self._slots = Slots(HostKVCache(encoder, step, manifest, slots), manifest)
        self._columns = columns
        self._end = manifest.tokens.end
        self.jobs: list[Job] = []
        self._prefixed = 0  # rows with a prefix

    @property
    def news(self) -> Sequence[Job]:
        return self.jobs

    @property
    def free(self) -> int:
        return self._slots.count - len(self.jobs)

    @property
    def bytes(self) -> int:
        return self._slots.bytes

    def warm_up(self) -> None:
        self._slots.warm_up()
        self._slots.used = 1
        self._run()
        self._slots.used = 0

    def join(self, jobs: Sequence[Job]) -> None:
        if self._columns is not None:
            self._columns.admit(shortlists(jobs), shortlists(self.jobs))
        for group in by_length(jobs, self._slots.caches.padding):
            self._slots.encode([job.row.source for job in group])
            self.jobs.extend(group)
        self._prefixed += sum(bool(job.row.prefix) for job in jobs)

    def leave(self, jobs: Sequence[Job]) -> None:
        gone = set(map(id, jobs))
        for slot in reversed([i for i, job in enumerate(self.jobs) if id(job) in gone]):
            self._vacate(slot)

    def step(self) -> list[Job]:
        slots, rows = self._slots, len(self.jobs)
        if self._prefixed:
            self._force()
        self._run()
        slots.positions[:rows] += 1
        ended = [
            slot
            for slot, (job, token) in enumerate(zip(self.jobs, slots.tokens[:rows].tolist(), strict=True))
            if _advance(job.row, token, self._end)
        ]
        jobs = [self.jobs[slot] for slot in ended]
        for slot in reversed(ended):
            self._vacate(slot)
        return jobs

    def _run(self) -> None:
        # The next tokens overwrite the newest ones, which the graph has read long before it knows them.
        self._slots.run(self._columns.size if self._columns else 0, self._arrays)

    def _arrays(self) -> StepArrays:
        return StepArrays(self._columns.inputs if self._columns else {}, {"next": self._slots.tokens})

    def _force(self) -> None:
        for slot, job in enumerate(self.jobs):
            row = job.row
            place = len(row.tokens)
            self._slots.forced[slot] = row.prefix[place] if place < len(row.prefix) else FREE

    def _vacate(self, slot: int) -> None:
        self._slots.vacate(slot)
        self._prefixed -= bool(self.jobs[slot].row.prefix)
        last = self.jobs.pop()
        if slot < len(self.jobs):
            self.jobs[slot] = last


def shortlists(jobs: Sequence[Job]) -> list[NDArray[np.int64]]:
    """Of the rows that have one."""
    return [job.row.shortlist for job in jobs if job.row.shortlist is not None]


def by_length(jobs: Sequence[Job], padding: float) -> list[list[Job]]:
    """Groups of like source length, longest first; `padding` as Caches has it."""
    groups: list[list[Job]] = []
    tokens = 0
    for job in sorted(jobs, key=lambda job: -len(job.row.source)):
        length = len(job.row.source)
        longest = len(groups[-1][0].row.source) if groups else 0
        padded = longest * (len(groups[-1]) + 1) if groups else math.inf
        if padded <= max(padding * (tokens + length), tokens + length + PADDING_TOKENS):
            groups[-1].append(job)
            tokens += length
        else:
            groups.append([job])
            tokens = length
    return groups


def conclude(row: Row, finish: Finish) -> None:
    """A row has all its tokens."""
    row.hypotheses = (Hypothesis(tuple(row.tokens), finish),)
    row.finish = finish


def _advance(row: Row, token: int, end: int) -> bool:
    """Take a row's next token; True if that was its last."""
    if token == end:
        conclude(row, Finish.STOP)
        return True
    row.tokens.append(token)
    if len(row.tokens) < row.max_tokens:
        return False
    conclude(row, Finish.LENGTH)
    return True
