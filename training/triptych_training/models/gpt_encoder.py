"""Decoder-only models that embed texts: Qwen3-Embedding (Zhang et al. 2025), EmbeddingGemma (Vera et al. 2025).

A text's vector is the state of its last token, which has seen all others, or the mean of all states.
"""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from triptych_training.checks import token_id
from triptych_training.models.gpt import Gpt, GptConfig


@dataclass(frozen=True)
class GptEncoderConfig:
    """Shape of the network, and ids of the tokens around a text; raises ValueError if an id is not in the vocabulary."""

    gpt: GptConfig
    pad_id: int
    cls_id: int | None  # before a text; None: nothing is
    sep_id: int  # after a text, or before it where `cls_id` is None

    def __post_init__(self) -> None:
        token_id(self.vocabulary_size, self, "pad_id", "sep_id")

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens."""
        return self.gpt.vocabulary_size

    @property
    def model_dim(self) -> int:
        """Width of the states."""
        return self.gpt.model_dim

    @property
    def heads(self) -> int:
        """Heads of the queries."""
        return self.gpt.heads

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.gpt.layers

    @property
    def max_positions(self) -> int:
        """Longest text in tokens, those around it included."""
        return self.gpt.max_positions

    @property
    def mask_id(self) -> int:
        """Id of masks, which these models do not have: that of padding."""
        return self.pad_id

    def shortened(self, limit: int) -> "GptEncoderConfig":
        """Return the configuration with `limit` positions."""
        return replace(self, gpt=replace(self.gpt, max_positions=limit))


class GptEncoder(nn.Module):
    """States of whole texts."""

    def __init__(self, config: GptEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.gpt = Gpt(config.gpt)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> hidden states `[B, T, E]`; rows have equal lengths, and `segments` are ignored."""
        return self.gpt.hidden(ids)


class GptForEmbedding(nn.Module):
    """Decoder-only model for text embeddings; `dense` is applied to a text's vector."""

    def __init__(self, config: GptEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = GptEncoder(config)
        self.dense: nn.Module = nn.Identity()

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> `[B, T, E]`."""
        return self.bert(ids, segments)
