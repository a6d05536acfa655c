"""The Vision Transformer (Dosovitskiy et al. 2020) and DeiT, which adds a distillation token (Touvron et al. 2021).

Shapes: `B` images, `C` channels, `P` patches, `S` leading tokens, `E` model dimensions.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from triptych_training.checks import at_least, one_of
from triptych_training.models.blocks import BlockConfig, EncoderLayer, ImageModelConfig

STEMS = ("patch", "convolution", "deep")


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

    def __post_init__(self) -> None:
        self.check()
        at_least(1, self, "layers")
        for side, image, patch in zip(("size", "width"), self.image, self.patch, strict=True):
            if image % patch:
                raise ValueError(f"patch_{side}: {patch} does not divide image_{side} {image}")
        one_of(STEMS, self, "stem")
        if self.stem != "patch" and self.patch_size & (self.patch_size - 1):
            raise ValueError(f"patch_size: {self.patch_size} is not a power of two, which the {self.stem} stem needs")
        if self.stem != "patch" and self.patch[0] != self.patch[1]:
            raise ValueError(f"patch_width: {self.patch_width} is not patch_size, which the {self.stem} stem needs")
        if self.distillation_head and not self.distillation_token:
            raise ValueError("distillation_head: there is no distillation_token for it")
        _ = self.block(0)

    @property
    def patches(self) -> int:
        """Number of patches of an image."""
        return (self.image[0] // self.patch[0]) * (self.image[1] // self.patch[1])

    @property
    def tokens(self) -> int:
        """Number of tokens before the patches."""
        return 1 + self.distillation_token

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
            nn.Conv2d(config.channels, config.model_dim, config.patch, stride=config.patch)
            if config.stem == "patch"
            else ConvolutionStem(config)
        )
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.model_dim))
        self.distillation_token = nn.Parameter(torch.zeros(1, 1, config.model_dim)) if config.distillation_token else None
        self.positions = nn.Parameter(torch.empty(config.tokens + config.patches, config.model_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config.block(i)) for i in range(config.layers))
        self.norm = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon)
        self.classifier = nn.Linear(config.model_dim, config.classes)
        self.distillation_classifier = nn.Linear(config.model_dim, config.classes) if config.distillation_head else None
        self.apply(initialise)

    def leading(self) -> Tensor:
        """The tokens before the patches, `[1, S, E]`."""
        if self.distillation_token is None:
            return self.class_token
        return torch.cat((self.class_token, self.distillation_token), dim=1)

    def states(self, images: Tensor) -> Tensor:
        """`[B, C, height, width]`, normalised -> the leading tokens' last states `[B, S, E]`."""
        patches = self.stem(images).flatten(2).transpose(1, 2)  # [B, P, E]
        x = torch.cat((self.leading().expand(len(patches), -1, -1), patches), dim=1) + self.positions
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x, None)
        return self.norm(x[:, : self.config.tokens])

    def forward(self, images: Tensor) -> Tensor:
        """`[B, C, height, width]` -> `[B, classes]`."""
        states = self.states(images)
        logits: Tensor = self.classifier(states[:, 0])
        if self.distillation_classifier is not None:
            logits = (logits + self.distillation_classifier(states[:, 1])) / 2
        return logits


@torch.no_grad()
def initialise(module: nn.Module) -> None:
    """Set a projection's initial weights."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
