"""How a row is searched, resolved to plain numbers: what the engine knows of a request's options."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Rules(StrEnum):
    """Whose searches they are: when a beam search ends, and what penalties and bans work on.

    In CTranslate2 they change logits, whose softmax follows. In `generate()` of transformers they change log-probabilities in a
    beam search, which are not normalised again, and logits else.
    """

    CTRANSLATE2 = "ctranslate2"
    TRANSFORMERS = "transformers"


class EarlyStopping(StrEnum):
    """When a beam search by the rules of transformers ends, once `beam_size` hypotheses are finished."""

    HEURISTIC = "heuristic"  # nothing that runs would be better than the worst of these if it ended now
    FULL = "full"  # at once
    NEVER = "never"  # nothing that runs could become better, however long it grew


@dataclass(frozen=True)
class Search:
    """Options of one row; the defaults are greedy search."""

    beam_size: int = 1
    patience: float = 1.0
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    suppressed: tuple[str, ...] = ()  # texts that must not occur
    min_length: int = 0
    sampling_topk: int = 1  # 0: all tokens
    sampling_topp: float = 1.0
    temperature: float = 1.0
    seed: int = 0
    scores: bool = False
    alignment: bool = False
    rules: Rules = Rules.CTRANSLATE2
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC
    forced_end: bool = False  # what reaches the length limit is ended there, which counts in its length
    suppressed_tokens: tuple[tuple[int, ...], ...] = ()  # runs of ids that must not occur

    @property
    def samples(self) -> bool:
        """Tokens are drawn."""
        return self.sampling_topk != 1 or self.sampling_topp < 1

    @property
    def constrained(self) -> bool:
        """Some tokens' logits change from step to step."""
        if self.repetition_penalty != 1 or self.no_repeat_ngram_size > 0 or self.suppressed or self.min_length > 0:
            return True
        return any(len(run) > 1 for run in self.suppressed_tokens)  # single ones are banned once and for all

    @cached_property  # all rows of a request have one search, and each of them asks for this again and again
    def greedy(self) -> bool:
        """The arg-max alone is enough."""
        several = self.beam_size > 1 or self.num_hypotheses > 1
        return not (several or self.samples or self.constrained or self.scores or self.alignment)

    @property
    def slots(self) -> int:
        """Rows of a batch that it takes."""
        return self.num_hypotheses if self.samples else self.beam_size


GREEDY = Search()
