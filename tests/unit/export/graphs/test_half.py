"""Modules in float16."""

import pytest
import torch
from torch import nn

from triptych_export.errors import RangeError
from triptych_export.graphs.half import LARGEST, halve
from triptych_export.graphs.image_stems import PatchStem, PixelStem
from triptych_training.models.transformer import Transformer, TransformerConfig
from triptych_training.models.vit import ConvolutionStem, VitConfig

MEAN, STD = (0.5, 0.45, 0.4), (0.25, 0.3, 0.35)


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(3)
    shape = TransformerConfig(60, model_dim=16, heads=2, feedforward_dim=32, encoder_layers=1, decoder_layers=1, dropout=0.0)
    return Transformer(shape).eval()


def test_floats_are_halved_and_the_original_stays(model: Transformer) -> None:
    model.register_buffer("numbers", torch.arange(3))
    half = halve(model)
    kinds = {tensor.dtype for tensor in (*half.parameters(), *half.buffers())}
    assert kinds == {torch.float16, torch.int64}
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    assert isinstance(half.get_buffer("numbers"), torch.Tensor)


def test_what_stays_keeps_its_type_though_others_share_it(model: Transformer) -> None:
    half = halve(model, lambda name: name.startswith("projection."))
    assert model.projection.weight is model.decoder.embedding.tokens.weight
    assert half.projection.weight.dtype == torch.float32
    assert torch.equal(half.projection.weight, model.projection.weight)
    assert half.decoder.embedding.tokens.weight.dtype == torch.float16


def test_shared_tensors_are_shared_halved_too() -> None:
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    half = halve(nn.ModuleList((first, second)))
    assert half[0].weight is half[1].weight
    assert half[0].bias is not half[1].bias


def test_the_embedding_s_scale_moves_into_its_vectors_before_they_are_rounded(model: Transformer) -> None:
    half = halve(model)
    for ours, theirs in ((half.encoder, model.encoder), (half.decoder, model.decoder)):
        assert ours.embedding.scale == 1.0
        assert theirs.embedding.scale == 4.0
        assert torch.equal(ours.embedding.tokens.weight, (4 * theirs.embedding.tokens.weight).half())


def test_a_weight_beyond_float16_is_named(model: Transformer) -> None:
    with torch.no_grad():
        model.decoder.layers[0].feedforward.expand.weight[2, 3] = -70_000
    with pytest.raises(RangeError) as caught:
        halve(model)
    assert str(caught.value) == (
        "fp16: decoder.layers.0.feedforward.expand.weight reaches 70,000, beyond float16's largest number, 65,504"
    )
    assert halve(model, lambda name: "expand" in name).decoder.layers[0].feedforward.expand.weight.dtype == torch.float32


def test_infinities_that_are_meant_pass() -> None:
    module = nn.Module()
    module.register_buffer("mask", torch.tensor([0.0, -torch.inf, LARGEST]))
    assert halve(module).get_buffer("mask").tolist() == [0.0, -torch.inf, LARGEST]


def test_stems_see_pixels_of_up_to_one_and_answer_the_same() -> None:
    """Weights that belong to bytes are so small that half of float16's bits would be lost."""
    torch.manual_seed(4)
    pixels = torch.randint(256, (2, 16, 16, 3), dtype=torch.uint8)
    convolution = nn.Conv2d(3, 8, 8, 8)
    stems = [
        PatchStem(convolution, (16, 16), MEAN, STD),
        PixelStem(ConvolutionStem(VitConfig(3, 16, 8, model_dim=16, heads=2)).eval(), MEAN, STD),
    ]
    for stem in stems:
        before = stem(pixels)
        stem.shrink_pixels()
        torch.testing.assert_close(stem(pixels), before, rtol=0, atol=1e-5)
        assert stem.unit == 1 / 256
        half = halve(stem)
        assert {tensor.dtype for tensor in half.parameters()} == {torch.float16}


def test_a_stem_s_weights_keep_their_bits() -> None:
    torch.manual_seed(4)
    convolution = nn.Conv2d(3, 8, 8, 8)
    convolution.weight = nn.Parameter(convolution.weight.detach() * 0.01)
    exact = PatchStem(convolution, (16, 16), MEAN, STD).weight.detach()
    found = halve(PatchStem(convolution, (16, 16), MEAN, STD)).weight.float() / 256
    error = float((found - exact).norm() / exact.norm())
    assert error < 2**-11
    assert float((exact.half().float() - exact).norm() / exact.norm()) > 5 * error
