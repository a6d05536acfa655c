"""The Swin Transformer (Liu et al. 2021): attention within windows of the image; every other layer shifts the windows.

Its second version (Liu et al. 2022, `cosine`) was trained at larger sizes.

Shapes: `B` images, `C` channels, `P` positions of a grid, `W` windows of `N` positions, `H` heads, `E` dimensions of a stage.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import at_least
from triptych_training.models.attention import AttentionShape, SelfAttention, split_heads
from triptych_training.models.blocks import BlockConfig, FeedForward, ImageModelConfig, Residual
from triptych_training.models.vit import initialise

MASKED = -100.0  # added to the scores of positions that only the shift brought into one window; the authors' own number
TINY = 1e-24  # epsilon of norms that make vectors of length 1; zeros stay zeros
PATCH_NORM_EPSILON = 1e-5  # of the norms after the patch projection and before a merge


@dataclass(frozen=True)
class Windows:
    """Division of a grid of positions into square windows; incomplete windows are padded with zeros."""

    rows: int
    columns: int
    size: int  # height and width of a window
    shift: int = 0  # positions by which the grid is rolled up and left before it is divided

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns of the grid after padding to whole windows."""
        return self.rows + -self.rows % self.size, self.columns + -self.columns % self.size

    @property
    def count(self) -> int:
        """Number of windows."""
        rows, columns = self.padded
        return rows * columns // self.size**2

    def split(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B*W, N, E]`."""
        rows, columns = self.padded
        grid = torch.unflatten(x, 1, (self.rows, self.columns))
        whole = functional.pad(grid, (0, 0, 0, columns - self.columns, 0, rows - self.rows))
        return self._cut(whole.roll((-self.shift, -self.shift), (1, 2)))

    def join(self, windows: Tensor) -> Tensor:
        """`[B*W, N, E]` -> `[B, P, E]`."""
        (rows, columns), size = self.padded, self.size
        tiles = torch.unflatten(torch.unflatten(windows, 1, (size, size)), 0, (-1, rows // size, columns // size))
        whole = tiles.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return whole.roll((self.shift, self.shift), (1, 2))[:, : self.rows, : self.columns].flatten(1, 2)

    def mask(self) -> Tensor | None:
        """`[W, N, N]`, added to scores: separates positions that the shift rolled around an edge; None without a shift."""
        if not self.shift:
            return None
        rows, columns = (torch.arange(side) >= side - self.shift for side in self.padded)
        rolled = 2 * rows[:, None].float() + columns[None, :].float()
        regions = self._cut(rolled[None, :, :, None]).squeeze(-1)  # [W, N]
        return torch.zeros(()).where(regions[:, :, None] == regions[:, None, :], MASKED)

    def _cut(self, grid: Tensor) -> Tensor:
        size = self.size
        tiles = torch.unflatten(torch.unflatten(grid, 2, (-1, size)), 1, (-1, size))  # [B, rows, size, columns, size, E]
        return tiles.transpose(2, 3).flatten(0, 2).flatten(1, 2)


@dataclass(frozen=True)
class SwinConfig(ImageModelConfig):
    """Shapes of weights and options of the arithmetic; defaults: Swin-T. Raises ValueError if a field is out of range."""

    patch_size: int = 4
    model_dim: int = 96  # of the first stage; doubles from stage to stage
    depths: tuple[int, ...] = (2, 2, 6, 2)  # layers of each stage
    heads: tuple[int, ...] = (3, 6, 12, 24)  # attention heads of each stage
    window_size: int = 7  # height and width in positions
    feedforward_ratio: float = 4.0  # feed-forward width / stage width
    norm_epsilon: float = 1e-5
    absolute_positions: bool = False  # add a trained vector to each patch
    # Version 2: attention scores are cosines with a factor for each head, norms follow what they followed before, and windows
    # are at most as large as a stage's grid.
    cosine: bool = False

    def __post_init__(self) -> None:
        self.check()
        at_least(1, self, "window_size")
        if not self.depths or min(self.depths) < 1:
            raise ValueError(f"depths: {list(self.depths)}, every stage needs a layer")
        if len(self.heads) != len(self.depths):
            raise ValueError(f"heads: {len(self.heads)} stages, depths has {len(self.depths)}")
        if self.absolute_positions and any(image % patch for image, patch in zip(self.image, self.patch, strict=True)):
            raise ValueError(f"patch_size: {self.patch} does not divide image_size {self.image}: no absolute positions fit")
        for stage in range(len(self.depths)):
            if min(self.grid(stage)) < self.window_size and not self.cosine:
                rows, columns = self.grid(stage)
                raise ValueError(f"window_size: {self.window_size} exceeds the {rows} x {columns} positions of stage {stage}")
            _ = self.block(stage, 0)

    def width(self, stage: int) -> int:
        """Model dimensions (E) of a stage."""
        return self.model_dim << stage

    def grid(self, stage: int) -> tuple[int, int]:
        """Rows and columns of a stage's positions, after padding to whole patches."""
        rows, columns = (-(-image // (patch << stage)) for image, patch in zip(self.image, self.patch, strict=True))
        return rows, columns

    def windows(self, stage: int, layer: int) -> Windows:
        """Windows of a layer; every second layer shifts them, unless the grid is only one window high or wide."""
        rows, columns = self.grid(stage)
        shifted = layer % 2 and min(rows, columns) > self.window_size
        return Windows(rows, columns, min(self.window_size, rows, columns), self.window_size // 2 if shifted else 0)

    def block(self, stage: int, layer: int) -> BlockConfig:
        """Configuration of a layer."""
        depth = (sum(self.depths[:stage]) + layer) / max(1, sum(self.depths) - 1)
        width = self.width(stage)
        block = self.layer_block(width, self.heads[stage], int(self.feedforward_ratio * width), depth)
        return replace(block, input_norm=not self.cosine, output_norm=self.cosine)


class CosineAttention(SelfAttention):
    """Attention whose scores are cosines of queries and keys, times a factor of each head."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__(shape)
        self.scale = 1.0
        self.factors = nn.Parameter(torch.full((shape.heads, 1), 10.0))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        query, key = (functional.normalize(torch.unflatten(each, -1, (self.heads, -1)), dim=-1) for each in (query, key))
        return (query * self.factors).transpose(1, 2), key.transpose(1, 2), split_heads(value, self.heads)


class SwinLayer(nn.Module):
    """Self-attention within windows and feed-forward network, each with a residual connection."""

    def __init__(self, config: BlockConfig, windows: Windows, cosine: bool) -> None:
        super().__init__()
        self.windows = windows
        self.attention = CosineAttention(config.attention) if cosine else SelfAttention(config.attention)
        self.relative_positions = nn.Parameter(torch.zeros((2 * windows.size - 1) ** 2, config.heads))
        self.attention_residual = Residual(config)
        self.feedforward = FeedForward(config)
        self.feedforward_residual = Residual(config)

    def bias(self) -> Tensor:
        """Relative position bias on the scores of a window, `[H, N, N]`."""
        size, steps = self.windows.size, torch.arange(self.windows.size, device=self.relative_positions.device)
        distances = steps[:, None] - steps + size - 1  # [size, size], 0 to 2 * size - 2
        rows, columns = distances[:, None, :, None], distances[None, :, None, :]
        indices = (rows * (2 * size - 1) + columns).reshape(size**2, size**2)  # rows of the table, [N, N]
        return self.relative_positions[indices].permute(2, 0, 1)

    def mask(self) -> Tensor | None:
        """The mask of the windows; transformers adds it twice in version 2, whose scores are larger."""
        mask = self.windows.mask()
        return 2 * mask if mask is not None and isinstance(self.attention, CosineAttention) else mask

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P, E]`."""
        bias, mask = self.bias()[None], self.mask()
        if mask is not None:
            bias = (bias + mask[:, None].to(x.device)).repeat(len(x), 1, 1, 1)  # [B*W, H, N, N]
        windows = self.windows.split(self.attention_residual.enter(x))
        x = self.attention_residual.leave(x, self.windows.join(self.attention(windows, bias)))
        return self.feedforward_residual.around(x, self.feedforward)


class PatchMerging(nn.Module):
    """Merges 2 x 2 neighbouring positions into one of twice the width, which is normalised before that, or `late`."""

    def __init__(self, rows: int, columns: int, width: int, late: bool) -> None:
        super().__init__()
        self.rows, self.columns, self.late = rows, columns, late
        self.norm = nn.LayerNorm((2 if late else 4) * width, eps=PATCH_NORM_EPSILON)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def gather(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P/4, 4E]`: top left, bottom left, top right, bottom right; zeros beyond the edge."""
        grid = torch.unflatten(x, 1, (self.rows, self.columns))
        whole = functional.pad(grid, (0, 0, 0, self.columns % 2, 0, self.rows % 2))
        quarters = [whole[:, row::2, column::2] for column in range(2) for row in range(2)]
        return torch.cat(quarters, dim=-1).flatten(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> `[B, P/4, 2E]`."""
        return self.merge(self.gather(x))

    def merge(self, x: Tensor) -> Tensor:
        """`[..., 4E]` -> `[..., 2E]`."""
        return self.norm(self.reduction(x)) if self.late else self.reduction(self.norm(x))


class SwinStage(nn.Module):
    """Layers on one grid, then the merge into the next stage's grid."""

    def __init__(self, config: SwinConfig, stage: int) -> None:
        super().__init__()
        depth, last = config.depths[stage], len(config.depths) - 1
        self.layers = nn.ModuleList(
            SwinLayer(config.block(stage, i), config.windows(stage, i), config.cosine) for i in range(depth)
        )
        self.merging = PatchMerging(*config.grid(stage), config.width(stage), config.cosine) if stage < last else None

    def forward(self, x: Tensor) -> Tensor:
        """`[B, P, E]` -> the next stage's input."""
        for layer in self.layers:
            x = layer(x)
        return x if self.merging is None else self.merging(x)


class Swin(nn.Module):
    """The whole model: images -> class logits."""

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        self.config = config
        rows, columns = config.grid(0)
        self.stem = nn.Conv2d(config.channels, config.model_dim, config.patch, stride=config.patch)
        self.stem_norm = nn.LayerNorm(config.model_dim, eps=PATCH_NORM_EPSILON)
        positions = torch.empty(rows * columns, config.model_dim).normal_(std=0.02) if config.absolute_positions else None
        self.positions = None if positions is None else nn.Parameter(positions)
        self.dropout = nn.Dropout(config.dropout)
        self.stages = nn.ModuleList(SwinStage(config, stage) for stage in range(len(config.depths)))
        width = config.width(len(config.depths) - 1)
        self.norm = nn.LayerNorm(width, eps=config.norm_epsilon)
        self.classifier = nn.Linear(width, config.classes)
        self.apply(initialise)

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, height, width]`, normalised -> `[B, classes]`."""
        (height, width), (rows, columns) = images.shape[-2:], self.config.patch
        whole = functional.pad(images, (0, -width % columns, 0, -height % rows))  # to whole patches
        x = self.stem_norm(self.stem(whole).flatten(2).transpose(1, 2))
        if self.positions is not None:
            x = x + self.positions
        x = self.dropout(x)
        for stage in self.stages:
            x = stage(x)
        return self.classifier(self.norm(x).mean(1))
