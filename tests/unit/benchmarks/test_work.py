"""Bytes and operations that are counted from a configuration are those of the model's own weights."""

from pathlib import Path

import pytest
import torch
from onnx import TensorProto, helper, save
from report.work import NOTHING, Work, bert, graph_kernels, translation, translation_encoder, translation_step, vit

from triptych_training.models.bert import BertConfig
from triptych_training.models.transformer import Transformer, TransformerConfig
from triptych_training.models.vit import VitConfig

CONFIG = TransformerConfig(1_000, 64, 4, 256, 3, 2, max_positions=32)
HALF = 2


def matrices(module: torch.nn.Module) -> int:
    """Weights of all linear layers."""
    return sum(part.weight.numel() for part in module.modules() if isinstance(part, torch.nn.Linear))


def test_a_step_reads_every_matrix_of_the_decoder_once_but_those_of_the_sources() -> None:
    model = Transformer(CONFIG)
    sources = sum(layer.cross_attention.key_value.weight.numel() for layer in model.decoder.layers)  # type: ignore[union-attr]
    weights = matrices(model.decoder) - sources + model.projection.weight.numel()
    caches = 2 * CONFIG.decoder_layers * CONFIG.model_dim * (7 + 1 + 20 + 1)  # seen targets and sources, and what is written
    assert translation_step(CONFIG, [20], 7).bytes == HALF * (weights + caches)


def test_an_encoder_multiplies_every_token_with_every_matrix() -> None:
    model = Transformer(CONFIG)
    sources = sum(layer.cross_attention.key_value.weight.numel() for layer in model.decoder.layers)  # type: ignore[union-attr]
    attention = 4 * CONFIG.encoder_layers * CONFIG.model_dim * (10**2 + 4**2)
    assert translation_encoder(CONFIG, [10, 4]).flops == 2 * 14 * (matrices(model.encoder) + sources) + attention


def test_a_batch_is_stepped_until_the_longest_is_complete() -> None:
    alone = translation(CONFIG, [10], [3]).kernels - translation(CONFIG, [10], [2]).kernels
    assert translation(CONFIG, [10, 10], [2, 3]).kernels == translation(CONFIG, [10], [3]).kernels
    assert alone == translation_step(CONFIG, [10], 2).kernels
    assert translation(CONFIG, [10, 10], [2, 3]).flops < translation(CONFIG, [10, 10], [3, 3]).flops


def test_beams_are_rows() -> None:
    four = translation(CONFIG, [10], [3], beam=4)
    encoder = translation_encoder(CONFIG, [10])
    steps = translation(CONFIG, [10] * 4, [3] * 4).flops - translation_encoder(CONFIG, [10] * 4).flops
    assert four.flops - encoder.flops == steps


@pytest.mark.parametrize(("found", "published"), [(bert(BertConfig(30_522), [128], 1), 22.4), (vit(VitConfig(1_000), 1), 35.1)])
def test_known_models_have_their_published_counts(found: Work, published: float) -> None:
    """BERT-base with 128 tokens: 22.5 billion operations; ViT-B/16: 17.6 billion multiplications."""
    assert found.flops / 1e9 == pytest.approx(published, rel=0.01)


def test_work_adds_up() -> None:
    one = Work(1, 2, 3)
    assert NOTHING + one + one == one.times(2) == Work(2, 4, 6)


def test_nodes_that_only_rename_are_no_kernels(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    save(helper.make_model(helper.make_graph(nodes, "graph", values[:1], values[1:])), tmp_path / "graph.onnx")
    assert graph_kernels(tmp_path / "graph.onnx") == 1
