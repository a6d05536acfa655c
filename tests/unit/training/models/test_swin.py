"""Swin: shapes and stochastic depth; tests/parity compares windows, shifts and merging with transformers."""

from typing import Any

import pytest
import torch

from triptych_training.models.swin import Swin, SwinConfig

from ....fixtures.noise import stir


def make(**changes: Any) -> Swin:
    torch.manual_seed(1)
    shape = {"classes": 3, "image_size": 32, "model_dim": 8, "depths": (2, 2), "heads": (2, 4), "window_size": 4}
    return stir(Swin(SwinConfig(**{**shape, **changes})))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"image_size": 30, "image_width": 46},
        {"depths": (1, 2, 3), "heads": (1, 2, 4), "image_size": 64},
        {"absolute_positions": True, "input_bias": False, "activation": "relu"},
        {"patch_size": 2, "patch_width": 4, "window_size": 3},
        {"cosine": True, "window_size": 6, "image_size": 40},
    ],
)
def test_logits_do_not_depend_on_the_batch(changes: dict[str, Any]) -> None:
    model = make(**changes)
    images = torch.randn(3, 3, *model.config.image)
    logits = model(images)
    assert logits.shape == (3, 3)
    torch.testing.assert_close(logits[1:2], model(images[1:2]), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


def test_drop_path_applies_in_training_only() -> None:
    model, images = make(drop_path=0.9), torch.randn(4, 3, 32, 32)
    whole = make()(images)
    assert torch.equal(model(images), whole)
    model.train()
    assert not torch.allclose(model(images), whole, atol=1e-3)
    assert [model.config.block(stage, 1).drop_path for stage in range(2)] == pytest.approx([0.3, 0.9])
