"""Augmentation of batches of images, on any device.

As in RandAugment (Cubuk et al. 2020), every image gets a few operations drawn from one list, all with the same magnitude.
Flips, shifts and the other geometric operations are combined into one affine map, so that pixels are interpolated once. All
random numbers come from torch's global generator.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

# Takes images `[B, 3, H, W]` in [0, 1] and signed strengths `[B, 1, 1, 1]` in [-1, 1].
Colour = Callable[[Tensor, Tensor], Tensor]


def _grey(x: Tensor) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114], device=x.device, dtype=x.dtype).view(1, 3, 1, 1)
    return (x * weights).sum(1, keepdim=True)


def brightness(x: Tensor, strength: Tensor) -> Tensor:
    return x * (1 + 0.9 * strength)


def contrast(x: Tensor, strength: Tensor) -> Tensor:
    mean = _grey(x).mean((2, 3), keepdim=True)
    return mean + (x - mean) * (1 + 0.9 * strength)


def saturation(x: Tensor, strength: Tensor) -> Tensor:
    grey = _grey(x)
    return grey + (x - grey) * (1 + 0.9 * strength)


def sharpness(x: Tensor, strength: Tensor) -> Tensor:
    soft = functional.avg_pool2d(functional.pad(x, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return soft + (x - soft) * (1 + 0.9 * strength)


def posterize(x: Tensor, strength: Tensor) -> Tensor:
    """Reduce the bits per colour, from 8 to 4 at full strength."""
    levels = 2 ** torch.round(8 - 4 * strength.abs())
    return torch.floor(x * levels).clamp(max=levels - 1) / (levels - 1)


def solarize(x: Tensor, strength: Tensor) -> Tensor:
    return torch.where(x > 1 - strength.abs(), 1 - x, x)


def autocontrast(x: Tensor, strength: Tensor) -> Tensor:  # noqa: ARG001 - all operations are called alike
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return (x - low) / (high - low).clamp(min=1e-3)


COLOURS: tuple[Colour, ...] = (brightness, contrast, saturation, sharpness, posterize, solarize, autocontrast)
SHAPES = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
ERASED, ERASED_ASPECT = (0.02, 1 / 3), 3.3  # range of a box's share of the image; largest ratio of its sides
MAX_ANGLE, MAX_SHEAR, MAX_SHIFT = math.radians(30), 0.3, 0.45  # at magnitude 1; shifts as a share of the image


def augment(images: Tensor, operations: int, magnitude: float, flip: bool, translate: float) -> Tensor:
    """Augment each image differently; input and result are `[B, 3, H, W]` in [0, 1].

    `operations` are drawn for each image from COLOURS, SHAPES and the identity, with a `magnitude` from 0 to 1; `flip` mirrors
    half of the images left to right; `translate` is the largest shift, as a share of the image.
    """
    count, device = len(images), images.device
    maps = _base_maps(count, device, flip, translate)
    for _ in range(operations):
        drawn = torch.randint(len(COLOURS) + len(SHAPES) + 1, (count,), device=device)
        strength = magnitude * (2 * torch.randint(2, (count,), device=device) - 1).to(images.dtype)
        images = _colour(images, drawn, strength)
        maps = maps @ _shape_maps(drawn - len(COLOURS), strength)
    if not (operations or flip or translate):
        return images
    grid = functional.affine_grid(maps[:, :2], list(images.shape), align_corners=False)
    moved = functional.grid_sample(images, grid.to(images.dtype), padding_mode="reflection", align_corners=False)
    return moved.clamp(0, 1)


def _colour(images: Tensor, drawn: Tensor, strength: Tensor) -> Tensor:
    if images.is_cuda:
        return _colour_all(images, drawn, strength)
    images = images.clone()
    for number, operation in enumerate(COLOURS):
        chosen = (drawn == number).nonzero()[:, 0]
        if len(chosen):
            images[chosen] = operation(images[chosen], strength[chosen].view(-1, 1, 1, 1)).clamp(0, 1)
    return images


def _colour_all(images: Tensor, drawn: Tensor, strength: Tensor) -> Tensor:
    """Apply every operation to all images and select results: indexing with a mask would synchronise with the GPU."""
    changed = images
    for number, operation in enumerate(COLOURS):
        candidate = operation(images, strength.view(-1, 1, 1, 1)).clamp(0, 1)
        changed = torch.where((drawn == number).view(-1, 1, 1, 1), candidate, changed)
    return changed


def _base_maps(count: int, device: torch.device, flip: bool, translate: float) -> Tensor:
    maps = torch.eye(3, device=device).repeat(count, 1, 1)
    if flip:
        maps[:, 0, 0] = 1 - 2 * torch.randint(2, (count,), device=device).float()
    # Grid coordinates run from -1 to 1: a shift by the whole image is 2.
    maps[:, :2, 2] = 2 * translate * (2 * torch.rand(count, 2, device=device) - 1)
    return maps


def _shape_maps(drawn: Tensor, strength: Tensor) -> Tensor:
    maps = torch.eye(3, device=drawn.device).repeat(len(drawn), 1, 1)
    kind = {name: (drawn == number).float() * strength.float() for number, name in enumerate(SHAPES)}
    angle = MAX_ANGLE * kind["rotate"]
    maps[:, 0, 0] = maps[:, 1, 1] = torch.cos(angle)
    maps[:, 0, 1] = MAX_SHEAR * kind["shear_x"] - torch.sin(angle)
    maps[:, 1, 0] = MAX_SHEAR * kind["shear_y"] + torch.sin(angle)
    maps[:, 0, 2] = 2 * MAX_SHIFT * kind["translate_x"]
    maps[:, 1, 2] = 2 * MAX_SHIFT * kind["translate_y"]
    return maps


def erase(images: Tensor, probability: float) -> Tensor:
    """Fill a box, 2 % to a third of an image, with noise (random erasing; Zhong et al. 2020), with this probability.

    `images` are `[B, C, H, W]`, with mean 0 and variance 1.
    """
    if not probability:
        return images
    count, device = len(images), images.device
    height, width = images.shape[2:]
    area = ERASED[0] + (ERASED[1] - ERASED[0]) * torch.rand(count, device=device)
    aspect = torch.exp(math.log(ERASED_ASPECT) * (2 * torch.rand(count, device=device) - 1))
    rows, columns = (height * (area * aspect).sqrt()).clamp(1, height), (width * (area / aspect).sqrt()).clamp(1, width)
    top, left = (height - rows) * torch.rand(count, device=device), (width - columns) * torch.rand(count, device=device)
    y, x = torch.arange(height, device=device) + 0.5, torch.arange(width, device=device) + 0.5  # centres of the pixels
    inside = (y >= top[:, None]) & (y < (top + rows)[:, None])
    across = (x >= left[:, None]) & (x < (left + columns)[:, None])
    chosen = (torch.rand(count, device=device) < probability)[:, None, None]
    box = (inside[:, :, None] & across[:, None, :] & chosen)[:, None]
    return torch.where(box, torch.randn_like(images), images)


def mix(images: Tensor, mixup: float, cutmix: float) -> tuple[Tensor, Tensor, float]:
    """Blend each image `[B, C, H, W]` with another (mixup; Zhang et al. 2018) or paste a box of it (CutMix; Yun et al. 2019).

    `mixup` and `cutmix` are the alpha of the Beta distribution; 0 is off. With both on, one of the two is drawn for the batch.

    Returns:
        The images, each one's partner `[B]`, and the share of an image that is its own.
    """
    partners = torch.randperm(len(images), device=images.device)
    use_cutmix = bool(cutmix) and (not mixup or bool(torch.rand(()) < 0.5))
    alpha = cutmix if use_cutmix else mixup
    if not alpha:
        return images, partners, 1.0
    own = float(torch.distributions.Beta(alpha, alpha).sample())
    if not use_cutmix:
        return images * own + images[partners] * (1 - own), partners, own
    height, width = images.shape[2:]
    rows, columns = (round(size * math.sqrt(1 - own)) for size in (height, width))
    top, left = int(torch.randint(height - rows + 1, ())), int(torch.randint(width - columns + 1, ()))
    box = (..., slice(top, top + rows), slice(left, left + columns))
    images = images.clone()
    images[box] = images[partners][box]
    return images, partners, 1 - rows * columns / (height * width)
