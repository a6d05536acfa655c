"""What a model must do at least, counted from its configuration: bytes to and from memory, operations, kernels.

Bytes are the fewest: each weight once a pass, caches once, nothing for what stays within the chip. Operations are those of
matrix products and attention, two for a multiplication with its addition. Kernels are those of a well fused graph; what a graph
really has may be more. A lookup of embeddings counts as a kernel without bytes.
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
    """Of one run or of many."""

    bytes: float = 0.0
    flops: float = 0.0
    kernels: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.bytes + other.bytes, self.flops + other.flops, self.kernels + other.kernels)

    def times(self, count: float) -> "Work":
        """So often."""
        return Work(count * self.bytes, count * self.flops, count * self.kernels)


NOTHING = Work()


def translation(config: TransformerConfig, sources: Sequence[int], targets: Sequence[int], beam: int = 1) -> Work:
    """One batch, from ids to ids.

    Args:
        config: of the model, in fp16.
        sources: tokens of each source.
        targets: tokens of each translation; the batch is stepped until the longest is complete.
        beam: rows of each sentence.
    """
    total = translation_encoder(config, sources)
    for position in range(max(targets)):
        left = [source for source, target in zip(sources, targets, strict=True) if target > position]
        total += translation_step(config, [source for source in left for _ in range(beam)], position)
    return total


def translation_encoder(config: TransformerConfig, sources: Sequence[int]) -> Work:
    """A batch of sources -> keys and values of every decoder layer."""
    memory = config.decoder_layers * 2 * config.model_dim * config.decoder_block.attention.inner_dim
    products = Work(HALF * memory, 2.0 * memory * sum(sources), config.decoder_layers)
    written = Work(HALF * memory / config.model_dim * sum(sources))
    return _layers(config.block, config.encoder_layers, sources) + products + written + Work(kernels=HIDDEN_KERNELS)


def translation_step(config: TransformerConfig, sources: Sequence[int], position: int) -> Work:
    """One token more for each row, all rows at one position.

    Args:
        config: of the model, in fp16.
        sources: tokens of the source of each row.
        position: how many tokens a row has.
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
    """A batch of texts of so many tokens -> the best tokens at so many places of all texts together."""
    head = config.model_dim * (config.model_dim + config.vocabulary_size)
    return (
        _layers(config.block, config.layers, lengths) + Work(HALF * head, 2.0 * masks * head, 4) + Work(kernels=HIDDEN_KERNELS)
    )


def vit(config: VitConfig, images: int) -> Work:
    """A batch of images -> classes."""
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
    """Nodes of an .onnx file that start a kernel, before the runtime fuses any."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    return sum(node.op_type not in NO_KERNEL for node in graph.node)


def _layers(block: BlockConfig, layers: int, lengths: Sequence[int]) -> Work:
    """Layers over texts of so many tokens; every token sees its own text."""
    weights = layers * _layer_weights(block)
    seen = sum(length * length for length in lengths)
    flops = 2.0 * weights * sum(lengths) + 4.0 * layers * block.attention.inner_dim * seen
    return Work(HALF * weights, flops, layers * ENCODER_KERNELS)


def _layer_weights(block: BlockConfig) -> int:
    """Of self-attention and feed-forward, without vectors."""
    feedforward = (3 if block.gated else 2) * block.model_dim * block.feedforward_dim
    return 4 * block.model_dim * block.attention.inner_dim + feedforward
