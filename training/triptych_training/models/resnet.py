"""Residual networks (He et al. 2016): convolutions whose blocks learn what to add to their input, y = x + F(x).

Stage i has blocks of two 3 x 3 convolutions on a grid that is half as large as the stage before. Where a block changes the grid
or the width, its input is projected by a 1 x 1 convolution (the paper's option B).

patch_size  stem
1           a 3 x 3 convolution, as for CIFAR-10 in section 4.2
4           a 7 x 7 convolution with stride 2 and the largest of 3 x 3 positions with stride 2, as for ImageNet in section 4.1

Shapes: `B` images, `C` channels, `E` dimensions of a stage.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych_training.models.blocks import ImageModelConfig

STEMS = (1, 4)  # sizes of a patch: pixels of a position of the first stage


@dataclass(frozen=True)
class ResNetConfig(ImageModelConfig):
    """Shapes of the weights; the defaults are ResNet-18. `norm_epsilon`, `activation` and `input_bias` have no meaning here.

    Raises:
        ValueError: a field is out of range; the message names field, value and limit.
    """

    patch_size: int = 4
    widths: tuple[int, ...] = (64, 128, 256, 512)  # E of each stage
    depths: tuple[int, ...] = (2, 2, 2, 2)  # blocks

    def __post_init__(self) -> None:
        self.check()
        if self.patch_size not in STEMS or self.patch_width not in (0, self.patch_size):
            raise ValueError(f"patch_size: {self.patch} is unknown; choose one of {', '.join(map(str, STEMS))}, for both sides")
        if len(self.depths) != len(self.widths):
            raise ValueError(f"depths: {len(self.depths)} stages, widths has {len(self.widths)}")
        for name in ("widths", "depths"):
            if min(getattr(self, name), default=0) < 1:
                raise ValueError(f"{name}: {list(getattr(self, name))}, every stage needs at least 1")


class Convolution(nn.Sequential):
    """Convolution and batch normalisation (Ioffe and Szegedy 2015), of which only the latter has a bias."""

    def __init__(self, before: int, after: int, size: int, stride: int = 1) -> None:
        super().__init__(nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after))


class Block(nn.Module):
    """relu(x + F(x)), with F of two convolutions.

    In training, samples skip F with the probability `drop_path` (Huang et al. 2016).
    """

    def __init__(self, before: int, after: int, stride: int, drop_path: float) -> None:
        super().__init__()
        self.drop_path = drop_path
        self.inner = nn.Sequential(Convolution(before, after, 3, stride), nn.ReLU(), Convolution(after, after, 3))
        same = before == after and stride == 1
        self.shortcut: nn.Module = nn.Identity() if same else Convolution(before, after, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C, rows, columns]` -> `[B, E, rows / stride, columns / stride]`."""
        y = self.inner(x)
        if self.training and self.drop_path:
            keep = torch.rand(len(x), 1, 1, 1, device=x.device) >= self.drop_path
            y = y * keep / (1 - self.drop_path)
        return torch.relu(self.shortcut(x) + y)


class ResNet(nn.Module):
    """Images -> class logits."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.config = config
        first, last = config.widths[0], config.widths[-1]
        self.stem = nn.Sequential(*Convolution(config.channels, first, 3), nn.ReLU())
        if config.patch_size > 1:
            self.stem = nn.Sequential(*Convolution(config.channels, first, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        places = [(stage, number) for stage, depth in enumerate(config.depths) for number in range(depth)]
        widths = [first, *(config.widths[stage] for stage, _ in places)]
        drops = [config.drop_path * index / max(1, len(places) - 1) for index in range(len(places))]
        strides = [2 if stage and not number else 1 for stage, number in places]
        self.blocks = nn.Sequential(*map(Block, widths[:-1], widths[1:], strides, drops))
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(last, config.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")  # He et al. 2015

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, height, width]`, normalised -> `[B, classes]`."""
        maps = self.blocks(self.stem(images))
        return self.classifier(self.dropout(maps.float().mean((2, 3))))
