"""Augmentation of images."""

import pytest
import torch
from torch import Tensor

from triptych_training.data import augmentation
from triptych_training.data.augmentation import COLOURS, Colour, augment, erase, mix


def make(count: int = 6, height: int = 10, width: int = 10) -> Tensor:
    torch.manual_seed(count)
    return torch.rand(count, 3, height, width)


def strength(value: float, count: int = 6) -> Tensor:
    return torch.full((count, 1, 1, 1), value)


@pytest.mark.parametrize(("operations", "magnitude"), [(0, 0.5), (1, 0.0), (3, 0.5), (3, 1.0)])
def test_images_keep_their_shape_and_range(operations: int, magnitude: float) -> None:
    images = make(40, 8, 12)
    before = images.clone()
    changed = augment(images, operations, magnitude, flip=True, translate=0.3)
    assert changed.shape == images.shape
    assert 0 <= float(changed.min()) <= float(changed.max()) <= 1
    assert torch.equal(images, before)


def test_nothing_changes_if_everything_is_off_and_the_seed_decides() -> None:
    images = make()
    assert torch.equal(augment(images, 0, 1.0, flip=False, translate=0.0), images)
    assert torch.equal(erase(images, 0.0), images)
    mixed, partners, own = mix(images, 0.0, 0.0)
    assert torch.equal(mixed, images)
    assert sorted(partners.tolist()) == list(range(6))
    assert own == 1

    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return augment(images, 2, 0.5, flip=True, translate=0.2)

    images = make()
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_flips_and_shifts() -> None:
    images = make(40)
    changed = augment(images, 0, 0.0, flip=True, translate=0.0)
    same = [torch.allclose(a, b, atol=1e-5) for a, b in zip(changed, images, strict=True)]
    mirrored = [torch.allclose(a, b.flip(-1), atol=1e-5) for a, b in zip(changed, images, strict=True)]
    assert all(a != b for a, b in zip(same, mirrored, strict=True))
    assert 8 < sum(mirrored) < 32
    images = torch.zeros(60, 3, 20, 20)
    images[:, :, 10, 10] = 1.0
    changed = augment(images, 0, 0.0, flip=False, translate=0.2)
    weights = changed[:, 0] / changed[:, 0].sum((1, 2), keepdim=True)
    places = torch.arange(20.0)
    shifts = torch.stack((weights.sum(2) @ places, weights.sum(1) @ places)) - 10
    assert 3 < float(shifts.abs().max()) <= 4.01
    assert float(shifts.min()) < 0 < float(shifts.max())


@pytest.mark.parametrize("operation", COLOURS)
def test_colour_operations_change_the_image_by_their_strength(operation: Colour) -> None:
    images = torch.randint(256, (6, 3, 8, 8)) / 255
    if operation is not augmentation.autocontrast:
        torch.testing.assert_close(operation(images, strength(0.0)), images, rtol=0, atol=1e-5)
    images = 0.1 + 0.6 * make()
    for sign in (1.0, -1.0):
        assert not torch.allclose(operation(images, strength(sign)), images, atol=1e-2)


def test_colour_operations() -> None:
    images = make()
    assert augmentation.brightness(images, strength(0.5)).mean() > images.mean()
    assert augmentation.brightness(images, strength(-0.5)).mean() < images.mean()
    assert augmentation.contrast(images, strength(0.5)).std() > images.std()
    assert augmentation.contrast(images, strength(-0.5)).std() < images.std()
    grey = make()[:, :1].expand(-1, 3, -1, -1)
    torch.testing.assert_close(augmentation.saturation(grey, strength(0.9)), grey)
    levels = set(augmentation.posterize(make(), strength(-1.0)).flatten().tolist())
    assert len(levels) <= 16
    assert (min(levels), max(levels)) == (0, 1)
    images = torch.tensor([0.2, 0.6, 0.9]).view(1, 1, 1, 3).expand(1, 3, 1, 3)
    torch.testing.assert_close(augmentation.solarize(images, strength(0.3, 1))[0, 0, 0], torch.tensor([0.2, 0.6, 0.1]))
    stretched = augmentation.autocontrast(0.4 + 0.2 * make(), strength(1.0))
    torch.testing.assert_close(stretched.amin((2, 3)), torch.zeros(6, 3))
    torch.testing.assert_close(stretched.amax((2, 3)), torch.ones(6, 3))


def test_mixup_and_cutmix() -> None:
    images = make()
    for seed in range(5):
        torch.manual_seed(seed)
        mixed, partners, own = mix(images, 1.0, 0.0)
        assert 0 <= own <= 1
        torch.testing.assert_close(mixed, own * images + (1 - own) * images[partners])
    images = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 3, 9, 14)
    for seed in range(20):
        torch.manual_seed(seed)
        mixed, partners, own = mix(images, 0.0, 1.0)
        for number, partner in enumerate(partners.tolist()):
            if partner == number:
                assert bool((mixed[number] == number).all())
                continue
            pasted = mixed[number, 0] == partner
            assert bool((pasted | (mixed[number, 0] == number)).all())
            assert float(pasted.float().mean()) == pytest.approx(1 - own, abs=1e-6)
            rows, columns = pasted.any(1), pasted.any(0)
            assert torch.equal(pasted, rows[:, None] & columns[None, :])
            assert all(int(side.int().diff().abs().sum()) <= 2 for side in (rows, columns))
    images = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 3, 8, 8)
    torch.manual_seed(1)
    pasted = [bool((mix(images, 1.0, 1.0)[0] % 1 == 0).all()) for _ in range(40)]
    assert 8 < sum(pasted) < 32


def test_the_gpu_s_variant_gives_the_same_images() -> None:
    images = make(40)
    drawn, signs = torch.arange(40) % (len(COLOURS) + 2), strength(0.6, 40).view(-1) * (1 - 2 * (torch.arange(40) % 2))
    expected = augmentation._colour(images, drawn, signs)
    torch.testing.assert_close(augmentation._colour_all(images, drawn, signs), expected)
    assert not torch.equal(expected, images)


def test_erasing_fills_a_box_of_some_images_with_noise() -> None:
    torch.manual_seed(1)
    images = torch.full((400, 3, 32, 32), 9.0)
    changed = erase(images, 0.25)
    lost = (changed != 9.0).all(1)
    assert torch.equal(lost, (changed != 9.0).any(1))  # the same box in every channel
    hit = lost.any(2).any(1)
    assert 60 < int(hit.sum()) < 140
    for box in lost[hit]:
        rows, columns = box.any(1).nonzero(), box.any(0).nonzero()
        height, width = int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1
        assert int(box.sum()) == height * width
        assert 0.01 < height * width / 32**2 < 0.4
    noise = changed[lost[:, None].expand_as(changed)]
    assert abs(float(noise.mean())) < 0.05
    assert float(noise.std()) == pytest.approx(1, abs=0.05)
