"""Reranking with a classifier of pairs that has one label."""

from pathlib import Path
from typing import Any

import pytest

from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.models.text.tasks import RERANK_TASK, TEXT_CLASSIFICATION_TASK
from triptych_serving.models.text.text_model import TextModel

from ...encoders import text_model

DOCUMENTS = ["one two", "one two three four", "one", "two one"]
SIGMOID = {-1: 0.268941, 0: 0.5, 2: 0.880797}


@pytest.fixture(params=[True, False], ids=["logits", "bundles of earlier exports"])
def model(request: pytest.FixtureRequest, repository: Path) -> Any:
    with text_model(repository, "text-classification", labels=["relevant"], pairs=True, logits=request.param) as model:
        yield model


def rerank(model: TextModel, documents: list[str], query: str = "zero", **options: Any) -> Any:
    return model.run(RERANK_TASK, [(query, document) for document in documents], **options)


def test_documents_come_best_first_and_equal_ones_in_order(model: TextModel) -> None:
    results = rerank(model, DOCUMENTS)
    assert [result.index for result in results] == [1, 0, 3, 2]
    assert [result.score for result in results] == pytest.approx([SIGMOID[2], SIGMOID[0], SIGMOID[0], SIGMOID[-1]], abs=1e-6)
    assert [result.token_count for result in results] == [8, 6, 6, 5]
    assert rerank(model, DOCUMENTS, top_k=2) == results[:2]
    assert rerank(model, DOCUMENTS, top_k=9) == results
    [labels] = model.run(TEXT_CLASSIFICATION_TASK, [("zero", "one")])
    assert labels.labels[0].score == pytest.approx(SIGMOID[-1], abs=1e-6)


def test_raw_scores_are_logits(model: TextModel) -> None:
    if not model.manifest.logits:
        with pytest.raises(UnsupportedError, match="raw_scores: the model's bundle has no logits; export it again"):
            rerank(model, DOCUMENTS, raw_scores=True)
        with pytest.raises(UnsupportedError, match="raw_scores"):
            model.run(TEXT_CLASSIFICATION_TASK, [("zero", "one")], raw_scores=True)
        return
    [labels] = model.run(TEXT_CLASSIFICATION_TASK, [("zero", "one")], raw_scores=True)
    assert labels.labels[0].score == pytest.approx(-1)
    assert [result.score for result in rerank(model, DOCUMENTS, raw_scores=True)] == pytest.approx([2, 0, 0, -1])
    # The sigmoid of both is 1 in float32.
    assert [result.index for result in rerank(model, ["one " * 40, "one " * 50])] == [1, 0]


def test_long_documents_are_truncated_on_request(model: TextModel) -> None:
    whole, short = rerank(model, ["one", "two " * 500], truncate=True)
    assert (whole.index, whole.truncated, whole.token_count) == (1, True, model.manifest.limits.max_tokens)
    assert (short.truncated, short.token_count) == (False, 5)


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        (["one"], {"query": " "}, "^query: the text is empty"),
        (["one", ""], {}, r"^documents\[1\]: the text is empty"),
        (["one", "one " * 99], {}, r"^documents\[1\]: 103 tokens, with those of the query, are too long"),
        (["one"], {"top_k": 0}, "^top_k: 0 is out of range"),
    ],
)
def test_bad_requests_name_the_field(model: TextModel, documents: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        rerank(model, documents, **options)


@pytest.mark.parametrize("members", [{"pairs": False}, {"labels": ["no", "yes"]}])
def test_other_classifiers_do_not_rerank(repository: Path, members: dict[str, Any]) -> None:
    with text_model(repository, "text-classification", **{"labels": ["yes"], "pairs": True, **members}) as model:
        assert model.capabilities == {"text-classification", "embedding"}
