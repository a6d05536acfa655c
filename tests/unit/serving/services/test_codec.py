"""Conversion of translations to messages of `triptych.v1`."""

import numpy as np
import pytest

from triptych.v1 import translation_pb2
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.scheduling.request import Finish
from triptych_serving.services.v1.codec import packed_translation


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (3, 5), (2, 300)])
def test_an_alignment_keeps_its_weights(shape: tuple[int, int]) -> None:
    larger = np.random.default_rng(1).random((shape[0] + 2, shape[1] + 2)).astype(np.float32)
    weights = larger[1:-1, 1:-1]  # not contiguous, as those of a text with a frame
    translation = Translation((TranslationHypothesis("a b", Finish.STOP, 2, alignment=weights),), 2)
    [found] = translation_pb2.Translation.FromString(b"".join(packed_translation(translation))).hypotheses
    assert [list(token.source_weights) for token in found.alignment] == weights.tolist()
    assert (found.text, found.token_count) == ("a b", 2)
