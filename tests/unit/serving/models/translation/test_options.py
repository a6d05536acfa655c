"""Decoding options: ranges, defaults, and combinations."""

from dataclasses import fields, replace
from typing import Any

import pytest

from triptych.decoding import DecodingOptions, SplitSentences
from triptych.v1 import translation_pb2
from triptych_serving.bundle.manifest import Generation
from triptych_serving.bundle.search_params import GREEDY, EarlyStopping, SearchParams, SearchRules
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.models.translation.options import ModelDefaults, ResolvedOptions, option_values, resolve_options
from triptych_serving.services.v1.codec import options_from

LIMIT, SLOTS = 64, 8
GENERATION = Generation(max_length=60)
DEFAULTS = ModelDefaults(GENERATION, LIMIT)
NAMES = [field.name for field in fields(DecodingOptions)]
NAN, INFINITE = float("nan"), float("inf")

GOOD: dict[str, list[Any]] = {
    "beam_size": [1, 4, 8],
    "patience": [0.5, 1.0, 1000.0],
    "num_hypotheses": [1],
    "length_penalty": [0.0, 1.0, -2.5, 100.0],
    "coverage_penalty": [0.0, 0.2],
    "repetition_penalty": [0.001, 1.0, 1.2, 1000.0],
    "presence_penalty": [-2.0, 0.0, 2.0],
    "frequency_penalty": [-2.0, 0.5],
    "no_repeat_ngram_size": [0, 3],
    "suppress_sequences": [[], ["Haus", " x", "\n"], ["a" * 256]],
    "min_length": [0, 5, 60],
    "max_length": [1, 10, 63],
    "target_prefix": [[], ["Der"], [""]],
    "sampling_temperature": [0.001, 0.7, 1000.0],
    "sampling_topk": [0, 1, 10],
    "sampling_topp": [0.1, 1.0],
    "sampling_minp": [0.0, 0.1, 1.0],
    "seed": [0, 1, 2**64 - 1],
    "return_scores": [False, True],
    "return_alignment": [False, True],
    "split_sentences": list(translation_pb2.SplitSentences.values()),
}
OUT_OF_RANGE: dict[str, list[Any]] = {
    "beam_size": [0, 9, 2**32 - 1],
    "patience": [0.0, -1.0, 1001.0, NAN, INFINITE],
    "num_hypotheses": [0, 2],
    "length_penalty": [-101.0, 101.0, NAN, INFINITE, -INFINITE],
    "coverage_penalty": [-0.5, 1001.0, NAN, INFINITE],
    "repetition_penalty": [0.0, -1.0, 1001.0, NAN, INFINITE],
    "suppress_sequences": [["a"] * 257],
    "min_length": [61, 2**32 - 1],
    "max_length": [0, 64, 2**32 - 1],
    "target_prefix": [["Der", "Die"]],
    "sampling_temperature": [0.0, -0.1, 1001.0, NAN, INFINITE],
    "sampling_topp": [0.0, -0.5, 1.5, NAN, INFINITE],
    "sampling_minp": [-0.1, 1.1, NAN, INFINITE],
    "presence_penalty": [-2.1, 2.1, NAN, INFINITE],
    "frequency_penalty": [-3.0, NAN, -INFINITE],
    "split_sentences": [17],
}
CONTRADICTIONS = [
    pytest.param({"num_hypotheses": 5, "beam_size": 4}, "num_hypotheses: 5 is above beam_size, which is 4", id="n-best"),
    pytest.param({"num_hypotheses": 9, "sampling_topk": 0}, "num_hypotheses: 9 is above the limit of 8", id="samples"),
    pytest.param({"beam_size": 2, "sampling_topk": 5}, "beam_size: 2 is not for sampling", id="beams and top k"),
    pytest.param({"beam_size": 2, "sampling_topp": 0.5}, "beam_size: 2 is not for sampling", id="beams and top p"),
    pytest.param({"beam_size": 2, "sampling_topp": 1.0}, "beam_size: 2 is not for sampling", id="beams and all tokens"),
    pytest.param({"min_length": 6, "max_length": 5}, "min_length: 6 is above max_length, which is 5", id="lengths"),
    pytest.param({"max_length": 64}, "max_length: 64 is above the model's limit of 63 tokens", id="model limit"),
    pytest.param(
        {"suppress_sequences": ["x", "er "], "target_prefix": ["Der Mann"]},
        "target_prefix[0]: 'er ' is in it, and in suppress_sequences too",
        id="prefix",
    ),
    pytest.param({"suppress_sequences": ["a", ""]}, "suppress_sequences[1]: the text is empty", id="empty"),
    pytest.param({"suppress_sequences": ["a" * 257]}, "suppress_sequences[0]: 257 characters are too long", id="long"),
]


def cases(table: dict[str, list[Any]]) -> list[Any]:
    return [pytest.param(name, value, id=f"{name}={value!s:.30}") for name, values in table.items() for value in values]


def resolve(generation: Generation = GENERATION, **values: Any) -> ResolvedOptions:
    """Resolve the options of a wire message."""
    return resolve_options(options_from(translation_pb2.DecodingOptions(**values)), 1, ModelDefaults(generation, LIMIT), SLOTS)


def test_values_arrive_as_sent() -> None:
    wire = [field.name for field in translation_pb2.DecodingOptions.DESCRIPTOR.fields]
    assert wire == NAMES == list(GOOD)
    assert options_from(translation_pb2.DecodingOptions()) == DecodingOptions()
    expected: dict[str, Any] = {"beam_size": 4, "length_penalty": 0.5, "target_prefix": ("a", "b"), "return_scores": False}
    options = options_from(translation_pb2.DecodingOptions(**expected, split_sentences=2))
    expected["split_sentences"] = SplitSentences.OFF
    assert options == DecodingOptions(**expected)
    values = dict(zip(NAMES, option_values(options), strict=True))
    assert {name: value for name, value in values.items() if value not in (None, ())} == expected
    assert type(values["split_sentences"]) is str


@pytest.mark.parametrize(("name", "value"), cases(GOOD))
def test_values_in_range_are_accepted(name: str, value: Any) -> None:
    resolve(**{name: value})


@pytest.mark.parametrize(("name", "value"), cases(OUT_OF_RANGE))
def test_values_out_of_range_are_rejected_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=rf"^options\.{name}: "):
        resolve(**{name: value})


@pytest.mark.parametrize(("values", "message"), CONTRADICTIONS)
def test_contradictions_are_rejected_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        resolve(**values)
    assert str(error.value).startswith(f"options.{message}")


def test_suppressed_texts_must_be_unicode() -> None:
    with pytest.raises(InvalidInputError, match=r"^options\.suppress_sequences\[0\]: the text is not Unicode"):
        resolve_options(DecodingOptions(suppress_sequences=("\udcff",)), 1, DEFAULTS, SLOTS)


def test_options_become_search_parameters() -> None:
    assert resolve() == ResolvedOptions(GREEDY, 60, (), splits=True)
    assert resolve(sampling_temperature=0.5, seed=3).search == GREEDY, "a temperature alone does not sample"
    options = {"beam_size": 4, "num_hypotheses": 2, "length_penalty": 0.5, "suppress_sequences": ["a"], "return_scores": True}
    expected = SearchParams(beam_size=4, num_hypotheses=2, length_penalty=0.5, suppressed=("a",), scores=True)
    assert resolve(**options).search == expected
    for topp in (0.5, 1.0):
        assert resolve(sampling_topp=topp).search.sampling_topk == 0, "top p alone samples from all tokens"
    assert resolve(sampling_topp=0.5, sampling_topk=7).search.sampling_topk == 7
    assert resolve(sampling_minp=0.1).search.sampling_topk == 0, "min p alone samples from the tokens that it leaves"
    assert resolve(sampling_minp=0.0).search == GREEDY
    assert resolve(sampling_topk=0, num_hypotheses=SLOTS).search.slots == SLOTS
    assert resolve_options(DecodingOptions(target_prefix=("a", "")), 2, DEFAULTS, SLOTS).prefixes == ("a", "")


def test_a_request_overrides_the_models_defaults() -> None:
    generation = Generation(4, 2.0, 3, 0.6, 0.2, 1.5, 3, 5, max_length=60)
    expected = SearchParams(4, 2.0, 3, 0.6, 0.2, 1.5, 3, min_length=5)
    assert resolve(generation).search == expected
    assert resolve(generation, length_penalty=0.0).search == replace(expected, length_penalty=0.0)
    generation = replace(GENERATION, beam_size=4, num_hypotheses=4, min_length=20)
    assert resolve(generation, beam_size=2).search.num_hypotheses == 2
    assert resolve(generation, sampling_topk=0).search.beam_size == 1
    assert resolve(generation, max_length=10).search.min_length == 10


def test_a_models_beams_are_at_most_the_slots() -> None:
    search = resolve(replace(GENERATION, beam_size=SLOTS + 1, num_hypotheses=SLOTS + 1)).search
    assert (search.beam_size, search.num_hypotheses) == (SLOTS, SLOTS)


def test_search_rules_come_from_the_model_alone() -> None:
    rules: dict[str, Any] = {
        "rules": SearchRules.TRANSFORMERS,
        "early_stopping": EarlyStopping.NEVER,
        "forced_end": True,
        "suppressed_tokens": ((0,), (5, 6)),
    }
    generation = replace(GENERATION, **rules)
    assert resolve(generation, beam_size=4, patience=1.0).search == SearchParams(beam_size=4, **rules)
    assert not set(rules) & set(NAMES)
    with pytest.raises(UnsupportedError, match=r"^options\.patience: this model's beam search has none"):
        resolve(generation, beam_size=4, patience=2.0)


FORCED = ModelDefaults(replace(GENERATION, min_length=9), LIMIT, forced=3)


@pytest.mark.parametrize(
    ("options", "shortest", "longest"),
    [
        ({}, 9, 60),
        ({"max_length": 20}, 9, 23),
        ({"max_length": 4}, 7, 7),
        ({"max_length": 60}, 9, 63),
        ({"min_length": 5}, 8, 60),
        ({"min_length": 0}, 0, 60),
    ],
)
def test_forced_tokens_count_in_the_manifests_lengths_but_not_in_a_requests(
    options: dict[str, int], shortest: int, longest: int
) -> None:
    found = resolve_options(DecodingOptions(**options), 1, FORCED, SLOTS)  # type: ignore[arg-type]
    assert (found.search.min_length, found.max_tokens) == (shortest, longest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DecodingOptions(max_length=61), "max_length: 61 is above the model's limit of 60 tokens"),
        (DecodingOptions(max_length=5, min_length=6), "min_length: 6 is above max_length, which is 5"),
        (DecodingOptions(min_length=58), "min_length: 58 is above max_length, which is 57"),
    ],
)
def test_errors_name_lengths_without_forced_tokens(options: DecodingOptions, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        resolve_options(options, 1, FORCED, SLOTS)
    least = replace(FORCED, generation=replace(GENERATION, min_length=3))
    assert resolve_options(DecodingOptions(), 1, least, SLOTS).search == GREEDY, "forced tokens alone are no minimum"


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize(("requested", "expected"), [(None, None), (SplitSentences.AUTO, True), (SplitSentences.OFF, False)])
def test_a_request_overrides_whether_texts_are_split(
    default: bool, requested: SplitSentences | None, expected: bool | None
) -> None:
    defaults = replace(DEFAULTS, splits=default)
    resolved = resolve_options(DecodingOptions(split_sentences=requested), 1, defaults, SLOTS)
    assert resolved.splits is (default if expected is None else expected)


def test_a_sample_without_a_seed_gets_a_random_one() -> None:
    seeds = {resolve(sampling_topk=0).search.seed for _ in range(5)}
    assert len(seeds) == 5
    assert resolve(sampling_topk=0, seed=7).search.seed == 7
