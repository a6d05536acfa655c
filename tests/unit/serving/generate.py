"""A plain Python reference of `generate()` of transformers 5: one text at a time, all candidates compared."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Logits = Callable[[tuple[int, ...]], Floats]  # of the next token, after these (the start token left out)

DUMMY = -1e9  # log-probability of beams that are no hypotheses yet


@dataclass(frozen=True)
class Generate:
    """Arguments of `generate()`, except that `max_tokens` does not count the end, which may be forced."""

    start: int
    end: int
    max_tokens: int
    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    forced: tuple[int, ...] = ()
    forced_end: bool = False
    min_length: int = 0  # start token and forced ones included
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()

    @property
    def max_length(self) -> int:
        """The limit of transformers, which counts the start token."""
        return 1 + self.max_tokens + self.forced_end

    def process(self, ids: Sequence[int], scores: Floats) -> Floats:
        """Apply the logits processors of transformers, in their order."""
        scores = scores.copy()
        for token in set(ids) if self.repetition_penalty != 1 else ():
            scores[token] = scores[token] * self.repetition_penalty ** (1 if scores[token] < 0 else -1)
        size = self.no_repeat_ngram_size
        for start in range(len(ids) - size + 1) if size else ():
            run = list(ids[start : start + size])
            if run[:-1] == list(ids[len(ids) - size + 1 :]):
                scores[run[-1]] = -math.inf
        for *head, last in self.bad_words:
            if not head or list(ids[-len(head) :]) == head:
                scores[last] = -math.inf
        if len(ids) < self.min_length:
            scores[self.end] = -math.inf
        only = self.forced[len(ids) - 1] if len(ids) <= len(self.forced) else None
        if self.forced_end and len(ids) == self.max_length - 1:
            only = self.end
        if only is not None:
            scores[:] = -math.inf
            scores[only] = 0.0
        return scores


@dataclass(frozen=True)
class Found:
    """One translation."""

    tokens: tuple[int, ...]  # start and end left out
    score: float


def greedy(logits: Logits, options: Generate) -> tuple[int, ...]:
    """Search with `num_beams=1`; return the tokens without the end."""
    ids = [options.start]
    while len(ids) < options.max_length:
        ids.append(int(options.process(ids, logits(tuple(ids[1:]))).argmax()))
        if ids[-1] == options.end:
            return tuple(ids[1:-1])
    return tuple(ids[1:])


def beam_search(logits: Logits, options: Generate) -> list[Found]:
    """Return all `num_beams` translations, best first."""
    width, alpha = options.num_beams, options.length_penalty
    running = [(0.0 if beam == 0 else DUMMY, [options.start]) for beam in range(width)]
    finished: list[tuple[float, list[int]]] = []
    while True:
        candidates = []
        for total, ids in running:
            raw = logits(tuple(ids[1:]))
            scores = options.process(ids, raw - np.log(np.exp(raw - raw.max()).sum()) - raw.max())
            candidates += [(total + score, [*ids, token]) for token, score in enumerate(scores.tolist())]
        candidates.sort(key=lambda candidate: -candidate[0])
        best, length = candidates[: 2 * width], len(running[0][1])
        stops = [ids[-1] == options.end or len(ids) == options.max_length for _, ids in best]
        finished += [(total / length**alpha, ids) for (total, ids), stop in list(zip(best, stops, strict=True))[:width] if stop]
        finished = sorted(finished, key=lambda one: -one[0])[:width]
        running = [each for each, stop in zip(best, stops, strict=True) if not stop][:width]
        if all(stops) or not _may_improve(running, finished, length, options):
            return [Found(tuple(token for token in ids[1:] if token != options.end), score) for score, ids in finished]


def _may_improve(
    running: Sequence[tuple[float, list[int]]], finished: Sequence[tuple[float, list[int]]], length: int, options: Generate
) -> bool:
    if len(finished) < options.num_beams:
        return True
    if options.early_stopping is True:
        return False
    if options.early_stopping == "never" and options.length_penalty > 0:
        length = options.max_length - 1
    return running[0][0] / length**options.length_penalty > finished[-1][0]
