"""The graph of the ViT family: bytes of pixels in, the best labels out.

Inputs: `pixels` `[B, height, width, 3]` uint8 RGB, `k` `[1]` int64. Outputs: `scores` `[B, k]`, descending, and `labels`
`[B, k]`.
Normalisation, `(pixel / 255 - mean) / std`, is part of the weights as far as it can be.

Shapes: `B` images, `P` patches, `E` model dimensions, `C` classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from triptych_export.fused_layer import FirstPositionLayer, FusedLayer
from triptych_export.operators import top_k
from triptych_training.blocks import EncoderLayer
from triptych_training.vit import Vit

BYTE = 255.0


class ImageGraph(nn.Module):
    """Classification.

    Args:
        model: in evaluation mode.
        mean: of each channel, 0 to 1.
        std: of each channel, 0 to 1.
    """

    inputs = ("pixels", "k")
    outputs = ("scores", "labels")

    def __init__(self, model: Vit, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.image_size = model.config.image_size
        stem = model.stem
        self.stem = PatchStem(stem, mean, std) if isinstance(stem, nn.Conv2d) else PixelStem(stem, mean, std)
        positions = model.positions.detach()
        self.first = nn.Parameter(model.class_token.detach() + positions[:1])  # [1, 1, E]
        self.rest = nn.Parameter(positions[1:] + self.stem.bias)  # [P, E]
        *layers, last = (layer for layer in model.layers if isinstance(layer, EncoderLayer))
        self.layers = nn.ModuleList(FusedLayer(layer) for layer in layers)
        self.last = FirstPositionLayer(last)
        self.norm, self.classifier = model.norm, model.classifier

    def forward(self, pixels: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """-> scores and labels `[B, k]`."""
        patches = self.stem(pixels) + self.rest
        x = torch.cat((self.first.expand(pixels.shape[0], -1, -1), patches), dim=1)  # [B, P + 1, E]
        for layer in self.layers:
            x = layer(x, None)
        logits = self.classifier(self.norm(self.last(x)))  # [B, C]
        return top_k(torch.softmax(logits, dim=-1), k)


class PatchStem(nn.Module):
    """A convolution whose stride is its kernel, as one matrix product over rearranged bytes; normalisation folded in."""

    bias: Tensor  # [E], added by the caller

    def __init__(self, convolution: nn.Conv2d, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.size = convolution.kernel_size[0]
        kernel = convolution.weight.detach().double()  # [E, 3, size, size]
        centre, scale = _channels(mean, torch.float64), _channels(std, torch.float64)
        scaled = kernel / scale
        bias = (convolution.bias.detach().double() if convolution.bias is not None else 0) - (scaled * centre).sum((1, 2, 3))
        self.weight = nn.Parameter((scaled / BYTE).permute(2, 3, 1, 0).flatten(0, 2).float().contiguous())  # [size*size*3, E]
        self.register_buffer("bias", bias.float())

    def forward(self, pixels: Tensor) -> Tensor:
        """`[B, height, width, 3]` uint8 -> `[B, P, E]`."""
        size, width = self.size, pixels.shape[2]
        strips = pixels.reshape(-1, pixels.shape[1] // size, size, width // size, size * 3)
        patches = strips.transpose(2, 3).flatten(3).flatten(1, 2)  # bytes: a quarter of what floats would move
        return torch.matmul(patches.float(), self.weight)


class PixelStem(nn.Module):
    """Convolutions with padding. Zero padding stands for the mean colour, so the mean is subtracted; the scale is folded in."""

    bias: Tensor  # [E], added by the caller

    def __init__(self, stem: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        assert isinstance(stem, nn.Sequential)
        self.body = nn.Sequential(*_without_norms(stem))
        first, last = self.body[0], stem[-3]
        assert isinstance(first, nn.Conv2d)
        assert isinstance(last, nn.Conv2d)
        first.weight = nn.Parameter(first.weight.detach() / (BYTE * _channels(std, torch.float32)))
        self.register_buffer("mean", BYTE * _channels(mean, torch.float32))
        self.register_buffer("bias", torch.zeros(last.out_channels))

    def forward(self, pixels: Tensor) -> Tensor:
        """`[B, height, width, 3]` uint8 -> `[B, P, E]`."""
        maps = self.body(pixels.permute(0, 3, 1, 2).float() - self.get_buffer("mean"))
        patches: Tensor = maps.flatten(2).transpose(1, 2)
        return patches


def _without_norms(layers: nn.Sequential) -> list[nn.Module]:
    """Batch normalisation moves into the convolution before it."""
    result: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            before = result[-1]
            assert isinstance(before, nn.Conv2d)
            result[-1] = fuse_conv_bn_eval(before, layer)
        else:
            result.append(layer)
    return result


def _channels(values: Sequence[float], dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=dtype)[:, None, None]
