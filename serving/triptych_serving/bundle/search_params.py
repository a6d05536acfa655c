"""Search parameters of one row, as plain numbers: all that the decode engine knows of a request's options."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property

from triptych.decoding import Bounds, DecodingOptions

BOUNDS: Mapping[str, Bounds] = {
    field.name: field.metadata["bounds"] for field in fields(DecodingOptions) if field.metadata["bounds"] is not None
}


def range_fault(name: str, value: float) -> str:
    """Describe what is wrong with an option's value in a request or a manifest; empty if it is in range."""
    return "" if value in BOUNDS[name] else f"{value} is out of range, it must be {BOUNDS[name]}"


class SearchRules(StrEnum):
    """The library whose search is reproduced: when a beam search ends, and what penalties and bans change.

    In CTranslate2 they change logits, before the softmax. In `generate()` of transformers they change log-probabilities in a
    beam search, which are not normalised again, and logits otherwise.
    """

    CTRANSLATE2 = "ctranslate2"
    TRANSFORMERS = "transformers"


class EarlyStopping(StrEnum):
    """End of a beam search by the rules of transformers, once `beam_size` hypotheses are finished."""

    HEURISTIC = "heuristic"  # when no running hypothesis would be better than the worst finished one if it ended now
    FULL = "full"  # at once
    NEVER = "never"  # when no running hypothesis could become better, however long it grew


@dataclass(frozen=True)
class SearchDefaults:
    """Parameters for which a model may have its own values; these are greedy search. Requests cannot change the last four."""

    beam_size: int = 1
    patience: float = 1.0
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_length: int = 0
    rules: SearchRules = SearchRules.CTRANSLATE2
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC  # only for the rules of transformers
    forced_end: bool = False  # a hypothesis at the length limit gets an end of sentence, which counts in its length
    suppressed_tokens: tuple[tuple[int, ...], ...] = ()  # runs of ids that must not occur; the step graph bans single ones


@dataclass(frozen=True)
class SearchParams(SearchDefaults):
    """Parameters of one row."""

    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # tokens, and what is added to the logit of each
    suppressed: tuple[str, ...] = ()  # texts that must not occur
    sampling_topk: int = 1  # 0: all tokens
    sampling_topp: float = 1.0
    sampling_minp: float = 0.0
    temperature: float = 1.0
    seed: int = 0
    sample: int = 0  # number of the first sample among those with this seed
    scores: bool = False
    alignment: bool = False
    follows_grammar: bool = False  # a grammar decides which tokens may follow
    top_log_probabilities: int | None = None  # number of likeliest tokens to return at each position; None: not even the chosen

    # All rows of a request share these parameters, and each of them asks again and again.
    @cached_property
    def varies(self) -> bool:
        """True if tokens are drawn at random."""
        return self.sampling_topk != 1 or self.sampling_topp < 1

    @cached_property
    def penalizes(self) -> bool:
        """True if tokens that were produced become less likely, or more likely."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @cached_property
    def samples(self) -> bool:
        """True if hypotheses are independent, and draw one token after the other."""
        return self.varies or self.follows_grammar

    @cached_property
    def constrained(self) -> bool:
        """True if the graph's logits of some tokens are edited."""
        if self.penalizes or self.no_repeat_ngram_size > 0 or self.suppressed or self.min_length > 0 or self.logit_bias:
            return True
        return any(len(run) > 1 for run in self.suppressed_tokens)  # single ones are banned once and for all

    @cached_property
    def greedy(self) -> bool:
        """True if the arg-max alone is enough."""
        several = self.beam_size > 1 or self.num_hypotheses > 1
        detailed = self.scores or self.alignment or self.top_log_probabilities is not None
        return not (several or self.samples or self.constrained or detailed)

    @cached_property
    def slots(self) -> int:
        """Number of batch rows that it takes."""
        return self.num_hypotheses if self.samples else self.beam_size


GREEDY = SearchParams()
