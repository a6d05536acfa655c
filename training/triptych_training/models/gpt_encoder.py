"""Decoder-only models that embed or label texts: Qwen3-Embedding (Zhang et al. 2025), EmbeddingGemma (Vera et al. 2025).

A text's vector is the state of its last token, which has seen all others, or the mean of all states.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from triptych_training.checks import one_of, token_id
from triptych_training.models.gpt import Gpt, GptConfig

LAST = "last"
POOLINGS = (LAST, "cls", "mean", "late")  # the last one: the mean of all tokens' logits


@dataclass(frozen=True)
class GptEncoderConfig(GptConfig):
    """Shape of the network, ids of the tokens around a text, and heads; raises ValueError if a field is out of range."""

    dense_norm: ClassVar[bool] = False
    masked_dense: ClassVar[bool] = False
    head_bias: ClassVar[bool] = True
    head_activation: ClassVar[str] = "gelu"
    pooler_activation: ClassVar[str] = "gelu"

    pad_id: int = 0
    cls_id: int | None = None  # before a text; None: nothing is
    sep_id: int | None = 0  # after a text, or before it where `cls_id` is None; None: nothing is around it
    mask_id: int = 0
    skipped_id: int | None = None  # the last token of a text is the last one with another id; None: any
    pooling: str = LAST  # of the states, for text classification
    dense: bool = False  # a text classifier has a layer between the pooled state and the classifier
    classifier_bias: bool = False  # of a text classifier

    def __post_init__(self) -> None:
        super().__post_init__()
        token_id(self.vocabulary_size, self, "pad_id", *(["sep_id"] if self.sep_id is not None else []))
        one_of(POOLINGS, self, "pooling")


class GptEncoder(nn.Module):
    """States of whole texts."""

    def __init__(self, config: GptEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.gpt = Gpt(replace(config, tied=True, projection_bias=False))  # its output matrix is not used

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> hidden states `[B, T, E]`; rows have equal lengths, and `segments` are ignored."""
        return self.gpt.hidden(ids)

    def text_state(self, ids: Tensor, states: Tensor) -> Tensor:
        """Select the state `[B, E]` of the token that stands for a text: the last one, or with the pooling "cls" the first."""
        if self.config.pooling == "cls":
            return states[:, 0]
        places = torch.arange(ids.shape[1]).expand_as(ids)
        if self.config.skipped_id is not None:
            places = places * (ids != self.config.skipped_id)
        return states[torch.arange(len(ids)), places.amax(1)]
