"""BERT (Devlin et al. 2018): a bidirectional encoder, and the pre-training and fine-tuning heads of the BERT family.

RoBERTa (Liu et al. 2019), DistilBERT (Sanh et al. 2019), MPNet (Song et al. 2020), ELECTRA (Clark et al. 2020), NomicBERT
(Nussbaum et al. 2024) and GTE (Zhang et al. 2024) are other configurations of this encoder. ModernBERT and DeBERTa are other
encoders with the same heads.

Shapes: `B` texts, `T` positions, `E` model dimensions, `V` tokens, `C` classes.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych_training.checks import at_least, one_of, token_id
from triptych_training.models.blocks import ACTIVATIONS, BlockConfig, EncoderLayer, PlainHeads
from triptych_training.models.deberta import Deberta, DebertaConfig
from triptych_training.models.elmo import Elmo
from triptych_training.models.gpt_encoder import GptEncoder, GptEncoderConfig
from triptych_training.models.modernbert import ModernBert, ModernBertConfig
from triptych_training.models.positions import check_relative, make_relative_bias, sinusoid_table
from triptych_training.models.rotary import Rotary, RotaryAttention, RotaryScaling
from triptych_training.models.word2vec import StaticEmbedding

DEVIATION = 0.02  # standard deviation of initial weights
DENSE_ACTIVATIONS = {**ACTIVATIONS, "tanh": torch.tanh}


@dataclass(frozen=True)
class BertConfig(PlainHeads):
    """Shapes of weights and options of the arithmetic; defaults: BERT-base. Raises ValueError if a field is out of range."""

    vocabulary_size: int
    model_dim: int = 768
    heads: int = 12
    feedforward_dim: int = 3072
    layers: int = 12
    max_positions: int = 512
    segments: int = 2  # segment embeddings; 0 or 1: segment numbers are ignored
    norm: str = "post"
    activation: str = "gelu"
    dropout: float = 0.1
    norm_epsilon: float = 1e-12
    pad_id: int = 0
    cls_id: int = 2
    sep_id: int = 3
    mask_id: int = 4
    head_activation: str = "gelu"  # in the masked-token head
    pooler_activation: str = "tanh"  # between the pooled state and the classifier; DistilBERT: "relu", ELECTRA: "gelu"
    tied: bool = True  # the masked-token head's output matrix is the token embedding
    embedding_dim: int = 0  # of ELECTRA's embeddings, which are then projected to model_dim; 0: model_dim
    embedding_norm: bool = True  # normalise the sum of the vectors of a token, its position and its segment
    relative_buckets: int = 0  # of a bias on attention scores that all layers share, in MPNet; 0: none
    relative_distance: int = 128  # tokens from which on all distances share one bucket
    theta: float = 0.0  # base of rotary positions, which replace the vectors of positions; 0: none
    rotary_divisor: float = 1.0  # of the rotary frequencies
    gated: bool = False  # feed-forward network
    bias: bool = True  # projections inside the layers

    def __post_init__(self) -> None:
        at_least(1, self, "vocabulary_size", "layers")
        at_least(0, self, "segments", "embedding_dim", "theta")
        at_least(1, self, "rotary_divisor")
        check_relative(self)
        one_of(DENSE_ACTIVATIONS, self, "head_activation", "pooler_activation")
        if self.max_positions < 4:
            raise ValueError(f"max_positions: {self.max_positions} is below 4: [CLS], a token, [SEP] twice")
        token_id(self.vocabulary_size, self, "pad_id", "cls_id", "sep_id", "mask_id")
        _ = self.block

    @property
    def block(self) -> BlockConfig:
        """Configuration of one layer."""
        return BlockConfig.of(self)


class BertEmbedding(nn.Module):
    """Sum of token, position and segment vectors, usually normalised; projected if it is not as wide as the model."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_dim or config.model_dim
        self.tokens = nn.Embedding(config.vocabulary_size, width, padding_idx=config.pad_id)
        self.positions = None if config.theta else nn.Embedding(config.max_positions, width)
        self.segments = nn.Embedding(config.segments, width) if config.segments else None
        self.norm = nn.LayerNorm(width, eps=config.norm_epsilon) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.projection = nn.Identity() if width == config.model_dim else nn.Linear(width, config.model_dim)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` ids and segment numbers -> `[B, T, E]`."""
        return self.at(ids, segments, None if self.positions is None else self.positions.weight[: ids.shape[1]])

    def at(self, ids: Tensor, segments: Tensor, positions: Tensor | None) -> Tensor:
        """Embed with the given position vectors, broadcastable to `[B, T, E]`."""
        total = self.tokens(ids) if positions is None else self.tokens(ids) + positions
        if self.segments is not None:
            total = total + (self.segments(segments) if self.segments.num_embeddings > 1 else self.segments.weight[0])
        return self.projection(self.dropout(self.norm(total)))


class Bert(nn.Module):
    """BERT's encoder."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = BertEmbedding(config)
        self.relative = make_relative_bias(config, config.heads, bidirectional=True)
        self.layers = nn.ModuleList(EncoderLayer(config.block) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon) if config.norm == "pre" else nn.Identity()
        if config.theta:
            shape, scaling = config.block.attention, RotaryScaling("linear", config.rotary_divisor)
            rotary = Rotary(config.max_positions, shape.head_dim, config.theta, scaling)
            for layer in self.layers:
                layer.attention = RotaryAttention(shape, rotary)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` ids and segment numbers -> hidden states `[B, T, E]`; padding is masked out."""
        mask = (ids != self.config.pad_id)[:, None, None, :]
        if self.relative is not None:
            mask = self.relative(ids.shape[1], ids.shape[1]).masked_fill(~mask, float("-inf"))  # [B, H, T, T]
        x = self.embedding(ids, segments)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


EncoderConfig = BertConfig | ModernBertConfig | DebertaConfig | GptEncoderConfig


def make_encoder(config: EncoderConfig) -> Bert | ModernBert | Deberta | GptEncoder:
    """Make the encoder that the configuration describes."""
    if isinstance(config, GptEncoderConfig):
        return GptEncoder(config)
    if isinstance(config, BertConfig):
        return Bert(config)
    return ModernBert(config) if isinstance(config, ModernBertConfig) else Deberta(config)


class EncoderWithHead(nn.Module):
    """Encoder with a head; subclasses add the head and call `initialise`."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = make_encoder(config)


class MaskedTokenHead(nn.Module):
    """Hidden states -> logits over the vocabulary, by the token embedding's matrix unless the configuration unties them.

    There is a dense layer before that, but in EuroBERT.
    """

    def __init__(self, config: EncoderConfig, tokens: nn.Embedding) -> None:
        super().__init__()
        self.dense = config.masked_dense
        if self.dense:
            self.transform = nn.Linear(config.model_dim, tokens.embedding_dim, config.head_bias)
            self.activation = DENSE_ACTIVATIONS[config.head_activation]
            self.norm = nn.LayerNorm(tokens.embedding_dim, eps=config.norm_epsilon, bias=config.norm_bias)
        self.projection = nn.Linear(tokens.embedding_dim, config.vocabulary_size, config.projection_bias)
        if config.tied:
            self.projection.weight = tokens.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """`[..., E]` -> `[..., V]`."""
        return self.projection(self.norm(self.activation(self.transform(hidden))) if self.dense else hidden)


class DenseHead(nn.Module):
    """Dense layer, activation and, in ModernBERT, a norm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.model_dim, config.model_dim, config.head_bias)
        self.activation = DENSE_ACTIVATIONS[config.pooler_activation]
        norm = nn.LayerNorm(config.model_dim, eps=config.norm_epsilon, bias=config.norm_bias)
        self.norm = norm if config.dense_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """`[..., E]` -> `[..., E]`."""
        return self.norm(self.activation(self.dense(x)))


def make_token_head(config: EncoderConfig) -> nn.Module:
    """Build the layer between the encoder and a token classifier: ModernBERT has one, BERT has none."""
    return DenseHead(config) if config.dense_norm else nn.Identity()


class BertForPretraining(EncoderWithHead):
    """Masked-token prediction and, unless `next_sentence` is off (RoBERTa), next-sentence prediction."""

    def __init__(self, config: EncoderConfig, next_sentence: bool = True) -> None:
        super().__init__(config)
        tokens = self.bert.gpt.tokens if isinstance(self.bert, GptEncoder) else self.bert.embedding.tokens
        self.masked_token = MaskedTokenHead(config, tokens)
        self.pooler = DenseHead(config) if next_sentence else None
        self.next_sentence = nn.Linear(config.model_dim, 2) if next_sentence else None
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor, masked: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the logits of the masked tokens, `[M, V]`, and of the next sentence, `[B, 2]` (1: it follows) or None.

        `ids` and `segments` are `[B, T]`; `masked` `[M]` are the indices of the masked tokens in the flattened `[B*T]`.
        """
        hidden = self.bert(ids, segments)
        logits = self.masked_token(hidden.flatten(0, 1)[masked])
        if self.pooler is None or self.next_sentence is None:
            return logits, None
        return logits, self.next_sentence(self.pooler(hidden[:, 0]))


class BertForSequenceClassification(EncoderWithHead):
    """Text classification from the state of one token or the mean of all; labels exclude each other unless `independent`.

    The token is [CLS], or the last one of a decoder-only model. A single label is always independent: its softmax would be 1.
    """

    def __init__(self, config: EncoderConfig, classes: int, independent: bool = False) -> None:
        super().__init__(config)
        self.independent = independent or classes == 1
        self.pooler: nn.Module = DenseHead(config) if config.dense else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.model_dim, classes, config.classifier_bias)
        self.pooling = config.pooling
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> `[B, C]`; padding of decoder-only models is not masked out."""
        return self.logits(ids, self.bert(ids, segments))

    def logits(self, ids: Tensor, hidden: Tensor) -> Tensor:
        """Compute the logits of texts from their states: `[B, T]`, `[B, T, E]` -> `[B, C]`."""
        if self.pooling == "late":
            return self.classifier(self.dropout(self.pooler(hidden).mean(1)))
        if isinstance(self.bert, GptEncoder):
            pooled = hidden.mean(1) if self.pooling == "mean" else self.bert.text_state(ids, hidden)
        else:
            pooled = hidden[:, 0] if self.pooling == "cls" else _mean(hidden, ids != self.config.pad_id)
        return self.classifier(self.dropout(self.pooler(pooled)))

    def probabilities(self, logits: Tensor) -> Tensor:
        """`[..., C]` -> `[..., C]`: sigmoid of independent labels, else softmax."""
        return torch.sigmoid(logits) if self.independent else torch.softmax(logits, dim=-1)


class BertForTokenClassification(EncoderWithHead):
    """Classification of every token."""

    def __init__(self, config: EncoderConfig, classes: int) -> None:
        super().__init__(config)
        self.head = make_token_head(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.model_dim, classes)
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> `[B, T, C]`."""
        return self.classifier(self.dropout(self.head(self.bert(ids, segments))))


class BertForQuestionAnswering(EncoderWithHead):
    """Extractive question answering: start and end of the answer in the text (Rajpurkar et al. 2016)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.head = make_token_head(config)
        self.span = nn.Linear(config.model_dim, 2)
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, T]` -> logits of the answer's first and last token, each `[B, T]`; -inf at padding."""
        start, end = self.span(self.head(self.bert(ids, segments))).unbind(-1)
        padding = ids == self.config.pad_id
        return start.masked_fill(padding, float("-inf")), end.masked_fill(padding, float("-inf"))


class BertForEmbedding(EncoderWithHead):
    """Encoder without a head, for text embeddings; `dense` is applied to a text's vector."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.dense: nn.Module = nn.Identity()
        initialise(self)

    def forward(self, ids: Tensor, segments: Tensor) -> Tensor:
        """`[B, T]` -> `[B, T, E]`."""
        return self.bert(ids, segments)


EncoderModel = (
    BertForPretraining
    | BertForSequenceClassification
    | BertForTokenClassification
    | BertForQuestionAnswering
    | BertForEmbedding
)
BertModel = EncoderModel | StaticEmbedding | Elmo


def _mean(hidden: Tensor, inside: Tensor) -> Tensor:
    """Mean of the states `[B, T, E]` where `inside` `[B, T]` is true: `[B, E]`."""
    shares = inside.to(hidden.dtype) / inside.sum(1, keepdim=True)
    return torch.bmm(shares[:, None], hidden).squeeze(1)


@torch.no_grad()
def initialise(model: EncoderWithHead) -> None:
    """Draw weights from a normal distribution with deviation 0.02, as in the paper's code; set positions to scaled sinusoids.

    Sinusoids let the first layers recognise neighbouring tokens from the start; random positions must be trained for that.
    """
    model.apply(_initialise)
    if isinstance(model.bert, Bert) and model.bert.embedding.positions is not None:
        positions = model.bert.embedding.positions.weight
        positions.copy_(sinusoid_table(*positions.shape) * (DEVIATION * math.sqrt(2)))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=DEVIATION)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        module.weight[module.padding_idx].zero_()
