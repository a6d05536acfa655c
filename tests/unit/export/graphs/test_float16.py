"""Conversion of modules to float16, and the check that activations fit."""

import pytest
import torch
from torch import nn

from triptych_export.errors import RangeError
from triptych_export.graphs.float16 import LARGEST, check_activations, to_float16
from triptych_export.graphs.image_stems import PatchStem, PixelStem
from triptych_training.models.transformer import Transformer, TransformerConfig
from triptych_training.models.vit import ConvolutionStem, VitConfig

MEAN, STD = (0.5, 0.45, 0.4), (0.25, 0.3, 0.35)


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(3)
    shape = TransformerConfig(60, model_dim=16, heads=2, feedforward_dim=32, encoder_layers=1, decoder_layers=1, dropout=0.0)
    return Transformer(shape).eval()


def test_floats_are_converted_and_the_original_is_unchanged(model: Transformer) -> None:
    model.register_buffer("numbers", torch.arange(3))
    half = to_float16(model)
    assert {tensor.dtype for tensor in (*half.parameters(), *half.buffers())} == {torch.float16, torch.int64}
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}


def test_a_kept_tensor_stays_float32_even_if_shared(model: Transformer) -> None:
    half = to_float16(model, lambda name: name.startswith("projection."))
    assert model.projection.weight is model.decoder.embedding.tokens.weight
    assert half.projection.weight.dtype == torch.float32
    assert torch.equal(half.projection.weight, model.projection.weight)
    assert half.decoder.embedding.tokens.weight.dtype == torch.float16


def test_shared_tensors_stay_shared() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    half = to_float16(nn.ModuleList((first, second)))
    assert half[0].weight is half[1].weight
    assert half[0].bias is not half[1].bias


def test_the_embedding_scale_is_folded_into_the_vectors_before_rounding(model: Transformer) -> None:
    half = to_float16(model)
    for ours, theirs in ((half.encoder, model.encoder), (half.decoder, model.decoder)):
        assert (ours.embedding.scale, theirs.embedding.scale) == (1.0, 4.0)
        assert torch.equal(ours.embedding.tokens.weight, (4 * theirs.embedding.tokens.weight).half())


def test_a_weight_beyond_float16_is_rejected_unless_kept(model: Transformer) -> None:
    with torch.no_grad():
        model.decoder.layers[0].feedforward.expand.weight[2, 3] = -70_000
    with pytest.raises(RangeError) as caught:
        to_float16(model)
    assert str(caught.value).startswith(
        "fp16: decoder.layers.0.feedforward.expand.weight: 70,000 exceeds float16's largest number, 65,504; export this"
    )
    kept = to_float16(model, lambda name: "expand" in name).decoder.layers[0].feedforward.expand
    assert kept.weight.dtype == torch.float32


def test_infinities_are_allowed() -> None:
    module = nn.Module()
    module.register_buffer("mask", torch.tensor([0.0, -torch.inf, LARGEST]))
    assert to_float16(module).get_buffer("mask").tolist() == [0.0, -torch.inf, LARGEST]


@pytest.mark.parametrize("kind", ["patch", "convolution", "deep"])
@torch.no_grad()
def test_stems_of_bytes_give_what_the_model_s_stem_gives_and_scale_pixels_for_float16(kind: str) -> None:
    torch.manual_seed(4)
    pixels = torch.randint(256, (2, 16, 16, 3), dtype=torch.uint8)
    config = VitConfig(3, 16, 8, model_dim=16, heads=2, stem=kind)
    own = nn.Conv2d(3, 8, 8, 8) if kind == "patch" else ConvolutionStem(config).eval()
    for norm in own.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.weight, norm.bias, norm.running_mean):
                values.normal_()
            norm.running_var.uniform_(0.5, 2)
    centre, scale = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    expected = own((pixels.permute(0, 3, 1, 2) / 255 - centre) / scale).flatten(2).transpose(1, 2)
    stem = PatchStem(own, (16, 16), MEAN, STD) if isinstance(own, nn.Conv2d) else PixelStem(own, MEAN, STD)
    torch.testing.assert_close(stem(pixels) + stem.bias, expected, rtol=0, atol=1e-4)
    before = stem(pixels)
    stem.shrink_pixels()
    torch.testing.assert_close(stem(pixels), before, rtol=0, atol=1e-5)
    assert stem.unit == 1 / 256
    assert {tensor.dtype for tensor in to_float16(stem).parameters()} == {torch.float16}


def test_small_stem_weights_keep_their_precision() -> None:
    torch.manual_seed(4)
    convolution = nn.Conv2d(3, 8, 8, 8)
    convolution.weight = nn.Parameter(convolution.weight.detach() * 0.01)
    exact = PatchStem(convolution, (16, 16), MEAN, STD).weight.detach()
    found = to_float16(PatchStem(convolution, (16, 16), MEAN, STD)).weight.float() / 256
    error = float((found - exact).norm() / exact.norm())
    assert error < 2**-11
    assert float((exact.half().float() - exact).norm() / exact.norm()) > 5 * error


def scaling_layers(*factors: float) -> nn.Sequential:
    module = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in factors))
    with torch.no_grad():
        for layer, factor in zip(module, factors, strict=True):
            layer.weight.fill_(factor)
    return module


def test_activations_in_range_pass_and_hooks_are_removed() -> None:
    module = scaling_layers(1_000, 65)
    with check_activations(module):
        module(torch.tensor([[1.0], [-1.0]]))
    assert not any(layer._forward_hooks for layer in module)


def test_the_first_layer_out_of_range_is_named() -> None:
    module = scaling_layers(10, 10_000, 2)
    with (
        pytest.raises(RangeError, match=r"^fp16: activations of 1: 1,200,000 exceeds float16's largest number, 65,504; export"),
        check_activations(module),
    ):
        module(torch.tensor([[1.0], [-12.0], [3.0]]))


def test_inputs_of_a_layer_are_checked_too() -> None:
    module = nn.Sequential(nn.LayerNorm(2))
    with pytest.raises(RangeError, match="activations of 0: 70,000"), check_activations(module):
        module(torch.tensor([[0.0, 70_000.0]]))


def test_infinite_masks_and_integers_are_not_activations() -> None:
    module = nn.Sequential(nn.Embedding(80_000, 1))
    with check_activations(module), torch.no_grad():
        module[0].weight.fill_(-torch.inf)
        module(torch.tensor([79_999]))


def test_other_errors_pass_through_and_hooks_are_removed() -> None:
    module = scaling_layers(100_000)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), check_activations(module):
        module(torch.ones(1, 2))
    assert not module[0]._forward_hooks
