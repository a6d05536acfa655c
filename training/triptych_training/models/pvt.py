"""The Pyramid Vision Transformer, versions 1 (Wang et al. 2021) and 2 (Wang et al. 2022).

Stage i embeds patches of S_i x S_i positions of the stage before, so its grid is S_i times smaller. In its layers, queries of
all positions attend to keys and values of a grid that is R_i times smaller still: spatial-reduction attention,

    SRA(x) = Attention(x W^Q, SR(x) W^K, SR(x) W^V),   SR(x) = Norm(Conv(x)) with kernels of R_i x R_i side by side

version   patches                     positions are learned from                   SR                       classifier reads
1         side by side                a table for each stage                       as above                 a class token
2         overlapping, 2 S_i - 1      zeros around 3 x 3 convolutions of channels  as above                 the mean
2-linear  as version 2                as version 2                                 of 7 x 7 averages, GELU  the mean

Shapes: `B` images, `P` positions of a grid (and the class token), `M` keys, `E` dimensions of a stage, `F` of its feed-forward.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import one_of
from triptych_training.models.attention import CrossAttention
from triptych_training.models.blocks import BlockConfig, FeedForward, ImageModelConfig, Residual
from triptych_training.models.vit import initialise

VERSION_1, VERSION_2, LINEAR = VERSIONS = ("1", "2", "2-linear")
POOLED = 7  # rows and columns after the pooling of 2-linear

Grid = tuple[int, int]  # rows and columns


@dataclass(frozen=True)
class PvtConfig(ImageModelConfig):
    """Shapes of weights and options of the arithmetic; defaults: PVTv2-B1. Raises ValueError if a field is out of range."""

    patch_size: int = 4  # S_1
    version: str = VERSION_2
    merges: tuple[int, ...] = (2, 2, 2)  # S_2, S_3, ...
    widths: tuple[int, ...] = (64, 128, 320, 512)  # E of each stage
    depths: tuple[int, ...] = (2, 2, 2, 2)  # layers
    heads: tuple[int, ...] = (1, 2, 5, 8)
    feedforward_ratios: tuple[float, ...] = (8, 8, 4, 4)  # F / E
    reductions: tuple[int, ...] = (8, 4, 2, 1)  # R; not read by 2-linear

    def __post_init__(self) -> None:
        self.check()
        one_of(VERSIONS, self, "version")
        for name in ("merges", "widths", "depths", "heads", "feedforward_ratios", "reductions"):
            values, stages = getattr(self, name), len(self.merges) + (name != "merges")
            if len(values) != stages:
                raise ValueError(f"{name}: {len(values)} values, expected {stages}, of {len(self.merges) + 1} stages")
            if min(values, default=1) <= 0:
                raise ValueError(f"{name}: {min(values)} is not above 0")
        if self.version == VERSION_1 and any(image % patch for image, patch in zip(self.image, self.patch, strict=True)):
            raise ValueError(f"patch_size: {self.patch} does not divide image_size {self.image}")
        if self.version == VERSION_1 and self.reductions[-1] != 1:
            raise ValueError(f"reductions: {self.reductions[-1]} in the last stage, whose class token has no place in a grid")
        for stage, (width, heads) in enumerate(zip(self.widths, self.heads, strict=True)):
            if width % heads:
                raise ValueError(f"widths: {width} of stage {stage} is not a multiple of its {heads} heads")
            (rows, columns), least = self.grid(stage), 1 if self.version == LINEAR else self.reductions[stage]
            if min(rows, columns) < least:
                raise ValueError(f"reductions: {least} exceeds the {rows} x {columns} positions of stage {stage}")
            _ = self.block(stage, 0)

    def patches(self, stage: int) -> tuple[Grid, Grid, Grid]:
        """Size, distance and padding of a stage's patches; those that overlap reach to the centres of their neighbours."""
        rows, columns = (self.merges[stage - 1],) * 2 if stage else self.patch
        if self.version == VERSION_1:
            return (rows, columns), (rows, columns), (0, 0)
        return (2 * rows - 1, 2 * columns - 1), (rows, columns), (rows - 1, columns - 1)

    def grid(self, stage: int) -> Grid:
        """Rows and columns of a stage's positions."""
        sides = zip(self.grid(stage - 1) if stage else self.image, *self.patches(stage), strict=True)
        rows, columns = ((side + 2 * padding - size) // stride + 1 for side, size, stride, padding in sides)
        return rows, columns

    def block(self, stage: int, layer: int) -> BlockConfig:
        """Configuration of a layer."""
        depth, width = (sum(self.depths[:stage]) + layer) / max(1, sum(self.depths) - 1), self.widths[stage]
        return self.layer_block(width, self.heads[stage], int(self.feedforward_ratios[stage] * width), depth)


def to_maps(x: Tensor, grid: Grid) -> Tensor:
    """`[B, P, E]` -> `[B, E, rows, columns]`."""
    return torch.unflatten(x.transpose(1, 2), 2, grid)


def to_positions(maps: Tensor) -> Tensor:
    """`[B, E, rows, columns]` -> `[B, P, E]`."""
    return maps.flatten(2).transpose(1, 2)


class Reduction(nn.Module):
    """SR: the positions that keys and values are computed from."""

    def __init__(self, config: PvtConfig, stage: int) -> None:
        super().__init__()
        self.grid, self.pools, width = config.grid(stage), config.version == LINEAR, config.widths[stage]
        ratio = 1 if self.pools else config.reductions[stage]
        self.projection = nn.Conv2d(width, width, ratio, stride=ratio)
        self.norm = nn.LayerNorm(width, eps=config.norm_epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, M, E]`."""
        maps = to_maps(x, self.grid)
        if self.pools:  # as matrices, since ONNX has no pooling into unequal parts
            rows, columns = (functional.adaptive_avg_pool1d(torch.eye(side).to(x), POOLED) for side in self.grid)
            maps = rows.t() @ maps @ columns
        reduced = self.norm(to_positions(self.projection(maps)))
        return functional.gelu(reduced) if self.pools else reduced


class ConvolutionalFeedForward(FeedForward):
    """Feed-forward network with a 3 x 3 convolution of each channel, whose zero padding tells positions apart."""

    def __init__(self, config: BlockConfig, grid: Grid, rectifies: bool) -> None:
        super().__init__(config)
        self.grid, self.rectifies = grid, rectifies
        width = config.feedforward_dim
        self.channels = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P, E]`."""
        inner = self.expand(x)  # [B, P, F]
        maps = self.channels(to_maps(torch.relu(inner) if self.rectifies else inner, self.grid))
        return self.contract(self.activation(to_positions(maps)))


class PvtLayer(nn.Module):
    """SRA and feed-forward network, each with a residual connection."""

    def __init__(self, config: PvtConfig, stage: int, layer: int) -> None:
        super().__init__()
        block, linear = config.block(stage, layer), config.version == LINEAR
        self.reduction = Reduction(config, stage) if linear or config.reductions[stage] > 1 else None
        self.attention = CrossAttention(block.attention)
        self.attention_residual = Residual(block)
        convolutional, grid = config.version != VERSION_1, config.grid(stage)
        self.feedforward = ConvolutionalFeedForward(block, grid, linear) if convolutional else FeedForward(block)
        self.feedforward_residual = Residual(block)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P, E]`."""
        entered = self.attention_residual.enter(x)
        reduced = entered if self.reduction is None else self.reduction(entered)
        x = self.attention_residual.leave(x, self.attention(entered, self.attention.project_memory(reduced)))
        return self.feedforward_residual.around(x, self.feedforward)


class PvtStage(nn.Module):
    """Patch embedding, then layers on one grid."""

    def __init__(self, config: PvtConfig, stage: int) -> None:
        super().__init__()
        self.grid, self.last = config.grid(stage), stage == len(config.depths) - 1
        first, width = config.version == VERSION_1, config.widths[stage]
        before = config.widths[stage - 1] if stage else config.channels
        self.projection = nn.Conv2d(before, width, *config.patches(stage))
        self.projection_norm = nn.LayerNorm(width, eps=config.norm_epsilon)
        tokens = int(first and self.last)
        positions = torch.empty(tokens + self.grid[0] * self.grid[1], width).normal_(std=0.02) if first else None
        self.positions = None if positions is None else nn.Parameter(positions)
        self.class_token = nn.Parameter(torch.zeros(1, width)) if tokens else None
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(PvtLayer(config, stage, layer) for layer in range(config.depths[stage]))
        self.norm = nn.Identity() if first and not self.last else nn.LayerNorm(width, eps=config.norm_epsilon)

    def run(self, x: Tensor) -> Tensor:
        """Embedded patches `[B, P, E]` -> the next stage's input `[B, E, rows, columns]`; of the last, features `[B, E]`."""
        x = self.projection_norm(x)
        if self.class_token is not None:
            x = functional.pad(x, (0, 0, 1, 0)) + functional.pad(self.class_token, (0, 0, 0, x.shape[1]))
        x = self.dropout(x if self.positions is None else x + self.positions)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        if not self.last:
            return to_maps(x, self.grid)
        return x.float().mean(1) if self.class_token is None else x[:, 0]

    def forward(self, maps: Tensor) -> Tensor:
        """`[B, C, rows, columns]` -> as `run`."""
        return self.run(to_positions(self.projection(maps)))


class Pvt(nn.Module):
    """Images -> class logits."""

    def __init__(self, config: PvtConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = nn.Sequential(*(PvtStage(config, stage) for stage in range(len(config.depths))))
        self.classifier = nn.Linear(config.widths[-1], config.classes)
        self.apply(initialise)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, height, width]`, normalised -> `[B, classes]`."""
        return self.classifier(self.stages(images))
