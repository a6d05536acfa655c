"""How a row is searched, resolved to plain numbers: what the engine knows of a request's options."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
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

    @property
    def samples(self) -> bool:
        """Tokens are drawn."""
        return self.sampling_topk != 1 or self.sampling_topp < 1

    @property
    def constrained(self) -> bool:
        """Some tokens' logits change from step to step."""
        return self.repetition_penalty != 1 or self.no_repeat_ngram_size > 0 or bool(self.suppressed) or self.min_length > 0

    @property
    def greedy(self) -> bool:
        """The arg-max alone is enough."""
        several = self.beam_size > 1 or self.num_hypotheses > 1
        return not (several or self.samples or self.constrained or self.scores or self.alignment)

    @property
    def slots(self) -> int:
        """Rows of a batch that it takes."""
        return self.num_hypotheses if self.samples else self.beam_size


GREEDY = Search()
