"""The Vision Transformer (Dosovitskiy et al. 2020) and DeiT, which adds a distillation token (Touvron et al. 2021).

Shapes: `B` images, `C` channels, `P` patches, `S` leading tokens, `T = S + P` positions, `E` model dimensions.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import at_least, one_of
from triptych_training.models.blocks import BlockConfig, EncoderLayer, ImageModelConfig

STEMS = ("patch", "convolution", "deep")
FIRST, MEAN, MEAN_FIRST, BOTH = "first", "mean", "mean-first", "both"
POOLINGS = (FIRST, MEAN, MEAN_FIRST, BOTH)
SHORTEST = 1e-12  # length of a projection, which is divided by it


@dataclass(frozen=True)
class VitConfig(ImageModelConfig):
    """Shapes of weights and options of the arithmetic; defaults: ViT-B/16. Raises ValueError if a field is out of range."""

    model_dim: int = 768
    heads: int = 12
    feedforward_dim: int = 3072
    layers: int = 12
    stem: str = "patch"  # "convolution" helps on small data (Xiao et al. 2021), "deep" more
    distillation_token: bool = False  # DeiT's second token, after the class token
    distillation_head: bool = False  # average the logits of two classifiers, one for each of the two tokens
    class_token: bool = True
    registers: int = 0  # tokens after these that no classifier reads (Darcet et al. 2023)
    embedding_norm: bool = False  # normalise what the first layer reads (Radford et al. 2021, CLIP); the stem has no bias then
    final_norm: bool = True  # normalise what the last layer returns
    gated: bool = False  # multiply the feed-forward's activations by a second projection
    # What the classifier reads: the first token's state; the mean of the patches' states, normalised before it or after it
    # ("mean-first"); or the first token's state beside the mean ("both").
    pooling: str = FIRST
    relative_positions: bool = False  # each layer has a trained bias on attention scores, by rows and columns apart (BEiT)

    def __post_init__(self) -> None:
        self.check()
        at_least(1, self, "layers")
        at_least(0, self, "registers")
        for side, image, patch in zip(("size", "width"), self.image, self.patch, strict=True):
            if image % patch:
                raise ValueError(f"patch_{side}: {patch} does not divide image_{side} {image}")
        one_of(STEMS, self, "stem")
        one_of(POOLINGS, self, "pooling")
        if self.stem != "patch" and self.patch_size & (self.patch_size - 1):
            raise ValueError(f"patch_size: {self.patch_size} is not a power of two, which the {self.stem} stem needs")
        if self.stem != "patch" and self.patch[0] != self.patch[1]:
            raise ValueError(f"patch_width: {self.patch_width} is not patch_size, which the {self.stem} stem needs")
        if self.distillation_head and not self.distillation_token:
            raise ValueError("distillation_head: there is no distillation_token for it")
        if self.distillation_head and self.pooling != FIRST:
            raise ValueError(f"distillation_head: needs pooling {FIRST!r}, not {self.pooling!r}")
        if self.embedding_norm and self.stem != "patch":
            raise ValueError(f"embedding_norm: only with the patch stem, not {self.stem!r}")
        if self.relative_positions and self.tokens != 1:
            raise ValueError(f"relative_positions: needs a class_token alone before the patches, not {self.tokens} tokens")
        if not self.class_token and (self.distillation_token or self.pooling in (FIRST, BOTH)):
            name = "distillation_token: true" if self.distillation_token else f"pooling: {self.pooling!r}"
            raise ValueError(f"{name} needs a class_token")
        _ = self.block(0)

    @property
    def patches(self) -> int:
        """Number of patches of an image."""
        return self.grid[0] * self.grid[1]

    @property
    def tokens(self) -> int:
        """Number of tokens before the patches."""
        return self.class_token + self.distillation_token + self.registers

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image[0] // self.patch[0], self.image[1] // self.patch[1]

    @property
    def distances(self) -> int:
        """Number of distances of patches, and three: from the class token to patches, back, and to itself."""
        return (2 * self.grid[0] - 1) * (2 * self.grid[1] - 1) + 3

    def block(self, layer: int) -> BlockConfig:
        """Configuration of layer number `layer`."""
        return self.layer_block(self.model_dim, self.heads, self.feedforward_dim, layer / max(1, self.layers - 1))


class ConvolutionStem(nn.Sequential):
    """3x3 convolutions in place of the patch projection, which halve the grid down to one position per patch.

    stem           halves by    convolutions
    "convolution"  stride 2     one, and one for each halving
    "deep"         max pooling  two before each halving, as in VGG (Simonyan and Zisserman 2015)

    The width doubles with each halving, up to the model's.
    """

    def __init__(self, config: VitConfig) -> None:
        halvings = config.patch_size.bit_length() - 1
        widths = [min(config.model_dim, max(16, config.model_dim >> (halvings - 1 - i))) for i in range(halvings)]
        widths = [config.channels, *widths, config.model_dim]
        layers: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise(widths)):
            if config.stem == "convolution":
                layers += _convolution(before, after, stride=2 if index else 1)
            else:
                layers += _convolution(before, after, pool=index > 0)
                layers += _convolution(after, after) if 0 < index < halvings else []
        super().__init__(*layers)


def _convolution(before: int, after: int, stride: int = 1, pool: bool = False) -> list[nn.Module]:
    pools = [nn.MaxPool2d(2)] if pool else []  # before the norm, which then has a quarter of the positions
    return [nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False), *pools, nn.BatchNorm2d(after), nn.GELU()]


class Vit(nn.Module):
    """Images -> class logits."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        self.stem: nn.Module = (
            nn.Conv2d(config.channels, config.model_dim, config.patch, stride=config.patch, bias=not config.embedding_norm)
            if config.stem == "patch"
            else ConvolutionStem(config)
        )
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.model_dim)) if config.class_token else None
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, config.model_dim)) if config.distillation_token else None
        self.registers = nn.Parameter(torch.zeros(1, config.registers, config.model_dim)) if config.registers else None
        self.positions = nn.Parameter(torch.empty(config.tokens + config.patches, config.model_dim).normal_(std=0.02))
        tables = [torch.zeros(config.distances, config.heads) for _ in range(config.layers if config.relative_positions else 0)]
        self.relative_positions = nn.ParameterList(tables)
        self.embedding_norm = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon) if config.embedding_norm else None
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config.block(i)) for i in range(config.layers))
        self.norm: nn.Module = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon) if config.final_norm else nn.Identity()
        self.classifier = nn.Linear(config.model_dim * (1 + (config.pooling == BOTH)), config.classes)
        self.distillation_classifier = nn.Linear(config.model_dim, config.classes) if config.distillation_head else None
        self.apply(initialise)

    def leading(self) -> Tensor:
        """The tokens before the patches, `[1, S, E]`."""
        parts = tuple(part for part in (self.class_token, self.distillation_token, self.registers) if part is not None)
        return torch.cat(parts, dim=1) if parts else self.positions[None, :0]

    def states(self, images: Tensor) -> Tensor:
        """`[B, C, height, width]`, normalised -> the last layer's states `[B, T, E]`."""
        patches = self.stem(images).flatten(2).transpose(1, 2)  # [B, P, E]
        x = torch.cat((self.leading().expand(len(patches), -1, -1), patches), dim=1) + self.positions
        x = self.dropout(x if self.embedding_norm is None else self.embedding_norm(x))
        for index, layer in enumerate(self.layers):
            x = layer(x, self.bias(index))
        return x

    def bias(self, layer: int) -> Tensor | None:
        """Bias on a layer's attention scores, `[1, H, T, T]`."""
        if not self.config.relative_positions:
            return None
        (rows, columns), last = self.config.grid, self.config.distances
        numbers = (torch.arange(count, device=self.relative_positions[layer].device) for count in (rows, columns))
        down, right = (each[:, None] - each + len(each) - 1 for each in numbers)  # distances, from 0
        apart = (down[:, None, :, None] * (2 * columns - 1) + right[None, :, None, :]).flatten(2).flatten(0, 1)  # [P, P]
        places = functional.pad(apart, (1, 0, 1, 0), value=last - 2)
        places[0] = last - 3
        places[0, 0] = last - 1
        return self.relative_positions[layer][places].permute(2, 0, 1)[None]

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, height, width]` -> `[B, classes]`."""
        states = self.states(images)
        logits: Tensor = self.classifier(pool(states, self.norm, self.config))
        if self.distillation_classifier is not None:
            logits = (logits + self.distillation_classifier(self.norm(states[:, 1]))) / 2
        return logits


class CosineClassifier(nn.Linear):
    """Cosines of a projection of the model's states with the rows of `weight`, one for each label, times their lengths."""

    def __init__(self, model_dim: int, projection_dim: int, classes: int) -> None:
        super().__init__(projection_dim, classes, bias=False)
        self.projection = nn.Linear(model_dim, projection_dim, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """`[B, E]` -> `[B, classes]`."""
        # int8 leaves three-dimensional matrices alone; rounding would show in cosines, whose factor is 100 in published models.
        projected = states[None] @ self.projection.weight.t()[None]
        # `normalize` would compute shapes, which CUDA graphs cannot.
        lengths = projected.norm(dim=-1, keepdim=True).clamp_min(SHORTEST)
        return ((projected / lengths) @ self.weight.t()[None])[0]


def pool(states: Tensor, norm: nn.Module, config: VitConfig) -> Tensor:
    """Compute what the classifier reads, `[B, E]` or `[B, 2E]`, of the last layer's states `[B, T, E]`."""
    if config.pooling == FIRST:
        return norm(states[:, 0])
    patches = slice(config.tokens, None)
    if config.pooling == MEAN_FIRST:
        return norm(states[:, patches].mean(1))
    states = norm(states).float()
    mean = states[:, patches].mean(1)
    return mean if config.pooling == MEAN else torch.cat((states[:, 0], mean), dim=-1)


@torch.no_grad()
def initialise(module: nn.Module) -> None:
    """Set a projection's initial weights."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
