"""Attention of the committed toy models: weights, tokens and patches."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import AlignmentHeads
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import InvalidInputError, UnavailableError, UnsupportedError
from triptych_serving.models.attention import AttentionInput, attend, patch_grid
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.decode_scheduler import DecodeLimits

from ....fixtures.encoders import png
from ....fixtures.half import HALF_BUNDLE
from ....fixtures.toy import BUNDLE, ENCODER_MODELS, SOURCE, TARGET

BERT, VIT = (ENCODER_MODELS / name / "1" for name in ("toy-bert", "toy-vit"))


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with closing(Translator("toy", 1, open_bundle(BUNDLE), DecodeModelOptions("fp32"))) as model:
        yield model


def test_translation(translator: Translator) -> None:
    assert translator.attender.engines == ()  # nothing is loaded for requests of other kinds
    found = attend(translator, AttentionInput(SOURCE))
    assert found.target == TARGET
    sources, targets, shape = len(found.source_tokens), len(found.target_tokens), translator.manifest.decoder
    assert found.decoder is not None
    assert found.cross is not None
    assert found.encoder.shape[2:] == (sources, sources)
    assert found.decoder.shape == (shape.layers, shape.heads, targets, targets)
    assert found.cross.shape == (shape.layers, shape.heads, targets, sources)
    for weights in (found.encoder, found.decoder, found.cross):
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert not np.triu(found.decoder, 1).any()  # no target sees later ones
    assert found.alignment == AlignmentHeads(shape.layers - 1, tuple(range(shape.heads)))
    for text, tokens in ((SOURCE, found.source_tokens), (TARGET, found.target_tokens)):
        assert "".join(text[token.start : token.end] for token in tokens) == text.replace(" ", "")
    other = attend(translator, AttentionInput(SOURCE, target="Nichts."))
    assert (other.target, len(other.target_tokens) < targets) == ("Nichts.", True)
    np.testing.assert_array_equal(other.encoder, found.encoder)


def test_text() -> None:
    with closing(TextModel("toy-bert", 1, open_bundle(BERT))) as bert:
        found = attend(bert, AttentionInput("The man sees the [MASK].", text_pair=""))
        pair = attend(bert, AttentionInput("Nobody", text_pair="sees nothing."))
    assert [token.text for token in found.source_tokens][::7] == ["[CLS]", "[SEP]"]
    assert "[MASK]" in [token.text for token in found.source_tokens]
    np.testing.assert_allclose(found.encoder.sum(-1), 1, atol=1e-5)
    assert [token.text for token in pair.source_tokens if token.in_pair] == ["sees", "nothing", "."]


def test_image() -> None:
    image = png((10, 200, 20))
    with closing(ImageModel("toy-vit", 1, open_bundle(VIT))) as model:
        found = attend(model, AttentionInput(image=image))
        assert found.encoder.shape[-1] == 1 + found.patch_rows * found.patch_columns > 1
        with pytest.raises(InvalidInputError, match="text: does not apply to model 'toy-vit'"):
            attend(model, AttentionInput("a"))
    with pytest.raises(UnavailableError):
        attend(model, AttentionInput(image=image))


@pytest.mark.parametrize(
    ("positions", "height", "width", "grid"),
    [(197, 224, 224, (14, 14)), (198, 224, 224, (14, 14)), (19, 96, 48, (6, 3)), (13, 28, 42, (0, 0))],
    ids=["vit", "deit with teacher", "oblong image", "oblong patches"],
)
def test_patch_grid(positions: int, height: int, width: int, grid: tuple[int, int]) -> None:
    assert patch_grid(positions, height, width) == grid


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"text": ""}, "text: the text is empty"),
        ({"text": "a", "text_pair": "b"}, r"text_pair: does not apply to model 'toy' \(translation\), which takes `text`"),
        ({"text": SOURCE, "target": " ".join([TARGET] * 40)}, "target: .* too long"),
        ({"text": SOURCE, "target": TARGET, "target_language": "fr"}, "target_language_code"),
    ],
)
def test_bad_inputs_are_named(translator: Translator, given: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        attend(translator, AttentionInput(**given))


def small(kind: Any, folder: Path) -> Any:
    """A model whose responses have at most 1 MiB."""
    if kind is Translator:
        engine = EngineOptions(limits=replace(DecodeLimits(), result_bytes=1 << 20))
        return Translator("toy", 1, open_bundle(folder), DecodeModelOptions("fp32", engine))
    return kind("toy", 1, open_bundle(folder), EncoderOptions(limits=BatchLimits(result_bytes=1 << 20)))


@pytest.mark.parametrize(
    ("kind", "folder", "given", "message"),
    [
        (Translator, BUNDLE, {"text": SOURCE}, r"text: .*\(encoder 2 x 2 x .* send a shorter text"),
        (TextModel, BERT, {"text": "Nobody"}, r"text: .*\(encoder 2 x 2 x .* send a shorter text"),
        (ImageModel, VIT, {"image": b"?"}, r"image: .*\(encoder 2 x 2 x 17 x 17: .* use a model with"),
    ],
)
def test_size_is_bounded(kind: Any, folder: Path, given: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triptych_serving.models.attention.run_rows", None)  # nothing is computed
    with closing(small(kind, folder)) as model:
        with pytest.raises(InvalidInputError, match=message) as error:
            attend(model, AttentionInput(**given))
        assert "at most 1,048,576 fit into a response (--max-message-bytes)" in str(error.value)


def test_graphs_of_unknown_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "shape", lambda *_: ("B", 2, 2, "S", "S"))
    with (
        closing(ImageModel("toy-vit", 1, open_bundle(VIT))) as model,
        pytest.raises(UnsupportedError, match="'toy-vit' does not tell its sizes; add one with `triptych export BUNDLE"),
    ):
        attend(model, AttentionInput(image=b"?"))


def test_bundles_without_the_graph_are_told_apart() -> None:
    message = "has no attention graph; add one with `triptych export BUNDLE"
    model = Translator("toy", 1, open_bundle(HALF_BUNDLE), DecodeModelOptions("fp32"))
    with closing(model), pytest.raises(UnsupportedError, match=message):
        attend(model, AttentionInput(SOURCE))
