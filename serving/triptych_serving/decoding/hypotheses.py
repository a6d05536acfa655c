"""One text in the search lane: its hypotheses that still run, and those that are finished."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.search_params import EarlyStopping, SearchRules
from triptych_serving.decoding.logits_processor import LogitsProcessor
from triptych_serving.decoding.sampler import Sampler
from triptych_serving.scheduling.decode_scheduler import Job
from triptych_serving.scheduling.request import Finish, Hypothesis


@dataclass(frozen=True, slots=True)
class Continuation:
    """A hypothesis and one token more."""

    slot: int  # where the hypothesis stands
    token: int
    log_probability: float  # of all tokens behind the prefix


@dataclass(slots=True)
class SearchStep:
    """What becomes of a group in one step."""

    ended: list[Continuation] = field(default_factory=list)
    going: list[Continuation] = field(default_factory=list)


class HypothesisGroup:
    """Beams or samples of one row of a request.

    Args:
        job: what it is for.
        slot: where its only hypothesis so far stands.
        constraints: what changes the logits, if anything does.
    """

    def __init__(self, job: Job, slot: int, constraints: LogitsProcessor | None) -> None:
        self.job, self.row, self.search = job, job.row, job.row.search
        self.width = self.search.slots  # hypotheses at once, and so slots that it may take
        self.slots = [slot]  # of the hypotheses that run
        self.length = 0  # tokens of each
        self.constraints = constraints
        self.finished: list[Hypothesis] = []
        self.fresh = True  # still one hypothesis
        self.attends = self.search.alignment or self.search.coverage_penalty > 0
        self.prefix_log_probability = 0.0
        self.samplers = [Sampler(self.search.seed, index) for index in range(self.width if self.search.samples else 0)]
        self._led = False  # the best continuation of a step ended the sentence
        self._leader = 0.0  # log-probability of the best hypothesis that runs

    @property
    def forced(self) -> int | None:
        """The next token where it is not free."""
        return self.row.prefix[self.length] if self.length < len(self.row.prefix) else None

    @property
    def at_limit(self) -> bool:
        """The next token is the last."""
        return self.length + 1 >= self.row.max_tokens

    @property
    def candidates(self) -> int:
        """Continuations of each hypothesis to choose from; 0: all tokens."""
        search = self.search
        return search.sampling_topk if search.samples else 2 * search.beam_size

    @property
    def is_cut(self) -> bool:
        """The next token is the last that is free, and the end is forced upon the beams that go on."""
        if not self.search.forced_end or self.search.samples or self.forced is not None:
            return False
        return self.at_limit and not self._is_over(self.length + 1)

    @property
    def is_done(self) -> bool:
        """Nothing is left to search for."""
        if self.length >= self.row.max_tokens:
            return True
        if self.search.samples:
            return len(self.finished) >= self.width
        return self._is_over(self.length)

    def _is_over(self, length: int) -> bool:
        """Whether a beam search ends when its hypotheses have `length` tokens."""
        if self.search.rules is SearchRules.TRANSFORMERS:
            return self._cannot_improve(length)
        search = self.search
        if search.length_penalty == 0 and search.coverage_penalty == 0:  # nothing can overtake a finished leader
            return self._led and len(self.finished) >= search.num_hypotheses
        return len(self.finished) >= max(1, math.floor(self.width * search.patience + 0.5))

    def _cannot_improve(self, length: int) -> bool:
        """As `generate()` of transformers decides it; its greedy search ends with the first hypothesis."""
        search = self.search
        if len(self.finished) < self.width:
            return False
        if self.width == 1 or search.early_stopping is EarlyStopping.FULL:
            return True
        if search.early_stopping is EarlyStopping.NEVER and search.length_penalty > 0:
            length = self.row.max_tokens + search.forced_end
        best: float = self._leader / length**search.length_penalty
        return best <= min(map(_score, self.finished))

    def extend(self, totals: Sequence[Sequence[float]], tokens: Sequence[Sequence[int]], end: int) -> SearchStep:
        """One step of beam search, the same in CTranslate2 and in transformers.

        Of the `2k` best continuations, those among the first `k` that end the sentence are finished, and the `k` best of those
        that do not end it go on.

        Args:
            totals: by slot, log-probabilities of the hypothesis with each of its best continuations, descending, at least `2k`.
            tokens: by slot, the tokens that continue it.
            end: the end of the sentence.
        """
        width, ends_all = self.width, self.at_limit and not self.search.forced_end
        count = 2 * width  # the batch may have more, for others
        flat = [total for slot in self.slots for total in totals[slot][:count]]
        best = sorted(range(len(flat)), key=flat.__getitem__, reverse=True)[:count]
        choice = SearchStep()
        for rank, place in enumerate(best):
            beam, candidate = divmod(place, count)
            slot = self.slots[beam]
            continuation = Continuation(slot, tokens[slot][candidate], flat[place])
            is_end = continuation.token == end
            if rank < width and (is_end or ends_all):
                self._led = self._led or (is_end and rank == 0)
                choice.ended.append(continuation)
            if not is_end and len(choice.going) < width:
                choice.going.append(continuation)
        self._leader = choice.going[0].log_probability
        return choice

    def finish(self, tokens: Sequence[int], ended: bool, log_probability: float, attention: NDArray[np.float32]) -> None:
        """Note a finished hypothesis.

        Args:
            tokens: without the end of the sentence.
            ended: the model ended it.
            log_probability: of the tokens behind the prefix, the end of the sentence included.
            attention: `[steps, source tokens]`, the step of the end included; empty where it is not asked for.
        """
        search = self.search
        score = log_probability / max(1, len(tokens) + (ended or search.forced_end)) ** search.length_penalty
        if search.coverage_penalty:
            covered = attention.sum(axis=0)
            score += search.coverage_penalty * float(np.log(np.minimum(covered[covered > 0], 1.0)).sum())
        self.finished.append(
            Hypothesis(
                tuple(tokens),
                Finish.STOP if ended else Finish.LENGTH,
                self.prefix_log_probability + log_probability,
                score,
                attention[: len(tokens)] if search.alignment else None,
            )
        )
        if search.rules is SearchRules.TRANSFORMERS and len(self.finished) > self.width:
            del self.finished[min(range(len(self.finished)), key=lambda index: _score(self.finished[index]))]

    def close(self) -> None:
        """Hand the best hypotheses to the row."""
        best = sorted(self.finished, key=_score, reverse=True)
        row = self.row
        row.hypotheses = tuple(best[: self.search.num_hypotheses])
        row.tokens[:] = row.hypotheses[0].tokens
        row.finish = row.hypotheses[0].finish

    def settle(self, running: NDArray[np.int64]) -> None:
        """Tell the row which tokens can no longer change.

        Args:
            running: `[hypotheses, length]` tokens.
        """
        row = self.row
        agreed = _agreed(running, running[0])
        for hypothesis in self.finished:
            length = min(agreed, len(hypothesis.tokens))
            agreed = _agreed(running[:1, :length], np.array(hypothesis.tokens[:length], np.int64))
        row.tokens.extend(running[0, len(row.tokens) : agreed].tolist())


def _score(hypothesis: Hypothesis) -> float:
    return hypothesis.score or 0.0


def _agreed(rows: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """How many tokens all rows have in common with `other`, from the start."""
    same = (rows == other).all(axis=0)
    return len(same) if same.all() else int(same.argmin())
