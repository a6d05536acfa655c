"""Batched beam search finds the same translations as the reference."""

import math
from typing import Any

import pytest
import torch

from triptych_training.decoding import batch_beam
from triptych_training.decoding.batch_beam import BeamHypothesis, SearchOptions, search
from triptych_training.decoding.greedy import greedy
from triptych_training.models.transformer import Transformer

from ....parity.beam_search import BeamOptions, beam_search
from ..toy import SHAPE, make_ids, make_model

LENGTH = 8
SOURCES = make_ids(2, 5, 5, 8, 12)


def reference(model: Transformer, options: SearchOptions) -> list[list[tuple[list[int], bool]]]:
    beam = BeamOptions(
        options.beam_size,
        num_hypotheses=options.hypotheses,
        length_penalty=options.length_penalty,
        max_length=options.max_length,
    )
    return [[(list(c.tokens), c.ended) for c in found] for found in beam_search(model, SOURCES, beam)]


def texts(found: list[list[BeamHypothesis]]) -> list[list[tuple[list[int], bool]]]:
    return [[(h.tokens, h.ended) for h in hypotheses] for hypotheses in found]


@pytest.mark.parametrize(("beam_size", "length_penalty"), [(1, 1.0), (3, 0.0), (5, 0.6)])
def test_results_equal_the_reference(beam_size: int, length_penalty: float) -> None:
    model = make_model()
    options = SearchOptions(beam_size, min(2, beam_size), length_penalty, LENGTH)
    assert texts(search(model, SOURCES, options)) == reference(model, options)


@pytest.mark.parametrize(
    "variant",
    [{"norm": "pre"}, {"positions": "learned", "tie_embeddings": False}, {"relative_buckets": 8, "relative_distance": 16}],
    ids=["pre", "learned", "relative"],
)
def test_results_equal_the_reference_for_other_models(variant: dict[str, Any]) -> None:
    model = make_model(**variant)
    options = SearchOptions(3, 3, max_length=LENGTH)
    assert texts(search(model, SOURCES, options)) == reference(model, options)


@pytest.mark.parametrize(("batch_tokens", "check_steps"), [(1, 5), (60, 1)])
def test_batches_and_dropped_sentences_do_not_change_the_results(
    monkeypatch: pytest.MonkeyPatch, batch_tokens: int, check_steps: int
) -> None:
    model = make_model()
    whole = texts(search(model, SOURCES, SearchOptions(4, 4, max_length=LENGTH)))
    monkeypatch.setattr(batch_beam, "CHECK_STEPS", check_steps)
    monkeypatch.setattr(batch_beam, "SHRINK_BELOW", 1.0)
    assert texts(search(model, SOURCES, SearchOptions(4, 4, max_length=LENGTH, batch_tokens=batch_tokens))) == whole


def test_scores_are_log_probabilities_by_length_and_one_beam_is_greedy() -> None:
    model = make_model()
    [[best]] = search(model, SOURCES[:1], SearchOptions(4, max_length=LENGTH))
    target = torch.tensor([*best.tokens, SHAPE.eos_id][: len(best.tokens) + best.ended])
    inputs = torch.tensor([[SHAPE.bos_id, *target[:-1].tolist()]])
    logs = model(torch.tensor(SOURCES[:1]), inputs)[0].detach().log_softmax(-1).gather(1, target[:, None])
    assert best.score == pytest.approx(float(logs.mean()), abs=1e-5)
    found = search(model, SOURCES, SearchOptions(1, max_length=LENGTH))
    assert [best.tokens for [best] in found] == greedy(model, SOURCES, LENGTH)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size: 0 is below 1"),
        ({"max_length": 0}, "max_length: 0 is below 1"),
        ({"beam_size": 257}, "beam_size: 257 is above 256"),
        ({"length_penalty": math.nan}, "length_penalty: nan is outside -10 to 10"),
        ({"length_penalty": 10.5}, "length_penalty: 10.5 is outside -10 to 10"),
        ({"beam_size": 2, "hypotheses": 3}, "hypotheses: 3 is above beam_size 2"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SearchOptions(**options)
