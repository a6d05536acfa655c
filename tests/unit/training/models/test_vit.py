"""Vision Transformer: shapes, stems, distillation token, stochastic depth."""

from typing import Any

import pytest
import torch

from triptych_training.models.blocks import BlockConfig, Residual
from triptych_training.models.vit import ConvolutionStem, Vit, VitConfig

from ....fixtures.noise import stir


def make(**changes: Any) -> Vit:
    torch.manual_seed(1)
    shape = {"classes": 3, "image_size": 16, "patch_size": 4, "model_dim": 16, "heads": 2, "feedforward_dim": 24, "layers": 3}
    return stir(Vit(VitConfig(**{**shape, **changes})))


@pytest.mark.parametrize("stem", ["patch", "convolution", "deep"])
@pytest.mark.parametrize(("image_size", "patch_size"), [(16, 4), (16, 8), (12, 2), (4, 4)])
def test_shapes(stem: str, image_size: int, patch_size: int) -> None:
    model = make(stem=stem, image_size=image_size, patch_size=patch_size)
    images = torch.randn(2, 3, image_size, image_size)
    side = image_size // patch_size
    assert model.stem(images).shape == (2, 16, side, side)
    assert model.config.patches == side**2
    assert model.positions.shape == (side**2 + 1, 16)
    assert model.states(images).shape == (2, side**2 + 1, 16)
    assert model(images).shape == (2, 3)


def test_parameters_of_unusual_shapes() -> None:
    model = make(image_size=16, image_width=24, patch_size=4, patch_width=8)
    assert model.stem(torch.randn(2, 3, 16, 24)).shape == (2, 16, 4, 3)
    assert model.positions.shape == (13, 16)
    assert model(torch.randn(2, 3, 16, 24)).shape == (2, 3)
    names = make(input_bias=False).state_dict()
    assert "layers.0.attention.output.bias" in names
    assert "layers.0.attention.query_key_value.bias" not in names
    stem = ConvolutionStem(VitConfig(3, 16, 4, model_dim=64, heads=2, stem="convolution"))
    convolutions = [layer for layer in stem if isinstance(layer, torch.nn.Conv2d)]
    assert [(layer.out_channels, layer.stride[0]) for layer in convolutions] == [(32, 1), (64, 2), (64, 2)]
    stem = ConvolutionStem(VitConfig(3, 16, 4, model_dim=64, heads=2, stem="deep"))
    assert [layer.out_channels for layer in stem if isinstance(layer, torch.nn.Conv2d)] == [32, 64, 64, 64]


def test_a_distillation_token_affects_the_logits_with_and_without_a_head() -> None:
    model, images = make(distillation_token=True, distillation_head=True), torch.randn(2, 3, 16, 16)
    assert model.positions.shape == (18, 16)
    assert model.distillation_classifier is not None
    states = model.norm(model.states(images))
    assert states.shape == (2, 18, 16)
    mean = (model.classifier(states[:, 0]) + model.distillation_classifier(states[:, 1])) / 2
    torch.testing.assert_close(model(images), mean)
    assert not torch.allclose(model.classifier(states[:, 0]), mean, atol=1e-3)
    model, images = make(distillation_token=True), torch.randn(2, 3, 16, 16)
    before = model(images)
    assert model.distillation_classifier is None
    assert model.distillation_token is not None
    with torch.no_grad():
        model.distillation_token.add_(torch.randn_like(model.distillation_token))
    assert not torch.allclose(model(images), before, atol=1e-3)


def test_the_classifier_reads_the_first_token_or_the_mean_of_the_patches() -> None:
    images = torch.randn(2, 3, 16, 16)
    for pooling, width in (("mean", 16), ("mean-first", 16), ("both", 32)):
        model = make(pooling=pooling, registers=2)
        states = model.states(images)
        assert states.shape == (2, 3 + 16, 16)
        normed = model.norm(states)
        read = {
            "mean": normed[:, 3:].mean(1),
            "mean-first": model.norm(states[:, 3:].mean(1)),
            "both": torch.cat((normed[:, 0], normed[:, 3:].mean(1)), 1),
        }[pooling]
        assert model.classifier.in_features == width
        torch.testing.assert_close(model(images), model.classifier(read))
    model = make(class_token=False, pooling="mean")
    assert model.positions.shape == (16, 16)
    assert "class_token" not in model.state_dict()


def test_drop_path_rises_to_the_last_layer_and_drops_whole_samples() -> None:
    model, images = make(drop_path=0.9), torch.randn(8, 3, 16, 16)
    assert [model.config.block(layer).drop_path for layer in range(3)] == [0.0, 0.45, 0.9]
    assert VitConfig(3, layers=1, drop_path=0.4).block(0).drop_path == 0
    whole = make()(images)
    assert torch.equal(model(images), whole)
    model.train()
    assert not torch.allclose(model(images), whole, atol=1e-3)
    torch.manual_seed(1)
    residual = Residual(BlockConfig(4, 1, 4, norm="pre", drop_path=0.25)).train()
    left = residual.leave(torch.ones(4_000, 2, 4), torch.full((4_000, 2, 4), 3.0))
    dropped, kept = (left == 1).all((1, 2)), (left == 1 + 3 / 0.75).all((1, 2))
    assert bool((dropped | kept).all())
    assert float(dropped.float().mean()) == pytest.approx(0.25, abs=0.03)
