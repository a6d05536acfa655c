"""Neighbors of words and of sums of words, with a table of vectors."""

from pathlib import Path
from typing import Any

import pytest

from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.models.text.tasks import NEIGHBORS_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.repository.warmup import WarmUp, warm

from ...encoders import text_model


@pytest.fixture
def model(repository: Path) -> Any:
    with text_model(repository, "text-embedding", similarities=True) as model:
        yield model


def find(model: TextModel, query: str, **options: Any) -> list[tuple[str, float]]:
    [result] = model.run(NEIGHBORS_TASK, [query], **options)
    return [(one.token_str, one.score) for one in result.neighbors]


def test_neighbors_are_ranked_without_the_words_of_the_query(model: TextModel) -> None:
    assert model.capabilities == {"embedding", "neighbors"}
    found = find(model, "Three", top_k=3)  # ids 5 to 14; equal scores by id
    assert found == [("two", 127 / 128), ("four", 127 / 128), ("one", 126 / 128)]
    assert len(find(model, "three")) == 10
    assert len(find(model, "three", top_k=1_000)) == model.tokenizer.vocabulary - 1


def test_words_are_added_and_subtracted(model: TextModel) -> None:
    assert find(model, "three -one +one", top_k=1) == [("two", 127 / 128)]
    [result] = model.run(NEIGHBORS_TASK, ["nine -three +two"])  # 14 - 8 + 7
    assert (result.neighbors[0].token, result.neighbors[0].token_str, result.token_count) == (13, "eight", 3)


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (" ", {}, r"^contents\[0\]: 0 words, must be from 1 to 64"),
        ("one " * 65, {}, r"^contents\[0\]: 65 words, must be from 1 to 64"),
        ("one -zzz", {}, r"^contents\[0\]: 'zzz' is not in the model's vocabulary"),
        ("thirteenteen", {}, r"^contents\[0\]: 'thirteenteen' is"),
        ("one", {"top_k": 0}, "^top_k: 0 is out of range, it must be at least 1 and at most 1,000"),
    ],
)
def test_bad_requests_name_the_field(model: TextModel, query: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        find(model, query, **options)


def test_models_without_similarities_refuse(repository: Path) -> None:
    with text_model(repository, "text-embedding") as model, pytest.raises(UnsupportedError, match="similar words; it embeds"):
        find(model, "one")


def test_the_warm_up_has_words_of_the_model(model: TextModel) -> None:
    warm(model, WarmUp.ALL)
