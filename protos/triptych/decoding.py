"""The decoding options of a translation, described once: name, type, bounds and help text of each.

The client fills messages, the command line makes flags and the server checks requests from its fields (`dataclasses.fields`).
The `metadata` of each field has

- "help": one or two sentences for users, without the default;
- "kind": the Python type of one value (int, float, bool, str or SplitSentences);
- "bounds": the `Bounds` of a number, which the server enforces; None where there are none.

The names are those of the message `triptych.v1.DecodingOptions`. This module imports neither grpc nor protobuf.
"""

import math
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypedDict


class SplitSentences(StrEnum):
    """The treatment of the sentences of a text."""

    AUTO = "auto"
    """Split the text at the ends of sentences and lines, translate the parts and join them with their original white space."""
    OFF = "off"
    """Translate the text in one piece."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The allowed values of a number. The widest limits only keep powers and quotients from overflowing."""

    minimum: float
    maximum: float = math.inf
    exclusive: bool = False
    """The minimum itself is not allowed."""

    def __contains__(self, value: float) -> bool:
        if not self.minimum <= value <= self.maximum:  # so for nan, and for integers beyond the floats
            return False
        return value != math.inf and not (self.exclusive and value == self.minimum)

    def __str__(self) -> str:
        lower = f"{'above' if self.exclusive else 'at least'} {self.minimum:,}"
        return lower if self.maximum == math.inf else f"{lower} and at most {self.maximum:,}"


COUNT = Bounds(1)
NATURAL = Bounds(0)
FACTOR = Bounds(0.001, 1_000)


def _option(kind: type, help_text: str, bounds: Bounds | None = None, default: Any = None) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help_text, "bounds": bounds})


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """The options of a translation. None, or an empty tuple, selects the model's default.

    The server checks the bounds: a value outside raises InvalidArgumentError, which names the field. Negative integers, which
    the wire cannot carry, raise ValueError here; a single text where several belong raises TypeError.
    """

    beam_size: int | None = _option(int, "Hypotheses kept at each step; 1 is greedy search.", COUNT)
    patience: float | None = _option(
        float,
        "Continue beam search until beam size x patience hypotheses are finished; 1 is plain beam search.",
        Bounds(0, 1_000, exclusive=True),
    )
    num_hypotheses: int | None = _option(
        int, "Translations returned for each text, best first; at most the beam size, unless sampling.", COUNT
    )
    length_penalty: float | None = _option(
        float, "Exponent alpha: hypotheses are ranked by log-probability / length^alpha.", Bounds(-100, 100)
    )
    coverage_penalty: float | None = _option(
        float, "Weight of the penalty for untranslated source tokens (Wu et al. 2016, equation 14); 0 is off.", Bounds(0, 1_000)
    )
    repetition_penalty: float | None = _option(
        float, "Divides the scores of tokens that were already produced; 1 is off.", FACTOR
    )
    presence_penalty: float | None = _option(
        float, "Subtracted from the logits of tokens that were already produced; 0 is off.", Bounds(-2, 2)
    )
    frequency_penalty: float | None = _option(
        float, "The same, for each time that the token was produced; 0 is off.", Bounds(-2, 2)
    )
    no_repeat_ngram_size: int | None = _option(int, "No sequence of this many tokens occurs twice; 0 is off.", NATURAL)
    suppress_sequences: tuple[str, ...] = _option(
        str, "Texts that must not occur in a translation; at most 256, each of 1 to 256 characters.", default=()
    )
    min_length: int | None = _option(int, "Minimum number of tokens in the translation of a sentence.", NATURAL)
    max_length: int | None = _option(int, "Maximum number of tokens in the translation of a sentence.", COUNT)
    target_prefix: tuple[str, ...] = _option(
        str, 'Start the first sentence of each translation with the prefix of the same index; "" is no prefix.', default=()
    )
    sampling_temperature: float | None = _option(float, "Divides the logits before sampling; 1 by default.", FACTOR)
    sampling_topk: int | None = _option(
        int, "Sample from the k most likely tokens; 0 is all tokens, 1 is greedy search.", NATURAL
    )
    sampling_topp: float | None = _option(
        float,
        "Sample from the most likely tokens that together have this probability.",
        Bounds(0, 1, exclusive=True),
    )
    sampling_minp: float | None = _option(
        float, "Sample from tokens at least this many times as likely as the likeliest one; 0 is off.", Bounds(0, 1)
    )
    seed: int | None = _option(
        int, "Random seed of sampling: the same seed, text and options give the same sample.", Bounds(0, 2**64 - 1)
    )
    return_scores: bool | None = _option(bool, "Return the score of each hypothesis.")
    return_alignment: bool | None = _option(bool, "Return the attention of each target token over the source tokens.")
    split_sentences: SplitSentences | None = _option(  # noqa: RUF009 - it returns a field
        SplitSentences, "Split texts into sentences and translate each one separately (auto), or not (off)."
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value, kind = getattr(self, option.name), option.metadata["kind"]
            if kind is int and isinstance(value, int) and value < 0:
                raise ValueError(f"{option.name} is {value}, must be 0 or more")
            # A single string would be read as a sequence of one-letter texts.
            if kind is str and isinstance(value, str):
                raise TypeError(f"{option.name} takes a tuple of texts, not one text")


class DecodingArguments(TypedDict, total=False):
    """The same options as named arguments, for editors and type checkers; a test compares the two."""

    beam_size: int | None
    patience: float | None
    num_hypotheses: int | None
    length_penalty: float | None
    coverage_penalty: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    no_repeat_ngram_size: int | None
    suppress_sequences: tuple[str, ...]
    min_length: int | None
    max_length: int | None
    target_prefix: tuple[str, ...]
    sampling_temperature: float | None
    sampling_topk: int | None
    sampling_topp: float | None
    sampling_minp: float | None
    seed: int | None
    return_scores: bool | None
    return_alignment: bool | None
    split_sentences: SplitSentences | None
