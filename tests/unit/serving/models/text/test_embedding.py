"""Vectors of texts and of their tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.models.text.tasks import EMBEDDING_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.scheduling.batch_scheduler import BatchLimits

from ...encoders import text_model


@pytest.fixture
def model(repository: Path) -> Any:
    with text_model(repository, "text-embedding", states=True) as model:
        yield model


def test_normalize_dimensions_and_truncate_apply_to_tokens(model: TextModel) -> None:
    options = {"normalize": True, "dimensions": 3, "truncate": True}
    short, long = model.run(EMBEDDING_TASK, ["four", "one " * 100], token_vectors=True, **options)
    vectors = np.reshape(short.token_values, (3, 3))
    assert np.allclose(vectors[1], np.array([9, 0, 1]) / np.sqrt(82))
    assert (short.truncated, short.token_starts, short.token_ends) == (False, (0, 0, 0), (0, 4, 0))
    assert (long.truncated, len(long.token_values)) == (True, 3 * long.token_count)
    assert [short.values, long.values] == [one.values for one in model.run(EMBEDDING_TASK, ["four", "one " * 100], **options)]


def test_tokens_count_towards_the_size_of_a_response(repository: Path) -> None:
    limits = BatchLimits(result_bytes=200)  # 5 vectors of 36 bytes
    with text_model(repository, "text-embedding", EncoderOptions(limits=limits), states=True) as model:
        assert len(model.run(EMBEDDING_TASK, ["one two"], token_vectors=True)[0].token_values) == 16
        assert len(model.run(EMBEDDING_TASK, ["one two three"] * 2)) == 2
        with pytest.raises(InvalidInputError, match=r"^contents: 6 vectors of 4 numbers may need 216 bytes, at most 200 fit"):
            model.run(EMBEDDING_TASK, ["one two three"], token_vectors=True)


def test_models_without_vectors_of_tokens_refuse(repository: Path) -> None:
    with text_model(repository, "text-embedding") as model, pytest.raises(UnsupportedError, match=r"^token_vectors: "):
        model.run(EMBEDDING_TASK, ["one"], token_vectors=True)
