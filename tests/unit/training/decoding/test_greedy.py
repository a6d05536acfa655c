"""Greedy decoding with a cache against the plainest decoding there is."""

from typing import Any

import pytest
import torch

from triptych_training.decoding import greedy as greedy_module
from triptych_training.decoding.greedy import greedy
from triptych_training.models.transformer import Transformer

from ..toy import SHAPE, make_ids, make_model

LENGTH = 12


@torch.inference_mode()
def plain(model: Transformer, source: list[int], max_length: int) -> list[int]:
    """The whole target through the whole decoder, one sentence at a time."""
    target = [SHAPE.bos_id]
    while len(target) <= max_length:
        token = int(model(torch.tensor([source]), torch.tensor([target]))[0, -1].argmax())
        if token == SHAPE.eos_id:
            break
        target.append(token)
    return target[1:]


@pytest.fixture
def sources() -> list[list[int]]:
    return make_ids(*range(2, 18))


@pytest.mark.parametrize(
    "variant", [{}, {"norm": "pre"}, {"positions": "learned", "tie_embeddings": False}], ids=["post", "pre", "learned"]
)
def test_the_cache_changes_no_token(variant: dict[str, Any], sources: list[list[int]]) -> None:
    model = make_model(**variant)
    answers = greedy(model, sources, LENGTH)
    assert answers == [plain(model, source, LENGTH) for source in sources]
    assert len({tuple(answer) for answer in answers}) >= 4


def test_neither_order_nor_batches_matter(sources: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    together = greedy(model, sources, LENGTH)
    assert greedy(model, sources[::-1], LENGTH) == together[::-1]
    monkeypatch.setattr(greedy_module, "DECODE_TOKENS", 1)
    assert greedy(model, sources, LENGTH) == together


def test_the_end_of_the_sentence_is_no_part_of_the_answer(sources: list[list[int]]) -> None:
    model = make_model(tie_embeddings=False)
    with torch.no_grad():
        model.projection.weight[SHAPE.eos_id] = 0.7 * model.projection.weight.abs().sum(0)
    answers = greedy(model, sources, LENGTH)
    assert min(map(len, answers)) < LENGTH
    assert all(SHAPE.eos_id not in answer for answer in answers)


def test_an_answer_has_at_most_max_length_tokens(sources: list[list[int]]) -> None:
    assert max(map(len, greedy(make_model(), sources, 3))) == 3


def test_nothing_gives_nothing() -> None:
    assert greedy(make_model(), [], LENGTH) == []


def test_a_prefix_is_given_and_what_follows_is_searched(sources: list[list[int]]) -> None:
    model = make_model()
    free, forced = greedy(model, sources, LENGTH), greedy(model, sources, LENGTH, prefix=(9, SHAPE.eos_id, 11))
    assert [answer[:3] for answer in forced] == [[9, SHAPE.eos_id, 11]] * len(sources)
    assert max(map(len, forced)) == LENGTH
    assert [answer[3:] for answer in forced] != [answer[3:] for answer in free]
    for source, answer in zip(sources[:4], free, strict=False):
        assert greedy(model, [source], LENGTH, prefix=answer[:5]) == [answer]
    assert greedy(model, sources, 2, prefix=(9, 10, 11)) == [[9, 10]] * len(sources)


def test_suppressed_ids_are_never_given_but_in_a_prefix(sources: list[list[int]]) -> None:
    model = make_model()
    used = {token for answer in greedy(model, sources, LENGTH) for token in answer}
    suppressed = sorted(used)[:5]
    answers = greedy(model, sources, LENGTH, prefix=suppressed[:1], suppressed=suppressed)
    assert all(answer[0] == suppressed[0] and not set(answer[1:]).intersection(suppressed) for answer in answers)
