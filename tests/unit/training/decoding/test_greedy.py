"""Greedy decoding with a cache equals decoding whole prefixes."""

from typing import Any

import pytest
import torch

from triptych_training.decoding import greedy as greedy_module
from triptych_training.decoding.greedy import greedy
from triptych_training.models.transformer import Transformer

from ..toy import SHAPE, make_ids, make_model

LENGTH = 8


@torch.inference_mode()
def plain(model: Transformer, source: list[int], max_length: int) -> list[int]:
    """Decode one sentence without a cache."""
    target = [SHAPE.bos_id]
    while len(target) <= max_length:
        token = int(model(torch.tensor([source]), torch.tensor([target]))[0, -1].argmax())
        if token == SHAPE.eos_id:
            break
        target.append(token)
    return target[1:]


@pytest.fixture
def sources() -> list[list[int]]:
    return make_ids(*range(2, 14))


@pytest.mark.parametrize(
    "variant", [{}, {"norm": "pre"}, {"positions": "learned", "tie_embeddings": False}], ids=["post", "pre", "learned"]
)
def test_the_cache_does_not_change_the_result(variant: dict[str, Any], sources: list[list[int]]) -> None:
    model = make_model(**variant)
    results = greedy(model, sources, LENGTH)
    assert results[::2] == [plain(model, source, LENGTH) for source in sources[::2]]
    assert len({tuple(result) for result in results}) >= 4


def test_order_and_batches_do_not_change_the_results(sources: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    together = greedy(model, sources, LENGTH)
    assert greedy(model, sources[::-1], LENGTH) == together[::-1]
    monkeypatch.setattr(greedy_module, "DECODE_TOKENS", 1)
    assert greedy(model, sources, LENGTH) == together


def test_results_end_before_eos_or_at_the_length_limit(sources: list[list[int]]) -> None:
    model = make_model(tie_embeddings=False)
    with torch.no_grad():
        model.projection.weight[SHAPE.eos_id] = 0.7 * model.projection.weight.abs().sum(0)
    results = greedy(model, sources, LENGTH)
    assert min(map(len, results)) < LENGTH
    assert all(SHAPE.eos_id not in result for result in results)
    assert max(map(len, greedy(make_model(), sources, 3))) == 3
    assert greedy(model, [], LENGTH) == []


def test_prefixes_are_kept_and_suppressed_ids_never_generated(sources: list[list[int]]) -> None:
    model = make_model()
    count = len(sources)
    free, forced = greedy(model, sources, LENGTH), greedy(model, sources, LENGTH, [(9, SHAPE.eos_id, 11)] * count)
    assert [result[:3] for result in forced] == [[9, SHAPE.eos_id, 11]] * count
    assert max(map(len, forced)) == LENGTH
    assert [result[3:] for result in forced] != [result[3:] for result in free]
    assert greedy(model, sources, LENGTH, [result[: index % 6] for index, result in enumerate(free)]) == free
    assert greedy(model, sources, 2, [(9, 10, 11)] * count) == [[9, 10]] * count
    model = make_model()
    used = {token for result in greedy(model, sources, LENGTH) for token in result}
    suppressed = sorted(used)[:5]
    results = greedy(model, sources, LENGTH, [suppressed[:1]] * count, suppressed)
    assert all(result[0] == suppressed[0] and not set(result[1:]).intersection(suppressed) for result in results)
