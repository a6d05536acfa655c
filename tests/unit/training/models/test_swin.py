"""Swin: windows, shifts, patch merging, shapes."""

from typing import Any

import pytest
import torch

from triptych_training.models.swin import MASKED, PatchMerging, Swin, SwinConfig, Windows, relative_indices

from ..toy_text import stir


def make(**changes: Any) -> Swin:
    torch.manual_seed(1)
    shape = {"classes": 3, "image_size": 32, "model_dim": 8, "depths": (2, 2), "heads": (2, 4), "window_size": 4}
    model = Swin(SwinConfig(**{**shape, **changes}))
    stir(model)
    return model.eval()


@pytest.mark.parametrize("windows", [Windows(8, 8, 4), Windows(8, 12, 4, 2), Windows(7, 9, 4, 2), Windows(3, 3, 3)])
def test_joining_windows_restores_the_grid(windows: Windows) -> None:
    x = torch.randn(2, windows.rows * windows.columns, 5)
    parts = windows.split(x)
    assert parts.shape == (2 * windows.count, windows.size**2, 5)
    assert torch.equal(windows.join(parts), x)


def test_a_window_is_a_square_of_the_grid() -> None:
    numbers = torch.arange(24)[None, :, None]
    assert Windows(4, 6, 2).split(numbers)[0, :, 0].tolist() == [0, 1, 6, 7]
    assert Windows(4, 6, 2).split(numbers)[1, :, 0].tolist() == [2, 3, 8, 9]
    assert Windows(4, 6, 2, 1).split(numbers)[0, :, 0].tolist() == [7, 8, 13, 14]
    assert Windows(4, 6, 2, 1).split(numbers)[-1, :, 0].tolist() == [23, 18, 5, 0]


@pytest.mark.parametrize("windows", [Windows(8, 8, 4, 2), Windows(9, 6, 3, 1), Windows(7, 10, 4, 2)])
def test_only_neighbours_attend_to_each_other_in_a_shifted_window(windows: Windows) -> None:
    rows, columns = windows.padded
    whole = Windows(rows, columns, windows.size, windows.shift)
    places = whole.split(torch.arange(rows * columns)[None, :, None])[..., 0]
    near = torch.ones(places.shape[0], windows.size**2, windows.size**2, dtype=torch.bool)
    for place in (places // columns, places % columns):
        near &= (place[:, :, None] - place[:, None, :]).abs() < windows.size
    mask = windows.mask()
    assert mask is not None
    assert torch.equal(mask, torch.zeros(()).where(near, MASKED))
    assert (mask == MASKED).any()
    assert Windows(8, 8, 4).mask() is None


def test_pairs_with_the_same_offset_share_an_index() -> None:
    indices = relative_indices(3)
    assert indices.unique().tolist() == list(range(25))
    assert indices.diagonal().tolist() == [12] * 9
    assert indices[0, 1] == indices[4, 5] == indices[7, 8]
    assert indices[0, 3] == indices[5, 8] != indices[3, 0]


def test_patch_merging_gathers_four_neighbours() -> None:
    grid = torch.arange(1.0, 16.0)[None, :, None]  # 3 x 5
    merged = PatchMerging(3, 5, 1).gather(grid)
    assert merged.shape == (1, 6, 4)
    assert merged[0, 0].tolist() == [1, 6, 2, 7]
    assert merged[0, 2].tolist() == [5, 10, 0, 0]
    assert merged[0, 5].tolist() == [15, 0, 0, 0]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"image_size": 30, "image_width": 46},
        {"depths": (1, 2, 3), "heads": (1, 2, 4), "image_size": 64},
        {"absolute_positions": True, "input_bias": False, "activation": "relu"},
        {"patch_size": 2, "patch_width": 4, "window_size": 3},
    ],
)
def test_logits_do_not_depend_on_the_batch(changes: dict[str, Any]) -> None:
    model = make(**changes)
    images = torch.randn(3, 3, *model.config.image)
    logits = model(images)
    assert logits.shape == (3, 3)
    torch.testing.assert_close(logits[1:2], model(images[1:2]), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(logits[0], logits[1], atol=1e-3)


def test_every_second_layer_is_shifted_if_there_are_several_windows() -> None:
    config = make(image_size=64, depths=(3, 2, 2), heads=(2, 4, 8)).config
    shifts = [[config.windows(stage, layer).shift for layer in range(depth)] for stage, depth in enumerate(config.depths)]
    assert shifts == [[0, 2, 0], [0, 2], [0, 0]]
    assert [config.grid(stage) for stage in range(3)] == [(16, 16), (8, 8), (4, 4)]


def test_only_shifted_layers_connect_windows() -> None:
    images = torch.randn(1, 3, 32, 32)
    changed = images.clone()
    changed[..., 12:16, 12:16] += 1  # the last patch of the first window
    for depth, reached in ((1, False), (2, True)):
        model = make(depths=(depth,), heads=(2,))
        x, y = (model.stem_norm(model.stem(each).flatten(2).transpose(1, 2)) for each in (images, changed))
        moved = (model.stages[0](x) - model.stages[0](y)).abs().amax(-1).view(8, 8) > 1e-6
        assert bool(moved[:4, :4].all())
        assert bool(moved[4:6, 4:6].any()) == reached
        assert not moved[6:].any()


def test_drop_path_applies_in_training_only() -> None:
    model, images = make(drop_path=0.9), torch.randn(4, 3, 32, 32)
    whole = make()(images)
    assert torch.equal(model(images), whole)
    model.train()
    assert not torch.allclose(model(images), whole, atol=1e-3)
    assert [model.config.block(stage, 1).drop_path for stage in range(2)] == pytest.approx([0.3, 0.9])
