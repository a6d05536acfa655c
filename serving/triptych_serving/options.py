"""How a text is decoded: every option of the contract, its range, and whether this release can do it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from triptych_serving.errors import InvalidInputError, UnsupportedError


@dataclass(frozen=True)
class DecodingOptions:
    """Options as the wire names them; None or empty is the model's default."""

    beam_size: int | None = None
    patience: float | None = None
    num_hypotheses: int | None = None
    length_penalty: float | None = None
    coverage_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    suppress_sequences: Sequence[str] = ()
    min_length: int | None = None
    max_length: int | None = None
    target_prefix: Sequence[str] = ()
    sampling_temperature: float | None = None
    sampling_topk: int | None = None
    sampling_topp: float | None = None
    seed: int | None = None  # greedy search gives the same answer for every seed
    return_scores: bool | None = None
    return_alignment: bool | None = None
    split_sentences: bool | None = None  # True: auto, False: off


@dataclass(frozen=True)
class _Range:
    text: str
    holds: Callable[[float], bool]


_POSITIVE = _Range("above 0", lambda value: value > 0)
_COUNT = _Range("at least 1", lambda value: value >= 1)
_NOT_NEGATIVE = _Range("at least 0", lambda value: value >= 0)
_FRACTION = _Range("above 0, at most 1", lambda value: 0 < value <= 1)
_RANGES = {
    "beam_size": _COUNT,
    "patience": _POSITIVE,
    "num_hypotheses": _COUNT,
    "coverage_penalty": _NOT_NEGATIVE,
    "repetition_penalty": _POSITIVE,
    "max_length": _COUNT,
    "sampling_temperature": _POSITIVE,
    "sampling_topp": _FRACTION,
}

# What greedy search does anyway; any other value asks for something that this release cannot do.
_GREEDY = {
    "beam_size": 1,
    "patience": 1.0,
    "num_hypotheses": 1,
    "length_penalty": 1.0,
    "coverage_penalty": 0.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "suppress_sequences": (),
    "min_length": 0,
    "target_prefix": (),
    "sampling_temperature": 1.0,
    "sampling_topk": 1,
    "sampling_topp": 1.0,
    "return_scores": False,
    "return_alignment": False,
    "split_sentences": False,
}


def check_options(options: DecodingOptions, max_target_tokens: int) -> None:
    """Refuse what is out of range, then what cannot be done.

    Raises:
        InvalidInputError: a value is out of range.
        UnsupportedError: the option is not available in this release.
    """
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    for name, bounds in _RANGES.items():
        value = values[name]
        if value is not None and not bounds.holds(value):
            raise InvalidInputError(f"options.{name}", f"{value} is out of range, it must be {bounds.text}")
    if options.max_length is not None and options.max_length >= max_target_tokens:
        limit = max_target_tokens - 1
        raise InvalidInputError("options.max_length", f"{options.max_length} is above the model's limit of {limit} tokens")
    for name, neutral in _GREEDY.items():
        value = values[name]
        if value is not None and value != neutral and not (isinstance(neutral, tuple) and not value):
            shown = repr(list(value)) if isinstance(neutral, tuple) else value
            raise UnsupportedError(f"options.{name}: {shown} is not available in this release, which decodes greedily")
