"""Search state of one text: its running hypotheses and its finished ones."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from triptych_serving.bundle.search_params import EarlyStopping, SearchRules
from triptych_serving.decoding.logits_processor import LogitsProcessor
from triptych_serving.decoding.sampler import Sampler
from triptych_serving.scheduling.request import Finish, Hypothesis, Row

Ranked = Iterable[tuple[int, int, float]]  # fields of continuations (see `Continuation`), best first

LARGEST_DIVISOR_LOG = math.log(1e25)  # only penalties far beyond the usual ones reach it


class Continuation(NamedTuple):
    """A hypothesis extended by one token. Many are made in each step, and tuples are made the fastest."""

    slot: int  # of the hypothesis
    token: int
    log_probability: float  # of all tokens after the prefix


@dataclass(slots=True)
class SearchStep:
    """Outcome of one step for a group: hypotheses that ended and those that go on."""

    ended: list[Continuation] = field(default_factory=list)
    going: list[Continuation] = field(default_factory=list)


class HypothesisGroup:
    """Beams or samples of one row.

    Args:
        row: the text and its search options.
        slot: of its first hypothesis.
        processor: edits the logits, if the options need it.
        ends: number of tokens that end the text.
    """

    def __init__(self, row: Row, slot: int, processor: LogitsProcessor | None, ends: int = 1) -> None:
        self.row, self.search = row, row.search
        self.width = self.search.slots  # hypotheses at once, and so slots that it may take
        self.slots = [slot]  # of the running hypotheses
        # Continuations of each hypothesis to choose from, for beams so many that enough of them go on; 0: all tokens.
        self.candidates = self.search.sampling_topk if self.search.samples else (1 + max(1, ends)) * self.search.beam_size
        self.length = 0  # tokens of each
        self.processor = processor
        self.finished: list[Hypothesis] = []  # as many of the best as can still be returned
        self._ended = 0  # hypotheses that are finished, those that were dropped included
        self.fresh = True  # there is still one hypothesis only
        self.attends = self.search.alignment or self.search.coverage_penalty > 0
        # A step without ends only adds a token to each hypothesis.
        noted = self.search.top_log_probabilities is not None or row.is_stopped is not None
        self._is_plain = self.search.rules is SearchRules.CTRANSLATE2 and not (self.attends or noted)
        self.prefix_log_probability = 0.0
        samples = range(self.search.sample, self.search.sample + self.width) if self.search.samples else ()
        self.samplers = [Sampler(self.search.seed, index) for index in samples]
        self._led = False  # in some step the best continuation ended the sentence
        self._leader = 0.0  # log-probability of the best running hypothesis

    @property
    def forced(self) -> int | None:
        """Next token of the prefix, if the prefix is not done."""
        return self.row.prefix[self.length] if self.length < len(self.row.prefix) else None

    @property
    def at_limit(self) -> bool:
        """True if the next token is the last."""
        return self.length + 1 >= self.row.max_tokens

    @property
    def is_plain(self) -> bool:
        """True if a step in which no hypothesis ends needs nothing but `go_on`, so that a kernel can do all of it."""
        return self._is_plain and not self.at_limit

    @property
    def is_cut(self) -> bool:
        """True if the next token is the last free one, after which beams that go on are forced to end."""
        if not self.search.forced_end or self.search.samples or self.forced is not None:
            return False
        return self.at_limit and not self._is_over(self.length + 1)

    @property
    def is_done(self) -> bool:
        """True if the search is over."""
        if self.length >= self.row.max_tokens:
            return True
        if self.search.samples:
            return self._ended >= self.width
        return self._is_over(self.length)

    def _is_over(self, length: int) -> bool:
        """Tell whether a beam search ends when its hypotheses have `length` tokens."""
        if self.search.rules is SearchRules.TRANSFORMERS:
            return self._cannot_improve(length)
        search = self.search
        if search.length_penalty == 0 and search.coverage_penalty == 0:  # nothing can overtake a finished leader
            return self._led and self._ended >= search.num_hypotheses
        patience = search.patience if self.width > 1 else 1  # one beam is greedy search
        return self._ended >= max(search.num_hypotheses, math.floor(self.width * patience + 0.5))

    def _cannot_improve(self, length: int) -> bool:
        """Apply the rule of transformers' `generate()`; its greedy search ends with the first hypothesis."""
        search = self.search
        if len(self.finished) < self.width:
            return False
        if self.width == 1 or search.early_stopping is EarlyStopping.FULL:
            return True
        if search.early_stopping is EarlyStopping.NEVER and search.length_penalty > 0:
            length = self.row.max_tokens + search.forced_end
        return self._leader / _divisor(length - self.row.prompt, search.length_penalty) <= min(map(_score, self.finished))

    def extend(self, best: Ranked, ends: frozenset[int]) -> SearchStep:
        """Choose the continuations of one step of beam search, the same in CTranslate2 and in transformers.

        Of the `2k` best continuations, or `(1 + n) k` with n ends, those among the first `k` that end the sentence are done.
        Of those that do not end it, the `k` best go on.

        Args:
            best: as many continuations as there are `candidates`.
            ends: tokens that end the sentence.
        """
        width, ends_all = self.width, self.at_limit and not self.search.forced_end
        step = SearchStep()
        for rank, continuation in enumerate(map(Continuation._make, best)):
            is_end = continuation.token in ends
            if rank < width and (is_end or ends_all):
                self._led = self._led or (is_end and rank == 0)
                step.ended.append(continuation)
            if not is_end:
                step.going.append(continuation)
                if len(step.going) == width:
                    break
        self._leader = step.going[0].log_probability
        return step

    def go_on(self, slots: list[int]) -> None:
        """Record that every hypothesis has one more token, and the slots that the hypotheses are in now."""
        self.slots = slots
        self.length += 1

    def finish(self, tokens: Sequence[int], ended: bool, log_probability: float, attention: NDArray[np.float32] | None) -> None:
        """Add a finished hypothesis, if it may still be returned.

        Args:
            tokens: without the end of the sentence.
            ended: the model ended it.
            log_probability: of the tokens after the prefix, the end of the sentence included.
            attention: `[steps, source tokens]`, the step of the end included; None without `attends`.
        """
        search = self.search
        score = log_probability / _divisor(len(tokens) - self.row.prompt + (ended or search.forced_end), search.length_penalty)
        if attention is not None and search.coverage_penalty:
            covered = attention.sum(axis=0)
            score += search.coverage_penalty * float(np.log(np.minimum(covered[covered > 0], 1.0)).sum())
        self._ended += 1
        transformers = search.rules is SearchRules.TRANSFORMERS
        # By the rules of CTranslate2 thousands may end with a high patience.
        if len(self.finished) >= (self.width if transformers else search.num_hypotheses):
            order = range(len(self.finished))  # of equal ones, the new one replaces the first, or none
            worst = min(order if transformers else order[::-1], key=lambda index: _score(self.finished[index]))
            least = _score(self.finished[worst])
            if score < least or (score == least and not transformers):
                return
            del self.finished[worst]
        self.finished.append(
            Hypothesis(
                tuple(tokens),
                Finish.STOP if ended else Finish.LENGTH,
                self.prefix_log_probability + log_probability,
                score,
                attention[: len(tokens)] if attention is not None and search.alignment else None,
            )
        )

    def close(self) -> None:
        """Write the best hypotheses to the row."""
        best = sorted(self.finished, key=_score, reverse=True)
        row = self.row
        row.hypotheses = tuple(best[: self.search.num_hypotheses])
        row.tokens[:] = row.hypotheses[0].tokens
        row.finish = row.hypotheses[0].finish

    def settle(self, running: NDArray[np.int64]) -> None:
        """Append to the row the tokens that can no longer change; `running` are tokens `[hypotheses, length]`."""
        row = self.row
        agreed = _agreed(running, running[0])
        for hypothesis in self.finished:
            length = min(agreed, len(hypothesis.tokens))
            agreed = _agreed(running[:1, :length], np.array(hypothesis.tokens[:length], np.int64))
        row.tokens.extend(running[0, len(row.tokens) : agreed].tolist())


@lru_cache(maxsize=1024)
def _divisor(length: int, penalty: float) -> float:
    """Return `length ** penalty`, but so that every score is a finite number of single precision."""
    most = LARGEST_DIVISOR_LOG / math.log(max(2, length))
    return float(max(1, length) ** min(most, max(-most, penalty)))


def _score(hypothesis: Hypothesis) -> float:
    return hypothesis.score or 0.0


def _agreed(rows: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Return the length of the prefix that all rows share with `other`."""
    same = (rows == other).all(axis=0)
    return len(same) if same.all() else int(same.argmin())
