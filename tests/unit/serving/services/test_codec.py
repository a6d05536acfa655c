"""Conversion of translations and embeddings to messages of `triptych.v1`."""

from array import array

import numpy as np
import pytest

from triptych.v1 import embedding_pb2, translation_pb2
from triptych_serving.models.text.embedding import TextEmbedding
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.scheduling.request import Finish
from triptych_serving.services.v1.codec import packed_embedding, packed_translation, packer


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 5), (2, 300)])
def test_an_alignment_keeps_its_weights(shape: tuple[int, int]) -> None:
    larger = np.random.default_rng(1).random((shape[0] + 2, shape[1] + 2)).astype(np.float32)
    weights = larger[1:-1, 1:-1]  # not contiguous, as those of a text with a frame
    translation = Translation((TranslationHypothesis("a b", Finish.STOP, 2, alignment=weights),), 2)
    [found] = translation_pb2.Translation.FromString(b"".join(packed_translation(translation))).hypotheses
    assert [list(token.source_weights) for token in found.alignment] == weights.tolist()
    assert (found.text, found.token_count) == ("a b", 2)


@pytest.mark.parametrize("tokens", [0, 3])
def test_embeddings_whose_numbers_are_copied_are_those_that_are_converted(tokens: int) -> None:
    values = array("f", np.random.default_rng(1).standard_normal(300).astype(np.float32))
    embedding = TextEmbedding(values, 5, bool(tokens), values * tokens, range(tokens), range(2, 2 + tokens))
    convert = packer(embedding_pb2.EmbedTextResponse)
    found, wanted = map(embedding_pb2.EmbedTextResponse.FromString, (packed_embedding(embedding), convert(embedding)))
    assert found == wanted
    assert found.embeddings[0].values == values.tolist()
