"""How translations are decoded."""

from dataclasses import dataclass
from enum import StrEnum


class SplitSentences(StrEnum):
    """How the server treats the sentences of a text."""

    AUTO = "auto"
    """Split the text at the ends of sentences and of lines, translate these apart and join them with their own white space."""
    OFF = "off"
    """Translate the text as it stands, in one piece."""


COUNTS = ("beam_size", "num_hypotheses", "no_repeat_ngram_size", "min_length", "max_length", "sampling_topk", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """The options of a translation. None, or an empty tuple, takes the model's default.

    The server checks the ranges: a value outside raises InvalidArgumentError, which names the field. Negative counts, which the
    wire cannot carry, raise ValueError here.
    """

    beam_size: int | None = None
    """Hypotheses kept at each step; 1 is greedy search. At most the server's slots, 32 unless it was told otherwise."""
    patience: float | None = None
    """Beam search goes on until beam_size x patience hypotheses are finished; 1 is plain beam search."""
    num_hypotheses: int | None = None
    """Translations returned for each text, best first; at most beam_size, unless sampling."""
    length_penalty: float | None = None
    """Exponent alpha: a hypothesis is ranked by log-probability / length^alpha."""
    coverage_penalty: float | None = None
    """Weight beta of the coverage penalty (Wu et al. 2016, equation 14)."""
    repetition_penalty: float | None = None
    """Divides the scores of tokens that were already produced; 1 is off."""
    no_repeat_ngram_size: int | None = None
    """No run of this many tokens occurs twice; 0 is off."""
    suppress_sequences: tuple[str, ...] = ()
    """Texts that must not occur in a translation; at most 256, each of 1 to 256 characters."""
    min_length: int | None = None
    """The fewest tokens of a sentence's translation, not counting its end."""
    max_length: int | None = None
    """The most tokens of a sentence's translation, not counting its end."""
    target_prefix: tuple[str, ...] = ()
    """Each translation starts with the prefix of the same index: none, or one for each text, where "" is no prefix. It begins
    the first sentence of a text."""
    sampling_temperature: float | None = None
    """Divides the logits that tokens are drawn from; 1 by default."""
    sampling_topk: int | None = None
    """Draw from the k likeliest tokens; 1 is greedy search, 0 is all tokens. Turns sampling on, as does `sampling_topp`."""
    sampling_topp: float | None = None
    """Draw from the likeliest tokens that together have this probability."""
    seed: int | None = None
    """The same seed, text and options give the same sample; without one each call draws anew."""
    return_scores: bool | None = None
    """Give each hypothesis its score."""
    return_alignment: bool | None = None
    """Give each hypothesis the source tokens that its tokens attended to."""
    split_sentences: SplitSentences | None = None
    """Whether texts are split into sentences: by default where the model translates, and not where it sums up or rewrites."""

    def __post_init__(self) -> None:
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}, must be 0 or more")
        # A lone string would be read as a sequence of one-letter texts.
        for name in ("suppress_sequences", "target_prefix"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} takes a tuple of texts, not one text")
