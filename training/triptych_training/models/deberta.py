"""DeBERTa v2 and v3 (He et al. 2021): an encoder whose attention compares tokens with tokens and with relative positions.

Shapes: `B` texts, `T` positions, `E` model dimensions, `R` vectors of distances.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from triptych_training.checks import at_least, token_id
from triptych_training.models.attention import SelfAttention
from triptych_training.models.blocks import BlockConfig, EncoderLayer, PlainHeads, TokenEmbedding, make_norm

TERMS = 3  # of a score: token to token, token to distance and distance to token


@dataclass(frozen=True)
class DebertaConfig(PlainHeads):
    """Shapes of weights and options of arithmetic; defaults: DeBERTa-v3-base. Raises ValueError if a field is out of range."""

    vocabulary_size: int
    model_dim: int = 768
    heads: int = 12
    feedforward_dim: int = 3072
    layers: int = 12
    max_positions: int = 512
    position_buckets: int = 256  # of distances in one direction: half of them hold one distance each, the others ranges
    max_distance: int = 512  # tokens from which on all distances share the last bucket
    embedding_dim: int = 0  # of token vectors, which are then projected to model_dim; 0: model_dim
    activation: str = "gelu"
    dropout: float = 0.1
    norm_epsilon: float = 1e-7
    pad_id: int = 0
    cls_id: int = 1
    sep_id: int = 2
    mask_id: int = 128_000
    head_activation: str = "gelu"
    pooler_activation: str = "gelu"
    tied: bool = True

    def __post_init__(self) -> None:
        at_least(1, self, "vocabulary_size", "layers")
        at_least(0, self, "embedding_dim")
        at_least(4, self, "max_positions", "position_buckets")
        if self.max_distance <= (least := self.position_buckets // 2 + 1):
            raise ValueError(f"max_distance: {self.max_distance} is not above {least}, half of the position_buckets and one")
        token_id(self.vocabulary_size, self, "pad_id", "cls_id", "sep_id", "mask_id")
        _ = [replace(self.block, activation=each) for each in (self.head_activation, self.pooler_activation)]

    @property
    def block(self) -> BlockConfig:
        """Configuration of one layer."""
        return BlockConfig.of(self)


class Deberta(nn.Module):
    """DeBERTa's encoder; all layers share the vectors of distances, and project them as they project tokens."""

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.block, config.vocabulary_size, config.pad_id, config.embedding_dim)
        self.distances = nn.Embedding(2 * config.position_buckets, config.model_dim)
        self.distance_norm = make_norm(config.block)
        self.layers = nn.ModuleList(EncoderLayer(config.block) for _ in range(config.layers))
        for attention in self.attentions:
            attention.scale /= TERMS**0.5

    @property
    def attentions(self) -> list[SelfAttention]:
        """Attention of every layer."""
        return [layer.attention for layer in self.layers if isinstance(layer, EncoderLayer)]

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> hidden states `[B, T, E]`; padding is masked out."""
        padding = (ids == self.config.pad_id)[:, None, None, :]
        positions = torch.arange(ids.shape[1], device=ids.device)
        rows = self.rows(positions[:, None] - positions)
        x = self.embedding(ids, segments)
        for layer, attention in zip(self.layers, self.attentions, strict=True):
            x = layer(x, self._bias(attention, x, rows).masked_fill(padding, float("-inf")))
        return x

    def _bias(self, attention: SelfAttention, x: Tensor, rows: Tensor) -> Tensor:
        """Terms of the scores `[B, H, T, T]` with a distance; `rows` `[T, T]` are those of the distances' vectors."""
        query, key, _ = attention.project(x)
        far_query, far_key = self.project_distances(attention)
        rows = rows.expand(*query.shape[:2], -1, -1)
        return ((query @ far_key.mT).gather(3, rows) + (far_query @ key.mT).gather(2, rows)) * attention.scale

    def project_distances(self, attention: SelfAttention) -> tuple[Tensor, Tensor]:
        """Project the vectors of distances to queries and keys of a layer, `[H, R, D]`."""
        query, key, _ = attention.project(self.distance_norm(self.distances.weight)[None])
        return query[0], key[0]

    def rows(self, distances: Tensor) -> Tensor:
        """Numbers of the vectors of distances (query position minus key position); that of distance 0 is `position_buckets`.

        The order of operations is that of the original code: in another one, rounding would move some distances.
        """
        count, single = self.config.position_buckets, self.config.position_buckets // 2
        reach = torch.log(torch.tensor((self.config.max_distance - 1) / single))
        ranged = torch.ceil(torch.log(distances.abs().clamp(min=1) / single) / reach * (single - 1)) + single
        buckets = torch.where(distances.abs() <= single, distances, ranged * distances.sign())
        return (buckets.long() + count).clamp(0, 2 * count - 1)
