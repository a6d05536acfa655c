"""Attention graphs of imported checkpoints: the weights are those of transformers.

test_huggingface_translation compares those of encoder-decoder models.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from triptych_export.bundle_files import write_graph
from triptych_export.families import translation as translation_family
from triptych_export.families.alignment import AlignmentChoice, cross_attention
from triptych_export.families.translation import write_translation
from triptych_export.graphs.attention import write_attention_graph
from triptych_export.graphs.lazy_graph import Graph
from triptych_export.graphs.tracing import trace_image, trace_text
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_export.quantization.weights_file import WeightsFile
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import AlignmentHeads
from triptych_serving.models.attention import AttentionInput
from triptych_serving.models.attention import attend as attend_with
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.session import Array, Session
from triptych_training.checkpoints.encoder import ImageCheckpoint, TextCheckpoint
from triptych_training.checkpoints.translation import load_checkpoint

from ..fixtures.toy import HERE, PAIRS, SOURCE, TARGET
from .test_huggingface_images import QUICK, pictures, processor, save
from .test_huggingface_images import build as build_classifier
from .test_huggingface_text import BERT, DISTILBERT, MODERNBERT, ROBERTA, Family, build
from .text_checkpoints import save_checkpoint

TOLERANCE = 1e-4


def attend(graph: Graph, folder: Path, inputs: Mapping[str, Array], precision: str = "fp32") -> dict[str, Array]:
    """Write a graph and its attention graph; return the weights of one input, `[L, H, T, S]`."""
    write_graph(graph, folder / "whole.onnx", WeightsFile(folder / "weights.bin"), precision)
    before = (folder / "weights.bin").stat().st_size
    write_attention_graph(folder / "whole.onnx", folder / "attend.onnx")
    session = Session(folder / "attend.onnx")
    read = {name: inputs[name] for name in session.inputs}
    outputs = dict(zip(session.outputs, session.run(read, session.outputs), strict=True))
    for weights in outputs.values():
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5 if precision != "fp16" else 2e-3)
    assert (folder / "weights.bin").stat().st_size == before  # the weights are shared
    return {name: weights[0] for name, weights in outputs.items()}


def check(ours: Array, theirs: Sequence[torch.Tensor], precision: str = "fp32") -> None:
    """Compare with the layers of transformers; other precisions than fp32 in the mean."""
    expected = torch.stack(list(theirs), 1)[0].numpy()
    if precision == "fp32":
        np.testing.assert_allclose(ours, expected, atol=TOLERANCE)
    assert np.abs(ours - expected).mean() < ours.std() / 5
    assert ours.std() > 0.02  # not uniform


@torch.no_grad()
def theirs(model: Any, **inputs: Any) -> Any:
    model.set_attn_implementation("eager")  # the only one that returns weights
    return model(**inputs, output_attentions=True)


TEXT = [(BERT, "int8"), (MODERNBERT, "fp32")]
MORE_TEXT = [
    (BERT, "fp32"),
    (ROBERTA, "fp32"),
    (DISTILBERT, "fp32"),
    (BERT, "int8-weights"),
    (MODERNBERT, "int8"),
    (MODERNBERT, "fp16"),
]


@pytest.mark.parametrize(
    ("family", "precision"),
    [*TEXT, *(pytest.param(*case, marks=pytest.mark.full) for case in MORE_TEXT)],
    ids=lambda value: getattr(value, "name", value),
)
def test_text(family: Family, precision: str, tmp_path: Path) -> None:
    model: PreTrainedModel = build(family, "ForMaskedLM", num_hidden_layers=2)
    save_checkpoint(model, family.tokenizer(), tmp_path / "theirs")
    checkpoint = load(Folder(tmp_path / "theirs"))
    assert isinstance(checkpoint, TextCheckpoint)
    ids = torch.randint(9, 200, (1, 21))
    inputs = {"ids": ids.int().numpy(), "segments": np.zeros((1, 21), np.int32)}
    ours = attend(trace_text(checkpoint.model, half=precision == "fp16"), tmp_path, inputs, precision)
    check(ours["encoder"], theirs(model, input_ids=ids).attentions, precision)


@pytest.mark.parametrize(
    ("name", "precision"), [("deit with teacher", "fp32"), pytest.param("vit", "fp16", marks=pytest.mark.full)]
)
def test_images(name: str, precision: str, tmp_path: Path) -> None:
    case = QUICK[name]
    model = build_classifier(case)
    save(model, case, tmp_path / "theirs")
    checkpoint = load(Folder(tmp_path / "theirs"))
    assert isinstance(checkpoint, ImageCheckpoint)
    mean, std = checkpoint.image.mean, checkpoint.image.std
    picture = pictures()[0].convert("RGB").resize((32, 32))
    pixels = np.asarray(picture)[None].copy()
    prepared = processor(case)(picture, return_tensors="pt", do_resize=False, do_center_crop=False)["pixel_values"]
    ours = attend(trace_image(checkpoint.model, mean, std, half=precision == "fp16"), tmp_path, {"pixels": pixels}, precision)
    check(ours["encoder"], theirs(model, pixel_values=prepared.float()).attentions, precision)
    assert Session(tmp_path / "attend.onnx").shape("encoder")[1:] == ours["encoder"].shape  # known before it runs


@pytest.mark.full
def test_alignments_are_those_of_the_chosen_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = AlignmentChoice(AlignmentHeads(0, (1,)), 0.9, 0.8)
    monkeypatch.setattr(translation_family, "choose_alignment", lambda *_: choice)
    source = TranslationSource.of(load_checkpoint(HERE / "checkpoint"))
    made = write_translation(source, tmp_path / "bundle", lambda line: None, None, PAIRS, ("fp32",), short=False)
    assert made is choice
    with closing(Translator("toy", 1, open_bundle(tmp_path / "bundle"), DecodeModelOptions("fp32"))) as model:
        assert model.manifest.alignment == choice.heads
        [translation] = model.translate([SOURCE], DecodingOptions(return_alignment=True))
        found = attend_with(model, AttentionInput(SOURCE))
    alignment = translation.hypotheses[0].alignment
    assert alignment is not None
    assert found.cross is not None
    np.testing.assert_allclose(alignment, found.cross[0, 1, :-1], atol=TOLERANCE)
    ours = cross_attention(source.model, *teacher_forced(source))
    np.testing.assert_allclose(ours, found.cross, atol=TOLERANCE)


def teacher_forced(source: TranslationSource) -> tuple[list[int], list[int]]:
    """The first pair, as the decoder reads it."""
    ids, answer = (source.tokenizer.encode(text).ids for text in (SOURCE, TARGET))
    return ids, [source.model.config.bos_id, *answer[:-1]]
