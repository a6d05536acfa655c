"""Minimum work of a model, computed from its configuration: bytes to and from memory, operations, kernels.

Bytes are a minimum: each weight once per pass, caches once, nothing for values that stay on the chip. Operations are those of
matrix products and attention, two per multiply-add. Kernels are those of a well fused graph; a real graph may have more. An
embedding lookup counts as a kernel without bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych_training.models.bert import BertConfig
from triptych_training.models.blocks import BlockConfig
from triptych_training.models.transformer import TransformerConfig
from triptych_training.models.vit import VitConfig

HALF = 2  # bytes of a number in fp16
ENCODER_KERNELS = 8  # of a layer: 4 products, attention, 2 norms with their residual sums, activation
DECODER_KERNELS = 12  # the same and cross-attention: 2 products, attention, a norm
FEEDING_KERNELS = 5  # token and position vectors, output projection, the best token, the next position
HIDDEN_KERNELS = 2  # embeddings in front, one norm behind
NO_KERNEL = frozenset({"Constant", "Flatten", "Identity", "Reshape", "Shape", "Squeeze", "Unsqueeze"})


@dataclass(frozen=True)
class Work:
    """Bytes, operations and kernels."""

    bytes: float = 0.0
    flops: float = 0.0
    kernels: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.bytes + other.bytes, self.flops + other.flops, self.kernels + other.kernels)

    def times(self, count: float) -> "Work":
        """Return the work of `count` repetitions."""
        return Work(count * self.bytes, count * self.flops, count * self.kernels)


NOTHING = Work()


def translation(config: TransformerConfig, sources: Sequence[int], targets: Sequence[int], beam: int = 1) -> Work:
    """Return the work of one batch, from ids to ids.

    Args:
        config: Configuration of the model, which is in fp16.
        sources: Tokens of each source.
        targets: Tokens of each translation; decoding ends with the longest.
        beam: Rows of each sentence.
    """
    total = translation_encoder(config, sources)
    for position in range(max(targets)):
        left = [source for source, target in zip(sources, targets, strict=True) if target > position]
        total += translation_step(config, [source for source in left for _ in range(beam)], position)
    return total


def translation_encoder(config: TransformerConfig, sources: Sequence[int]) -> Work:
    """Return the work from a batch of sources to keys and values of every decoder layer."""
    memory = config.decoder_layers * 2 * config.model_dim * config.decoder_block.attention.inner_dim
    products = Work(HALF * memory, 2.0 * memory * sum(sources), config.decoder_layers)
    written = Work(HALF * memory / config.model_dim * sum(sources))
    return _layers(config.block, config.encoder_layers, sources) + products + written + Work(kernels=HIDDEN_KERNELS)


def translation_step(config: TransformerConfig, sources: Sequence[int], position: int) -> Work:
    """Return the work of one decoding step, with all rows at one position.

    Args:
        config: Configuration of the model, which is in fp16.
        sources: Tokens of the source of each row.
        position: Number of tokens of each row.
    """
    block, rows = config.decoder_block, len(sources)
    inner, layers = block.attention.inner_dim, config.decoder_layers
    weights = layers * (_layer_weights(block) + 2 * config.model_dim * inner)
    weights += config.model_dim * config.vocabulary_size
    seen = rows * (position + 1) + sum(sources)  # positions that attention reads, over all rows
    return Work(
        bytes=HALF * (weights + 2 * layers * inner * (seen + rows)),
        flops=2.0 * rows * weights + 4.0 * layers * inner * seen,
        kernels=layers * DECODER_KERNELS + FEEDING_KERNELS,
    )


def bert(config: BertConfig, lengths: Sequence[int], masks: int) -> Work:
    """Return the work of a batch of texts, with the best tokens of `masks` positions in total."""
    head = config.model_dim * (config.model_dim + config.vocabulary_size)
    return (
        _layers(config.block, config.layers, lengths) + Work(HALF * head, 2.0 * masks * head, 4) + Work(kernels=HIDDEN_KERNELS)
    )


def vit(config: VitConfig, images: int) -> Work:
    """Return the work of a batch of images."""
    positions, dim = config.tokens + config.patches, config.model_dim
    stem = config.channels * config.patch[0] * config.patch[1] * dim  # of the patch stem; the other one is not counted
    pixels = images * config.channels * config.image[0] * config.image[1]
    head = dim * config.classes
    return (
        _layers(config.block(0), config.layers, [positions] * images)
        + Work(HALF * stem + pixels, 2.0 * images * config.patches * stem, 1)
        + Work(HALF * head, 2.0 * images * head, 2)
        + Work(kernels=HIDDEN_KERNELS)
    )


def graph_kernels(path: Path) -> int:
    """Count the nodes of an .onnx file that start a kernel, before any fusion."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    return sum(node.op_type not in NO_KERNEL for node in graph.node)


def _layers(block: BlockConfig, layers: int, lengths: Sequence[int]) -> Work:
    """Return the work of encoder layers over texts of these lengths."""
    weights = layers * _layer_weights(block)
    seen = sum(length * length for length in lengths)
    flops = 2.0 * weights * sum(lengths) + 4.0 * layers * block.attention.inner_dim * seen
    return Work(HALF * weights, flops, layers * ENCODER_KERNELS)


def _layer_weights(block: BlockConfig) -> int:
    """Count the weights of self-attention and feed-forward, without biases and norms."""
    feedforward = (3 if block.gated else 2) * block.model_dim * block.feedforward_dim
    return 4 * block.model_dim * block.attention.inner_dim + feedforward
