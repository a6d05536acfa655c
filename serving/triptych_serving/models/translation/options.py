"""How a text is decoded: every option of the contract, its range, and what it means together with the others."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from triptych_serving.bundle.manifest import Generation
from triptych_serving.bundle.option_ranges import RANGES, range_fault
from triptych_serving.bundle.search_params import Rules, Search
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.text.tokenizers import is_unicode
from triptych_serving.text.validation import EMPTY, NOT_UNICODE

MAX_SUPPRESSED = 256  # texts of one request: each is looked for at every step
MAX_SUPPRESSED_CHARACTERS = 256  # of each
# A search has them as a request or else the model's manifest says.
PLAIN = ("patience", "length_penalty", "coverage_penalty", "repetition_penalty", "no_repeat_ngram_size")
RULES = ("rules", "early_stopping", "forced_end", "suppressed_tokens")  # the manifest alone says them


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
    seed: int | None = None
    return_scores: bool | None = None
    return_alignment: bool | None = None
    split_sentences: bool | None = None  # True: auto; False: off

    @property
    def may_sample(self) -> bool:
        """Whether the same text may be translated otherwise the next time."""
        chance = (self.sampling_temperature, self.sampling_topk, self.sampling_topp, self.seed)
        return chance != (None, None, None, None)

    @property
    def values(self) -> tuple[Any, ...]:
        """Of all options, in the fields' order; sequences are tuples."""
        return tuple(tuple(value) if isinstance(value, list) else value for value in vars(self).values())


@dataclass(frozen=True)
class Decoding:
    """Options that are in range, with every default filled in."""

    search: Search
    max_tokens: int  # those that a frame forces included
    prefixes: Sequence[str]  # one for each text, or none
    splits: bool


Value = TypeVar("Value")


@dataclass(frozen=True)
class ModelDefaults:
    """What a model's manifest says of decoding, for one language pair.

    A request's lengths are those of the translation that it gets. The manifest's, like those of a row, count the `forced` first
    tokens of every translation too.
    """

    generation: Generation
    max_target_tokens: int  # the model's limit, end of sentence included
    forced: int = 0  # tokens
    splits: bool = True


def resolve_options(options: DecodingOptions, texts: int, defaults: ModelDefaults, slots: int) -> Decoding:
    """Refuse what is out of range or contradicts itself, and fill in the model's defaults.

    A default gives way to what the caller asked for: a `beam_size` of 1 returns one hypothesis, whatever the model's
    `num_hypotheses`, and a model that searches with beams still samples. Without a seed, a sample has a random one.

    Args:
        options: what the caller wants.
        texts: how many the request has.
        defaults: the model's.
        slots: the most rows that can be searched together for one text.

    Raises:
        InvalidInputError: names the option.
        UnsupportedError: the model's searches have no such option.
    """
    generation = defaults.generation
    _check_ranges(options)
    _check_texts(options, texts)
    _check_rules(options, generation)
    min_length, max_tokens = _lengths(options, defaults)
    topk, topp = _sampling(options)
    samples = topk != 1 or topp < 1
    beam_size, num_hypotheses = _hypotheses(options, generation, samples, slots)
    search = Search(
        **{name: _given(getattr(options, name), getattr(generation, name)) for name in PLAIN},
        beam_size=beam_size,
        num_hypotheses=num_hypotheses,
        suppressed=tuple(options.suppress_sequences),
        min_length=min_length,
        sampling_topk=topk,
        sampling_topp=topp,
        temperature=_given(options.sampling_temperature, 1.0) if samples else 1.0,
        seed=_given(options.seed, secrets.randbits(64)) if samples else 0,
        scores=bool(options.return_scores),
        alignment=bool(options.return_alignment),
        **{name: getattr(generation, name) for name in RULES},
    )
    return Decoding(search, max_tokens, tuple(options.target_prefix), _given(options.split_sentences, defaults.splits))


def _check_ranges(options: DecodingOptions) -> None:
    for name in RANGES:
        value = getattr(options, name)
        if value is not None and (problem := range_fault(name, value)):
            raise _wrong(name, problem)


def _check_texts(options: DecodingOptions, texts: int) -> None:
    """The options that are texts themselves."""
    suppressed, prefixes = options.suppress_sequences, options.target_prefix
    if len(suppressed) > MAX_SUPPRESSED:
        raise _wrong("suppress_sequences", f"{len(suppressed):,} texts are too many, at most {MAX_SUPPRESSED} are allowed")
    for index, text in enumerate(suppressed):
        if not text.strip():
            raise _wrong(f"suppress_sequences[{index}]", EMPTY)
        if not is_unicode(text):
            raise _wrong(f"suppress_sequences[{index}]", NOT_UNICODE)
        if len(text) > MAX_SUPPRESSED_CHARACTERS:
            problem = f"{len(text):,} characters are too long, at most {MAX_SUPPRESSED_CHARACTERS} are allowed"
            raise _wrong(f"suppress_sequences[{index}]", problem)
    if len(prefixes) not in (0, texts):
        raise _wrong("target_prefix", f"{len(prefixes)} prefixes for {texts} texts, it must be none or one for each")
    for index, prefix in enumerate(prefixes):
        if found := next((text for text in suppressed if text in prefix), None):
            raise _wrong(f"target_prefix[{index}]", f"{found!r} is in it, and in suppress_sequences too")


def _check_rules(options: DecodingOptions, generation: Generation) -> None:
    if generation.rules is Rules.TRANSFORMERS and _given(options.patience, 1.0) != 1:
        raise UnsupportedError("options.patience: this model's beam search has none, its rules are those of transformers")


def _lengths(options: DecodingOptions, defaults: ModelDefaults) -> tuple[int, int]:
    """The fewest and the most tokens, forced ones included."""
    generation, forced = defaults.generation, defaults.forced
    most = generation.max_length if options.max_length is None else forced + options.max_length
    if most >= defaults.max_target_tokens:
        limit = defaults.max_target_tokens - 1 - forced
        raise _wrong("max_length", f"{most - forced} is above the model's limit of {limit} tokens")
    fewest = min(generation.min_length, most) if options.min_length is None else forced + options.min_length
    if fewest > most:
        raise _wrong("min_length", f"{fewest - forced} is above max_length, which is {most - forced}")
    return fewest if fewest > forced else 0, most


def _sampling(options: DecodingOptions) -> tuple[int, float]:
    """Top k and top p; a top p alone draws from all tokens that it leaves."""
    topp = _given(options.sampling_topp, 1.0)
    return _given(options.sampling_topk, 0 if topp < 1 else 1), topp


def _hypotheses(options: DecodingOptions, generation: Generation, samples: bool, slots: int) -> tuple[int, int]:
    """Beam size and number of hypotheses."""
    beam_size = _given(options.beam_size, 1 if samples else generation.beam_size)
    if samples and beam_size > 1:
        raise _wrong("beam_size", f"{beam_size} is not for sampling (sampling_topk, sampling_topp), it must be 1")
    if beam_size > slots:
        raise _wrong("beam_size", f"{beam_size} is above the limit of {slots}, the engine's slots")
    most = slots if samples else beam_size
    wanted = _given(options.num_hypotheses, min(generation.num_hypotheses, most))
    if wanted > most:
        limit = f"the limit of {slots}, the engine's slots" if samples else f"beam_size, which is {beam_size}"
        raise _wrong("num_hypotheses", f"{wanted} is above {limit}")
    return beam_size, wanted


def _given(value: Value | None, default: Value) -> Value:
    return default if value is None else value


def _wrong(name: str, problem: str) -> InvalidInputError:
    return InvalidInputError(f"options.{name}", problem)
