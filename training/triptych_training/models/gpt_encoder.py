"""Decoder-only models that embed texts: Qwen3-Embedding (Zhang et al. 2025), EmbeddingGemma (Vera et al. 2025).

A text's vector is the state of its last token, which has seen all others, or the mean of all states.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from triptych_training.checks import token_id
from triptych_training.models.gpt import Gpt, GptConfig


@dataclass(frozen=True)
class GptEncoderConfig(GptConfig):
    """Shape of the network, and ids of the tokens around a text; raises ValueError if a field is out of range."""

    pad_id: int = 0
    cls_id: int | None = None  # before a text; None: nothing is
    sep_id: int = 0  # after a text, or before it where `cls_id` is None

    def __post_init__(self) -> None:
        super().__post_init__()
        token_id(self.vocabulary_size, self, "pad_id", "sep_id")

    @property
    def mask_id(self) -> int:
        """Id of masks, which these models do not have: that of padding."""
        return self.pad_id


class GptEncoder(nn.Module):
    """States of whole texts."""

    def __init__(self, config: GptEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.gpt = Gpt(config)

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
