"""BERT (Devlin et al. 2018): a bidirectional encoder, and the pre-training and fine-tuning heads of its whole family.

RoBERTa (Liu et al. 2019) and DistilBERT (Sanh et al. 2019) are this encoder in other configurations; ModernBERT is an encoder
of its own under the same heads.

Shapes: `B` texts, `T` positions, `E` model dimensions, `V` tokens, `C` classes.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from triptych_training.models.blocks import ACTIVATIONS, BlockConfig, EncoderLayer
from triptych_training.models.modernbert import ModernBert, ModernBertConfig
from triptych_training.models.positions import sinusoid_table

DEVIATION = 0.02  # of fresh weights
DENSE_ACTIVATIONS = {**ACTIVATIONS, "tanh": torch.tanh}


@dataclass(frozen=True)
class BertConfig:
    """Everything that fixes the weights' shapes and the arithmetic; the defaults are BERT-base.

    Raises:
        ValueError: a field is out of range; the message names field, value and limit.
    """

    head_bias: ClassVar[bool] = True
    norm_bias: ClassVar[bool] = True
    projection_bias: ClassVar[bool] = True
    dense_norm: ClassVar[bool] = False
    pooling: ClassVar[str] = "cls"

    vocabulary_size: int
    model_dim: int = 768
    heads: int = 12
    feedforward_dim: int = 3072
    layers: int = 12
    max_positions: int = 512
    segments: int = 2  # of which a token is in one; with one or none they are all the same
    norm: str = "post"
    activation: str = "gelu"
    dropout: float = 0.1
    norm_epsilon: float = 1e-12
    pad_id: int = 0
    cls_id: int = 2
    sep_id: int = 3
    mask_id: int = 4
    head_activation: str = "gelu"  # before masked tokens are predicted
    pooler_activation: str = "tanh"  # between the pooled state and a text's labels; DistilBERT: "relu"
    tied: bool = True  # masked tokens are predicted by the embedding's own matrix

    def __post_init__(self) -> None:
        for name, lowest in (("vocabulary_size", 1), ("layers", 1), ("segments", 0)):
            if getattr(self, name) < lowest:
                raise ValueError(f"{name}: {getattr(self, name)} is below {lowest}")
        for name in ("head_activation", "pooler_activation"):
            if getattr(self, name) not in DENSE_ACTIVATIONS:
                known = ", ".join(DENSE_ACTIVATIONS)
                raise ValueError(f"{name}: {getattr(self, name)!r} is unknown; choose one of {known}")
        if self.max_positions < 4:
            raise ValueError(f"max_positions: {self.max_positions} is below 4: [CLS], a token, [SEP] twice")
        for name in ("pad_id", "cls_id", "sep_id", "mask_id"):
            if not 0 <= getattr(self, name) < self.vocabulary_size:
                raise ValueError(f"{name}: {getattr(self, name)} is outside the vocabulary of {self.vocabulary_size}")
        _ = self.block

    @property
    def block(self) -> BlockConfig:
        """One layer."""
        return BlockConfig(
            self.model_dim, self.heads, self.feedforward_dim, self.norm, self.activation, self.dropout, self.norm_epsilon
        )


class BertEmbedding(nn.Module):
    """Tokens + positions + segments, normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary_size, config.model_dim, padding_idx=config.pad_id)
        self.positions = nn.Embedding(config.max_positions, config.model_dim)
        self.segments = nn.Embedding(config.segments, config.model_dim) if config.segments else None
        self.norm = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` ids and segment numbers -> `[B, T, E]`."""
        return self.at(ids, segments, self.positions.weight[: ids.shape[1]])

    def at(self, ids: Tensor, segments: Tensor, positions: Tensor) -> Tensor:
        """The same with the position vectors, broadcastable to `[B, T, E]`."""
        total = self.tokens(ids) + positions
        if self.segments is not None:
            total = total + (self.segments(segments) if self.segments.num_embeddings > 1 else self.segments.weight[0])
        y: Tensor = self.dropout(self.norm(total))
        return y


class Bert(nn.Module):
    """The encoder."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = BertEmbedding(config)
        self.layers = nn.ModuleList(EncoderLayer(config.block) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon) if config.norm == "pre" else nn.Identity()

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> hidden states `[B, T, E]`; padding is masked out."""
        mask = (ids != self.config.pad_id)[:, None, None, :]
        x = self.embedding(ids, segments)
        for layer in self.layers:
            x = layer(x, mask)
        y: Tensor = self.norm(x)
        return y


EncoderConfig = BertConfig | ModernBertConfig


def make_encoder(config: EncoderConfig) -> Bert | ModernBert:
    """The encoder that a configuration is of."""
    return Bert(config) if isinstance(config, BertConfig) else ModernBert(config)


class MaskedTokenHead(nn.Module):
    """Hidden states -> logits over the vocabulary; the matrix is the embedding's own, unless the configuration unties them."""

    def __init__(self, config: EncoderConfig, tokens: nn.Embedding) -> None:
        super().__init__()
        self.transform = nn.Linear(config.model_dim, config.model_dim, config.head_bias)
        self.activation = DENSE_ACTIVATIONS[config.head_activation]
        self.norm = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon, bias=config.norm_bias)
        self.projection = nn.Linear(config.model_dim, config.vocabulary_size, config.projection_bias)
        if config.tied:
            self.projection.weight = tokens.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """`[..., E]` -> `[..., V]`."""
        logits: Tensor = self.projection(self.norm(self.activation(self.transform(hidden))))
        return logits


class DenseHead(nn.Module):
    """Vectors through a dense layer, an activation and, in ModernBERT, a norm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.model_dim, config.model_dim, config.head_bias)
        self.activation = DENSE_ACTIVATIONS[config.pooler_activation]
        norm = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon, bias=config.norm_bias)
        self.norm = norm if config.dense_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """`[..., E]` -> `[..., E]`."""
        y: Tensor = self.norm(self.activation(self.dense(x)))
        return y


def make_token_head(config: EncoderConfig) -> nn.Module:
    """What stands between the encoder and a classifier of tokens: nothing, but in ModernBERT."""
    return DenseHead(config) if config.dense_norm else nn.Identity()


class BertForPretraining(nn.Module):
    """Masked tokens and, unless switched off as in RoBERTa (Liu et al. 2019), next-sentence prediction."""

    def __init__(self, config: EncoderConfig, next_sentence: bool = True) -> None:
        super().__init__()
        self.config = config
        self.bert = make_encoder(config)
        self.masked_token = MaskedTokenHead(config, self.bert.embedding.tokens)
        self.pooler = DenseHead(config) if next_sentence else None
        self.next_sentence = nn.Linear(config.model_dim, 2) if next_sentence else None
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor, places: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits of the masked tokens and of "is the next sentence".

        Args:
            ids: `[B, T]`.
            segments: `[B, T]`.
            places: `[M]`, indices of the masked tokens in the flattened `[B*T]`: only they are projected.

        Returns:
            `[M, V]`, and `[B, 2]` (1: the second part follows the first) or None.
        """
        hidden = self.bert(ids, segments)
        logits = self.masked_token(hidden.flatten(0, 1)[places])
        if self.pooler is None or self.next_sentence is None:
            return logits, None
        return logits, self.next_sentence(self.pooler(hidden[:, 0]))


class BertForSequenceClassification(nn.Module):
    """Labels of a text, from [CLS] or the mean of all its states: one of `classes`, or each of them or not (`independent`)."""

    def __init__(self, config: EncoderConfig, classes: int, independent: bool = False) -> None:
        super().__init__()
        self.config = config
        self.independent = independent
        self.bert = make_encoder(config)
        self.pooler = DenseHead(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.model_dim, classes)
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> `[B, C]`."""
        hidden = self.bert(ids, segments)
        pooled = hidden[:, 0] if self.config.pooling == "cls" else _mean(hidden, ids != self.config.pad_id)
        logits: Tensor = self.classifier(self.dropout(self.pooler(pooled)))
        return logits

    def probabilities(self, logits: Tensor) -> Tensor:
        """`[..., C]` -> `[..., C]`; they make 1 together, unless the labels are independent of each other."""
        return torch.sigmoid(logits) if self.independent else torch.softmax(logits, dim=-1)


class BertForTokenClassification(nn.Module):
    """One label a token."""

    def __init__(self, config: EncoderConfig, classes: int) -> None:
        super().__init__()
        self.config = config
        self.bert = make_encoder(config)
        self.head = make_token_head(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.model_dim, classes)
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> `[B, T, C]`."""
        logits: Tensor = self.classifier(self.dropout(self.head(self.bert(ids, segments))))
        return logits


class BertForQuestionAnswering(nn.Module):
    """Where in the text the answer begins and ends (Rajpurkar et al. 2016)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = make_encoder(config)
        self.head = make_token_head(config)
        self.span = nn.Linear(config.model_dim, 2)
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, T]` -> logits of the first and of the last token, each `[B, T]`; padding is out of the question."""
        start, end = self.span(self.head(self.bert(ids, segments))).unbind(-1)
        padding = ids == self.config.pad_id
        return start.masked_fill(padding, float("-inf")), end.masked_fill(padding, float("-inf"))


class BertForEmbedding(nn.Module):
    """The encoder alone, whose states make a text's vector."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = make_encoder(config)
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> `[B, T, E]`."""
        hidden: Tensor = self.bert(ids, segments)
        return hidden


BertModel = (
    BertForPretraining
    | BertForSequenceClassification
    | BertForTokenClassification
    | BertForQuestionAnswering
    | BertForEmbedding
)


def _mean(hidden: Tensor, inside: Tensor) -> Tensor:
    """Of the states `[B, T, E]` that are `inside` `[B, T]`: `[B, E]`."""
    shares = inside.to(hidden.dtype) / inside.sum(1, keepdim=True)
    return torch.bmm(shares[:, None], hidden).squeeze(1)


@torch.no_grad()
def initialise(model: BertModel) -> None:
    """Normal with deviation 0.02, as in the paper's code; positions begin as sinusoids of that size.

    Sinusoids let the first layers tell a token's neighbours from the start; random positions have to be learnt for that.
    """
    model.apply(_initialise)
    if isinstance(model.bert, Bert):
        positions = model.bert.embedding.positions.weight
        positions.copy_(sinusoid_table(*positions.shape) * (DEVIATION * math.sqrt(2)))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=DEVIATION)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        module.weight[module.padding_idx].zero_()
