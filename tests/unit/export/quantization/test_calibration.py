"""Calibration in PyTorch: balanced channels, ranges, scales for each row, corrected rounding."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from triptych_export.graphs.input_scales import InputScale
from triptych_export.graphs.weight_folding import cache_scales
from triptych_export.quantization import calibration
from triptych_export.quantization.calibration import (
    BlockGrid,
    Record,
    StepGrid,
    calibrate,
    calibrate_blocks,
    choose_scale,
    round_weights,
)
from triptych_export.quantization.four_bit import is_rounded, quantize_blocks
from triptych_training.models.gpt import Gpt, GptConfig, GptLayer
from triptych_training.models.transformer import Transformer, TransformerConfig

SOURCES, ANSWERS = [[5, 7, 9, 11, 2], [8, 6, 2], [12, 13, 14, 2]], [[6, 8, 10], [9], [14, 12, 5, 7]]
SAMPLES = [(torch.tensor([source]), torch.tensor([[1, *answer]])) for source, answer in zip(SOURCES, ANSWERS, strict=True)]
OUTLIER = 2_000.0
VARIANTS: dict[str, dict[str, Any]] = {
    "pre-norm": {"norm": "pre"},
    "gated, rms norm": {"norm": "pre", "gated": True, "activation": "gelu", "norm_kind": "rms", "bias": False},
    "post-norm": {"norm": "post"},
}


def record(rows: Tensor) -> Record:
    return Record(rows, rows.amin(0), rows.amax(0))


def correlated() -> Tensor:
    """Make 600 rows of 48 channels."""
    torch.manual_seed(4)
    return torch.randn(600, 12) @ torch.randn(12, 48) + 0.1 * torch.randn(600, 48)


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request: pytest.FixtureRequest) -> Transformer:
    """A model with a few large channels in each input that can be balanced, and small weights that read it."""
    torch.manual_seed(1)
    model = Transformer(
        TransformerConfig(40, 16, 2, 32, encoder_layers=1, decoder_layers=1, max_positions=16, dropout=0.0, **request.param)
    ).eval()
    for balance in calibration._balances(model):
        [(producer, rows)] = balance.producers
        factors = torch.ones(len(next(producer.parameters())[rows]))
        factors[1::8] = 1 / OUTLIER  # several, since a ReLU may close one for all sentences
        calibration._apply(balance, [model.get_submodule(name) for name in balance.readers], factors)
    return model


@torch.no_grad()
def test_outliers_are_balanced_and_every_projection_is_marked(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    scales: list[InputScale] = []
    monkeypatch.setattr(calibration, "set_input_scale", lambda linear, scale: scales.append(scale))  # the copy can be run
    balanced = calibrate(model, SAMPLES, 7)
    projections = list(calibration._linears(model))
    assert len(scales) == len(projections)
    assert all(scale.scale > 0 for scale in scales)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    largest = [_largest_input(each, name) for each in (model, balanced) for name in _balanced_names(model)]
    half = len(largest) // 2
    assert min(largest[:half]) > 50
    assert max(largest[half:]) < 0.3 * min(largest[:half])
    source, target = torch.tensor(SOURCES[:1]), torch.tensor([[1, *ANSWERS[0]]])
    expected, found = model(source, target), balanced(source, target)
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()  # weights of 7 bits
    largest_outputs = calibration._record(balanced, SAMPLES)[1]
    for attention, name in calibration._cached(balanced):
        both = torch.cat(cache_scales(attention))
        torch.testing.assert_close(127 * both, largest_outputs[name][-len(both) :], rtol=0.1, atol=0.1)


def _balanced_names(model: Transformer) -> list[str]:
    return [balance.readers[0] for balance in calibration._balances(model)]


def _largest_input(model: Transformer, name: str) -> float:
    found = calibration._record(model, SAMPLES)[0][name]
    magnitudes = torch.maximum(found.high, -found.low)
    return float(magnitudes.max() / magnitudes.median())


def test_a_tied_table_takes_the_rounded_weights_of_its_projection() -> None:
    torch.manual_seed(2)
    model = Gpt(GptConfig(40, 16, heads=2, feedforward_dim=32, layers=1, max_positions=16)).eval()
    found = calibrate(model, [(torch.randint(40, (1, 16)),) for _ in range(8)], weight_bits=7)
    assert found.tokens.weight is found.projection.weight
    assert model.tokens.weight is model.projection.weight
    assert not torch.equal(found.tokens.weight, model.tokens.weight)


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_of_encoder_and_decoder_take_the_rounded_weights_if_tied(tied: bool) -> None:
    config = TransformerConfig(40, 16, 2, 32, encoder_layers=1, decoder_layers=1, max_positions=16, tie_embeddings=tied)
    model = Transformer(config).eval()
    found = calibrate(model, SAMPLES, 7)
    for name in ("encoder.embedding.tokens", "decoder.embedding.tokens"):
        assert (found.get_submodule(name).weight is found.projection.weight) == tied
        assert torch.equal(found.get_submodule(name).weight, model.get_submodule(name).weight) != tied


def test_corrected_weights_are_better_on_other_rows_and_keep_their_steps() -> None:
    rows = correlated()
    weight = torch.randn(20, 48)
    weight[7] = 0
    rounded = round_weights(weight, rows[:400], partial(StepGrid, limit=64))
    steps = rounded.abs().amax(1, keepdim=True).clamp_min(1e-30) / 64
    torch.testing.assert_close(steps[:7], weight.abs().amax(1, keepdim=True)[:7] / 64)
    torch.testing.assert_close(rounded / steps, (rounded / steps).round(), atol=1e-4, rtol=0)
    plain = (weight / steps).round() * steps
    exact, unseen = rows[400:] @ weight.T, rows[400:]
    assert (unseen @ rounded.T - exact).square().sum() < 0.5 * (unseen @ plain.T - exact).square().sum()
    assert not rounded[7].any()


def test_inputs_wider_than_the_limit_are_rounded_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "WIDEST", 8)
    weight = torch.randn(4, 9)
    steps = weight.abs().amax(1, keepdim=True) / 64
    rounded = round_weights(weight, torch.randn(40, 9), partial(StepGrid, limit=64))
    torch.testing.assert_close(rounded, (weight / steps).round() * steps)


def test_corrected_blocks_are_better_on_other_rows_and_recognized() -> None:
    rows = correlated()
    rows = torch.cat([rows, rows.flip(1)], 1)[:, :96]
    weight = torch.randn(20, 96)
    weight[7], weight[8] = 0, weight[8].abs() + 3
    rounded, plain = round_weights(weight, rows[:400], BlockGrid), BlockGrid(weight).rounded()
    assert is_rounded(rounded.numpy())
    assert quantize_blocks(rounded.numpy()).added is None  # zero points are whole numbers
    exact, unseen = rows[400:] @ weight.T, rows[400:]
    assert (unseen @ rounded.T - exact).square().sum() < 0.5 * (unseen @ plain.T - exact).square().sum()


@pytest.mark.parametrize(("head_dim", "moved"), [(16, False), (24, True)])
def test_blocks_of_a_decoder_are_those_of_its_graph(head_dim: int, moved: bool) -> None:
    """Heads of 24 channels are padded to 32, which moves the inputs of the output projection to other blocks."""
    model = Gpt(GptConfig(40, model_dim=32, heads=4, head_dim=head_dim, layers=1, feedforward_dim=64, max_positions=16)).eval()
    found = calibrate_blocks(model, [(torch.randint(40, (1, 16)),) for _ in range(8)])
    [layer] = found.blocks
    assert isinstance(layer, GptLayer)
    assert torch.equal(found.projection.weight, model.projection.weight)
    assert is_rounded(layer.attention.output.weight.detach().numpy()) != moved
    assert is_rounded(layer.attention.query_key_value.weight.numpy())
    assert is_rounded(layer.feedforward.contract.weight.numpy())


@pytest.mark.parametrize(
    ("low", "high", "zero_point"), [(0.0, 5.0, 0), (-5.0, 0.0, 255), (-4.0, 4.0, 128), (1.0, 3.0, 0), (0.0, 0.0, 0)]
)
def test_the_range_contains_zero_and_most_values(low: float, high: float, zero_point: int) -> None:
    rows = torch.linspace(low, high, 64).view(16, 4)
    scale = choose_scale(record(rows), torch.randn(6, 4))
    assert abs(scale.zero_point - zero_point) <= 1
    assert (calibration._round(rows, scale) - rows).abs().max() <= 0.51 * scale.scale


def test_rows_of_very_different_sizes_get_scales_of_their_own() -> None:
    torch.manual_seed(2)
    rows, weight = torch.randn(64, 32), torch.randn(8, 32)
    assert choose_scale(record(rows), weight).scale > 0
    rows[:60] *= 0.01
    rows[60:] += 0.3 * rows[60:].sign()
    small = choose_scale(record(rows), weight)
    assert small.scale > 0  # the large rows are nearly all of the product
    assert choose_scale(record(torch.cat([rows[:60]] * 300 + [rows[60:]])), weight) is None
    assert choose_scale(record(torch.cat([rows[:60]] * 300 + [rows[60:]])), weight, static=True).scale > 0
