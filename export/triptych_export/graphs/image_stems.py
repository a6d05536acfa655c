"""Stems: bytes of pixels to vectors of patches, normalisation included.

Shapes: `B` images, `P` patches, `E` model dimensions.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

BYTE = 255.0
SHRINKING = 256  # divisor of float16 pixels; a power of two is exact, and weights multiplied by it keep all bits


class PatchStem(nn.Module):
    """Patch embedding as one matrix product over rearranged bytes, with normalisation folded in.

    Patches that extend beyond the image are padded with zeros *after* normalisation, as by the convolution's own padding.
    """

    bias: Tensor  # [E], or [P, E] if patches extend beyond the image; added by the caller

    def __init__(self, convolution: nn.Conv2d, image: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.height, self.width = convolution.kernel_size[0], convolution.kernel_size[1]
        self.unit = 1.0  # factor of a pixel's byte
        self.missing = (0, 0, 0, -image[1] % self.width, 0, -image[0] % self.height)
        kernel = convolution.weight.detach().double()  # [E, 3, height, width]
        centre, scale = channels(mean, torch.float64), channels(std, torch.float64)
        weight = (kernel / scale / BYTE).permute(2, 3, 1, 0).flatten(0, 2)
        self.weight = nn.Parameter(weight.float().contiguous())  # [height*width*3, E]
        bias = None if convolution.bias is None else convolution.bias.detach().double()
        black = (-centre / scale).expand(-1, *image)  # value of a byte of 0
        whole = functional.pad(black, (0, self.missing[3], 0, self.missing[5]))
        black_patches = functional.conv2d(whole[None], kernel, bias, convolution.stride).flatten(2)[0].t()  # [P, E]
        self.register_buffer("bias", (black_patches if any(self.missing) else black_patches[0]).float().contiguous())

    def forward(self, pixels: Tensor) -> Tensor:
        """`[B, image height, image width, 3]` uint8 -> `[B, P, E]`."""
        if any(self.missing):  # CUDA cannot pad bytes
            pixels = functional.pad(pixels if self.unit == 1.0 else pixels.to(self.weight.dtype), self.missing)
        rows, columns = pixels.shape[1] // self.height, pixels.shape[2] // self.width
        strips = pixels.reshape(-1, rows, self.height, columns, self.width * 3)
        patches = strips.transpose(2, 3).flatten(3).flatten(1, 2)  # bytes move a quarter of the memory of floats
        return torch.matmul(_in_units(patches.to(self.weight.dtype), self.unit), self.weight)

    def shrink_pixels(self) -> None:
        """Scale pixels to the range 0 to almost 1."""
        self.weight, self.unit = nn.Parameter(self.weight.detach() * SHRINKING), 1 / SHRINKING


class PixelStem(nn.Module):
    """Stem of convolutions. Zero padding stands for the mean colour, so the mean is subtracted; the scale is folded in."""

    bias: Tensor  # [E], added by the caller

    def __init__(self, stem: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        assert isinstance(stem, nn.Sequential)
        self.unit = 1.0  # factor of a pixel's byte
        self.body = nn.Sequential(*without_norms(stem))
        first, last = self.body[0], [layer for layer in stem if isinstance(layer, nn.Conv2d)][-1]
        assert isinstance(first, nn.Conv2d)
        first.weight = nn.Parameter(first.weight.detach() / (BYTE * channels(std, torch.float32)))
        self.register_buffer("mean", BYTE * channels(mean, torch.float32))
        self.register_buffer("bias", torch.zeros(last.out_channels))

    def forward(self, pixels: Tensor) -> Tensor:
        """`[B, height, width, 3]` uint8 -> `[B, P, E]`."""
        return self.maps(pixels).flatten(2).transpose(1, 2)

    def maps(self, pixels: Tensor) -> Tensor:
        """`[B, height, width, 3]` uint8 -> `[B, E, rows, columns]`."""
        mean = self.get_buffer("mean")
        return self.body(_in_units(pixels.permute(0, 3, 1, 2).to(mean.dtype) - mean, self.unit))

    def shrink_pixels(self) -> None:
        """Scale pixels to the range -1 to 1."""
        first = self.body[0]
        assert isinstance(first, nn.Conv2d)
        first.weight, self.unit = nn.Parameter(first.weight.detach() * SHRINKING), 1 / SHRINKING


def _in_units(pixels: Tensor, unit: float) -> Tensor:
    return pixels if unit == 1.0 else pixels * unit


def channels(values: Sequence[float], dtype: torch.dtype) -> Tensor:
    """Shape the values of the channels as `[3, 1, 1]`."""
    return torch.tensor(values, dtype=dtype)[:, None, None]


class ScaleShift(nn.Module):
    """Batch normalisation in inference: a factor and a summand for each channel."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        self.scale = nn.Parameter(scale.detach()[:, None, None])
        self.shift = nn.Parameter((norm.bias - norm.running_mean * scale).detach()[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C, rows, columns]` -> the same shape."""
        return x * self.scale + self.shift


def without_norms(layers: nn.Sequential) -> list[nn.Module]:
    """Copy the layers, those of inner sequences too, with batch normalisation folded into a convolution right before it."""
    result: list[nn.Module] = []
    for layer in (module for module in layers.modules() if not isinstance(module, nn.Sequential)):
        if isinstance(layer, nn.BatchNorm2d):
            before = result[-1]
            if isinstance(before, nn.Conv2d):
                result[-1] = fuse_conv_bn_eval(before, layer)
            else:  # max pooling: a negative factor does not commute with it
                result.append(ScaleShift(layer))
        else:
            result.append(copy.deepcopy(layer))
    return result
