"""Graphs of image classifiers: bytes of pixels in, the best labels out.

Inputs: `pixels` `[B, height, width, 3]` uint8 RGB, `k` `[1]` int64. Outputs: `scores` `[B, k]`, descending, and `labels`
`[B, k]`.
Layers may be in float16, for CUDA; the classifier and its input are float32.
Normalisation, `(pixel / 255 - mean) / std`, is folded into the weights as far as possible.

Shapes: `B` images, `P` patches, `S` leading tokens, `E` model dimensions, `C` classes.
"""

import copy
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.image_stems import PatchStem, PixelStem, without_norms
from triptych_export.graphs.layers import (
    BiasedLayer,
    FirstPositionLayer,
    FusedCrossAttention,
    FusedLayer,
    GatheredMerging,
    WindowLayer,
)
from triptych_export.graphs.operators import fused_attention, top_k
from triptych_export.graphs.translation import arg_max, block_width
from triptych_export.graphs.weight_folding import fuse_norms
from triptych_training.checkpoints.encoder import ImageModel
from triptych_training.models.blocks import EncoderLayer
from triptych_training.models.image_gpt import ImageGpt
from triptych_training.models.pvt import VERSION_1, Pvt, PvtLayer, PvtStage
from triptych_training.models.resnet import Block, Convolution, ResNet
from triptych_training.models.swin import PatchMerging, Swin, SwinLayer, SwinStage
from triptych_training.models.vae import Vae
from triptych_training.models.vit import FIRST, Vit, pool


class ImageGraph(nn.Module):
    """Base of image graphs of `image` (height, width) pixels: names of inputs and outputs, and the ranking of labels."""

    inputs: ClassVar[tuple[str, ...]] = ("pixels", "k")
    outputs: ClassVar[tuple[str, ...]] = ("scores", "labels")

    def __init__(self, image: tuple[int, int]) -> None:
        super().__init__()
        self.image = image

    def logits(self, pixels: Tensor) -> Tensor:
        """Compute logits `[B, C]`."""
        raise NotImplementedError

    def forward(self, pixels: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Compute scores and labels, both `[B, k]`."""
        return top_k(torch.softmax(self.logits(pixels), dim=-1), k)


class VitGraph(ImageGraph):
    """Graph of ViT and DeiT in evaluation mode; mean and standard deviation are of each channel, 0 to 1."""

    def __init__(self, model: Vit, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(model.config.image)
        self.config = model.config
        stem, tokens = model.stem, model.config.tokens
        self.stem = PatchStem(stem, self.image, mean, std) if isinstance(stem, nn.Conv2d) else PixelStem(stem, mean, std)
        positions = model.positions.detach()
        self.first = nn.Parameter(model.leading().detach() + positions[:tokens])  # [1, S, E]
        self.rest = nn.Parameter(positions[tokens:] + self.stem.bias)  # [P, E]
        self.embedding_norm = model.embedding_norm
        layers = [layer for layer in model.layers if isinstance(layer, EncoderLayer)]
        read = 1 if model.distillation_classifier is None else 2
        biases = [model.bias(index) for index in range(len(layers))]
        alone = model.config.pooling == FIRST and not model.config.relative_positions
        self.last = FirstPositionLayer(layers.pop(), read) if alone else None
        pairs = zip(layers, biases, strict=False)  # without the last layer
        self.layers = nn.ModuleList(FusedLayer(layer) if bias is None else BiasedLayer(layer, bias) for layer, bias in pairs)
        self.norm = model.norm
        self.classifier = model.classifier if read == 1 else _mean_classifier(model)

    def logits(self, pixels: Tensor) -> Tensor:
        x = self.join(self.stem(pixels))
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        for layer in self.layers:
            x = layer(x, None)
        if self.last is None:
            return self.classifier(pool(x, self.norm, self.config).float())
        states = self.norm(self.last(x))
        if self.last.positions > 1:
            states = states.reshape(-1, self.last.positions * states.shape[-1])  # side by side
        return self.classifier(states.float())

    def join(self, patches: Tensor) -> Tensor:
        """Vectors of patches `[B, P, E]` -> the layers' input `[B, S + P, E]`."""
        patches = patches + self.rest
        return torch.cat((self.first.expand(patches.shape[0], -1, -1), patches), dim=1) if self.config.tokens else patches


class PaddedVitGraph(VitGraph):
    """Variant without shape arithmetic on the host, so that the graph can be captured on a GPU."""

    def __init__(self, model: Vit, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(model, mean, std)
        rest = self.rest.detach().expand(model.config.patches, -1)
        self.places = nn.Parameter(torch.cat((self.first.detach()[0], rest)))  # [S + P, E]

    def join(self, patches: Tensor) -> Tensor:
        return functional.pad(patches, (0, 0, self.config.tokens, 0)) + self.places


class SwinGraph(ImageGraph):
    """Graph of Swin; arguments as for VitGraph."""

    def __init__(self, model: Swin, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(model.config.image)
        self.stem = PatchStem(model.stem, self.image, mean, std)
        self.stem_norm = model.stem_norm
        self.positions = model.positions
        parts = [part for stage in model.stages if isinstance(stage, SwinStage) for part in (*stage.layers, stage.merging)]
        layers = [WindowLayer(part) for part in parts if isinstance(part, SwinLayer)]
        self.body = nn.ModuleList(
            GatheredMerging(part) if isinstance(part, PatchMerging) else layers.pop(0) for part in parts if part is not None
        )
        self.norm, self.classifier = model.norm, model.classifier

    def logits(self, pixels: Tensor) -> Tensor:
        x = self.stem_norm(self.stem(pixels) + self.stem.bias)
        if self.positions is not None:
            x = x + self.positions
        for part in self.body:
            x = part(x)
        return self.classifier(self.norm(x).float().mean(1))


class PvtGraph(ImageGraph):
    """Graph of PVT; arguments as for VitGraph."""

    def __init__(self, model: Pvt, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(model.config.image)
        stages = copy.deepcopy(model.stages, {id(weight): weight for weight in model.parameters()})
        for part in stages.modules():
            if isinstance(part, PvtLayer):
                part.attention = FusedCrossAttention(part.attention)
        self.first, *others = (stage for stage in stages if isinstance(stage, PvtStage))
        self.others, self.classifier = nn.Sequential(*others), model.classifier
        patches, overlap = self.first.projection, model.config.version != VERSION_1
        self.stem = PixelStem(nn.Sequential(patches), mean, std) if overlap else PatchStem(patches, self.image, mean, std)

    def logits(self, pixels: Tensor) -> Tensor:
        return self.classifier(self.others(self.first.run(self.stem(pixels) + self.stem.bias)).float())


class ResNetGraph(ImageGraph):
    """Graph of ResNet; arguments as for VitGraph. Batch normalisation is folded into the convolutions."""

    def __init__(self, model: ResNet, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(model.config.image)
        self.stem = PixelStem(model.stem, mean, std)
        self.blocks, self.classifier = copy.deepcopy(model.blocks), model.classifier
        for block in self.blocks:
            assert isinstance(block, Block)
            block.inner = nn.Sequential(*without_norms(block.inner))
            if isinstance(block.shortcut, Convolution):
                block.shortcut = nn.Sequential(*without_norms(block.shortcut))

    def logits(self, pixels: Tensor) -> Tensor:
        return self.classifier(self.blocks(self.stem.maps(pixels)).float().mean((2, 3)))


class ImageGptGraph(ImageGraph):
    """Graph of ImageGPT; arguments as for VitGraph. A convolution compares colours, since int8 leaves it alone."""

    scale: Tensor
    shift: Tensor

    def __init__(self, model: ImageGpt, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(model.config.image)
        self.model = fuse_norms(model)
        self.columns = block_width(model.config.colours)
        self.register_buffer("scale", 1 / (255 * torch.tensor(std)))
        self.register_buffer("shift", -torch.tensor(mean) / torch.tensor(std))

    def logits(self, pixels: Tensor) -> Tensor:
        gpt, (height, width) = self.model.gpt, self.image
        colours = (pixels.float() * self.scale + self.shift).permute(0, 3, 1, 2)
        closeness = self.model.closeness(colours).reshape(-1, self.model.config.colours)
        ids = arg_max(closeness, self.columns).reshape(-1, height * width)
        assert gpt.positions is not None
        x = gpt.tokens(ids) + gpt.positions.weight[: height * width]
        for layer in gpt.blocks:
            frame, own = layer.attention_residual, layer.attention
            query, key, value = own.query_key_value(frame.enter(x)).chunk(3, dim=-1)
            context = fused_attention(query, key, value, own.heads, causal=True)
            x = layer.feedforward_residual.around(frame.leave(x, own.output(context)), layer.feedforward)
        return self.model.classifier(gpt.norm(x).mean(1))


def image_graph(model: ImageModel, mean: Sequence[float], std: Sequence[float], half: bool = False) -> ImageGraph:
    """Build the graph of a model; `half` makes the variant for CUDA."""
    if isinstance(model, ImageGpt):
        return ImageGptGraph(model, mean, std)
    if isinstance(model, Swin):
        return SwinGraph(model, mean, std)
    if isinstance(model, Pvt):
        return PvtGraph(model, mean, std)
    if isinstance(model, ResNet):
        return ResNetGraph(model, mean, std)
    return PaddedVitGraph(model, mean, std) if half else VitGraph(model, mean, std)


def _mean_classifier(model: Vit) -> nn.Linear:
    """Merge DeiT's two classifiers into one projection of both tokens' states to the mean of their logits."""
    first, second = model.classifier, model.distillation_classifier
    assert second is not None
    both = nn.Linear(2 * first.in_features, first.out_features)
    both.weight = nn.Parameter(torch.cat((first.weight.detach(), second.weight.detach()), dim=1) / 2)
    both.bias = nn.Parameter((first.bias.detach() + second.bias.detach()) / 2)
    return both


class AutoencoderGraph(nn.Module):
    """One half of a variational autoencoder, `encode` or `decode`: the parameters of q(z|x) or p(x|z)."""

    def __init__(self, model: Vae, kind: str) -> None:
        super().__init__()
        self.model, self.kind = model, kind

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """uint8 `[B, S, S, 3]` -> `[B, Z]` twice; or `[B, Z]` -> `[B, S, S, 3]` twice."""
        return tuple(self.model.encode(x) if self.kind == "encode" else self.model.decode(x))
