"""Resolution of decoding options: checks, defaults, and the combinations that are allowed.

`triptych.decoding.DecodingOptions` describes every option once; names are those of the wire.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from triptych.decoding import DecodingOptions, SplitSentences
from triptych_serving.bundle.manifest import Generation
from triptych_serving.bundle.search_params import BOUNDS, SearchParams, SearchRules, range_fault
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.text.tokenizers import is_unicode
from triptych_serving.text.validation import EMPTY, NOT_UNICODE

DEFAULTS = DecodingOptions()
NAMES = tuple(field.name for field in fields(DecodingOptions))
MAX_SUPPRESSED = 256  # texts of one request: each is looked for at every step
MAX_PHRASE_CHARACTERS = 256  # of a text that is looked for

Value = TypeVar("Value")


@dataclass(frozen=True)
class ResolvedOptions:
    """Options that are in range, with every default filled in."""

    search: SearchParams
    max_tokens: int  # including those that a frame forces
    prefixes: tuple[str, ...]  # one for each text, or none
    splits: bool


@dataclass(frozen=True)
class ModelDefaults:
    """A model's defaults for one language pair.

    A request's lengths count the tokens of the translation that it receives. The manifest's lengths, and those of a row, also
    count the `forced` first tokens of every translation.
    """

    generation: Generation
    max_target_tokens: int  # the model's limit, including the end of sentence
    forced: int = 0  # tokens
    splits: bool = True


def may_sample(options: DecodingOptions) -> bool:
    """Return True if a repeated request may get another translation."""
    limits = (options.sampling_topk, options.sampling_topp, options.sampling_minp)
    return any(value is not None for value in (options.sampling_temperature, *limits, options.seed))


def option_values(options: DecodingOptions) -> tuple[Any, ...]:
    """Return the values of all options as plain strings, numbers, None and tuples, in the order of the fields."""
    values = (getattr(options, name) for name in NAMES)
    return tuple(value.value if isinstance(value, SplitSentences) else value for value in values)


def resolve_options(options: DecodingOptions, texts: int, defaults: ModelDefaults, slots: int) -> ResolvedOptions:
    """Check options and fill in the model's defaults.

    A default never contradicts the request: a `beam_size` of 1 returns one hypothesis, whatever the model's `num_hypotheses`,
    and a model whose default is beam search still samples. Nor does it contradict the engine: beams are at most its slots.
    Without a seed, the request gets a random one.

    Args:
        texts: number of texts in the request.
        slots: maximum number of rows that can be searched together for one text.

    Raises:
        InvalidInputError: an option is out of range, or contradicts another one; names it.
        UnsupportedError: the model's searches do not have the option.
    """
    generation = defaults.generation
    _check_ranges(options)
    _check_texts(options, texts)
    if generation.rules is SearchRules.TRANSFORMERS and _given(options.patience, 1.0) != 1:
        raise UnsupportedError("options.patience: this model's beam search has none, its rules are those of transformers")
    min_length, max_tokens = _lengths(options, defaults)
    topp = _given(options.sampling_topp, 1.0)
    minp = _given(options.sampling_minp, 0.0)
    limited = options.sampling_topp is not None or minp > 0  # without a top k: all that these leave
    topk = _given(options.sampling_topk, 0 if limited else 1)
    samples = topk != 1 or topp < 1
    beam_size, num_hypotheses = _hypotheses(options, generation, samples, slots)
    computed = {
        "beam_size": beam_size,
        "num_hypotheses": num_hypotheses,
        "suppressed": tuple(options.suppress_sequences),
        "min_length": min_length,
        "sampling_topk": topk,
        "sampling_topp": topp,
        "sampling_minp": minp,
        "temperature": _given(options.sampling_temperature, 1.0) if samples else 1.0,
        "seed": _given(options.seed, secrets.randbits(64)) if samples else 0,
        "scores": bool(options.return_scores),
        "alignment": bool(options.return_alignment),
    }
    search = SearchParams(**_plain_values(options, generation) | computed)
    splits = defaults.splits if options.split_sentences is None else options.split_sentences == SplitSentences.AUTO
    return ResolvedOptions(search, max_tokens, tuple(options.target_prefix), splits)


def _plain_values(options: DecodingOptions, generation: Generation) -> dict[str, Any]:
    """Return the search parameters that the request sets, else the model, else nobody, by name."""
    return {
        field.name: _given(getattr(options, field.name, None), getattr(generation, field.name, field.default))
        for field in fields(SearchParams)
    }


def _check_ranges(options: DecodingOptions) -> None:
    for name in BOUNDS:
        value = getattr(options, name)
        if value is not None and (problem := range_fault(name, value)):
            raise _invalid(name, problem)


def _check_texts(options: DecodingOptions, texts: int) -> None:
    """Check the options that are texts themselves."""
    suppressed, prefixes = options.suppress_sequences, options.target_prefix
    check_phrases("options.suppress_sequences", suppressed, MAX_SUPPRESSED)
    if len(prefixes) not in (0, texts):
        raise _invalid("target_prefix", f"{len(prefixes)} prefixes for {texts} texts, it must be none or one for each")
    for index, prefix in enumerate(prefixes):
        if found := next((text for text in suppressed if text in prefix), None):
            raise _invalid(f"target_prefix[{index}]", f"{found!r} is in it, and in suppress_sequences too")


def check_phrases(field: str, texts: Sequence[str], most: int) -> None:
    """Check texts of which each is looked for in what is decoded. Raises InvalidInputError: names the field."""
    if len(texts) > most:
        raise InvalidInputError(field, f"{len(texts):,} texts are too many, at most {most} are allowed")
    for index, text in enumerate(texts):
        problem = "" if text else EMPTY
        if len(text) > MAX_PHRASE_CHARACTERS:
            problem = f"{len(text):,} characters are too long, at most {MAX_PHRASE_CHARACTERS} are allowed"
        elif not is_unicode(text):
            problem = NOT_UNICODE
        if problem:
            raise InvalidInputError(f"{field}[{index}]", problem)


def _lengths(options: DecodingOptions, defaults: ModelDefaults) -> tuple[int, int]:
    """Return the minimum and maximum number of tokens, including forced ones."""
    generation, forced = defaults.generation, defaults.forced
    most = generation.max_length if options.max_length is None else forced + options.max_length
    if most >= defaults.max_target_tokens:
        limit = defaults.max_target_tokens - 1 - forced
        raise _invalid("max_length", f"{most - forced} is above the model's limit of {limit} tokens")
    fewest = min(generation.min_length, most) if options.min_length is None else forced + options.min_length
    if fewest > most:
        raise _invalid("min_length", f"{fewest - forced} is above max_length, which is {most - forced}")
    return fewest if fewest > forced else 0, most


def _hypotheses(options: DecodingOptions, generation: Generation, samples: bool, slots: int) -> tuple[int, int]:
    """Return beam size and number of hypotheses."""
    beam_size = _given(options.beam_size, 1 if samples else min(generation.beam_size, slots))
    if samples and beam_size > 1:
        raise _invalid("beam_size", f"{beam_size} is not for sampling (sampling_topk, _topp or _minp), it must be 1")
    if beam_size > slots:
        raise _invalid("beam_size", f"{beam_size} is above the limit of {slots}, the engine's slots")
    most = slots if samples else beam_size
    wanted = _given(options.num_hypotheses, min(generation.num_hypotheses, most))
    if wanted > most:
        remedy = "set sampling_topk or sampling_topp to sample, or a larger beam_size"
        limit = f"the limit of {slots}, the engine's slots" if samples else f"beam_size, which is {beam_size}; {remedy}"
        raise _invalid("num_hypotheses", f"{wanted} is above {limit}")
    return beam_size, wanted


def _given(value: Value | None, default: Value) -> Value:
    return default if value is None else value


def _invalid(name: str, problem: str) -> InvalidInputError:
    return InvalidInputError(f"options.{name}", problem)
