"""Graphs of the BERT family, one per task, as modules around the checkpoint's own sub-modules.

Inputs of all: `ids` and `segments` `[B, T]` int32, `lengths` `[B]` int32; positions from a row's length on are padding and do
not matter. Outputs of all: `mean` and `cls` `[B, E]`, the last hidden states' mean over the row's tokens and that of token 0,
of decoder-only models that of the row's last token.
Layers may be in float16, for CUDA; heads and all outputs are float32.

Shapes: `B` rows, `T` positions, `E` model dimensions, `M` masks of all rows, `V` tokens, `C` classes.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_export.graphs.layers import (
    DecoderLayer,
    DisentangledLayer,
    DistanceBias,
    FusedLayer,
    RotaryLayer,
    UnpackedLayer,
    attend_causally,
)
from triptych_export.graphs.operators import bidirectional_rnn, look_up, top_k
from triptych_export.graphs.recurrent import direction_weights
from triptych_export.graphs.weight_folding import fold_gpt, fuse_norms
from triptych_training.models.bert import (
    Bert,
    BertForEmbedding,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from triptych_training.models.blocks import EncoderLayer
from triptych_training.models.deberta import Deberta
from triptych_training.models.elmo import Elmo, ElmoConfig
from triptych_training.models.gpt_encoder import GptEncoder
from triptych_training.models.modernbert import ModernBert, ModernBertLayer
from triptych_training.models.word2vec import StaticEmbedding

NEVER = float("-inf")


class BertStates(nn.Module):
    """Hidden states of a BERT; `counted` gathers position vectors by index, so that no shape is needed on the host."""

    def __init__(self, bert: Bert, counted: bool) -> None:
        super().__init__()
        self.counted = counted
        self.embedding, self.norm = bert.embedding, bert.norm
        self.relative = None if bert.relative is None else DistanceBias(bert.relative)
        plain: type[nn.Module] = FusedLayer if self.relative is None else UnpackedLayer
        make = RotaryLayer if bert.config.theta else plain
        self.layers = nn.ModuleList(make(layer) for layer in bert.layers if isinstance(layer, EncoderLayer))

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor, numbers: Tensor) -> Tensor:
        """Compute hidden states `[B, T, E]`; `numbers` holds the positions, `[1, T]`."""
        table = None if self.embedding.positions is None else self.embedding.positions.weight
        if table is not None:
            table = functional.embedding(numbers, table) if self.counted else table[: ids.shape[1]]
        x = self.embedding.at(ids, segments, table)
        bias = None if self.relative is None else self.relative(numbers[0])
        for layer in self.layers:
            x = layer(x, lengths) if isinstance(layer, FusedLayer) else layer(x, lengths, bias)
        return self.norm(x)


class ModernBertStates(nn.Module):
    """Hidden states of a ModernBERT, some of whose layers attend to a window only."""

    def __init__(self, bert: ModernBert) -> None:
        super().__init__()
        self.config = bert.config
        self.embedding, self.norm = bert.embedding, bert.norm
        self.layers = nn.ModuleList(RotaryLayer(layer) for layer in bert.layers if isinstance(layer, ModernBertLayer))

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor, numbers: Tensor) -> Tensor:
        """Compute hidden states `[B, T, E]`; `numbers` holds the positions, `[1, T]`."""
        near = (numbers[0, :, None] - numbers).abs() <= self.config.window  # [T, T]
        x = self.embedding(ids, segments)
        bias = torch.zeros((), dtype=x.dtype).masked_fill(~near, NEVER)[None, None]
        for index, layer in enumerate(self.layers):
            x = layer(x, lengths, None if index in self.config.global_layers else bias)
        return self.norm(x)


class DebertaStates(nn.Module):
    """Hidden states of a DeBERTa; unless `counted`, tokens are compared with the distances of a batch's longest text only."""

    rows: Tensor  # numbers of the vectors of all distances

    def __init__(self, bert: Deberta, counted: bool) -> None:
        super().__init__()
        self.config = bert.config
        self.embedding = bert.embedding
        layers = [layer for layer in bert.layers if isinstance(layer, EncoderLayer)]
        self.layers = nn.ModuleList(DisentangledLayer(layer, *bert.project_distances(layer.attention)) for layer in layers)
        distances = torch.arange(1 - self.config.max_positions, self.config.max_positions)
        self.register_buffer("rows", bert.rows(distances).int())
        # With few tokens for many buckets, a bucket may be further from the middle than its distances.
        self.whole = counted or bool(((self.rows - self.config.position_buckets).abs() > distances.abs()).any())

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor, numbers: Tensor) -> Tensor:
        """Compute hidden states `[B, T, E]`; `numbers` holds the positions, `[1, T]`."""
        span = self.config.position_buckets
        reach = span if self.whole else torch.sym_min(ids.shape[1], span)  # type: ignore[no-untyped-call]
        rows = look_up(self.rows, numbers.t() - numbers + (self.config.max_positions - 1)) - (span - reach)  # [T, T]
        # Not by `expand`, which needs a shape on the host.
        rows = rows + ids[:, :1, None, None] * 0 + torch.zeros(self.config.heads, 1, 1, dtype=torch.int32)
        x = self.embedding(ids, segments)
        for layer in self.layers:
            x = layer(x, lengths, rows, reach)
        return x


class GptStates(nn.Module):
    """Hidden states of a decoder-only model; with `counted`, positions are counted from the ids.

    The operator of generation's graphs needs no scores of all pairs of tokens in memory, but a number on the host.
    """

    def __init__(self, encoder: GptEncoder, counted: bool) -> None:
        super().__init__()
        self.gpt = fuse_norms(fold_gpt(encoder.gpt))
        apart = counted or encoder.config.bidirectional
        self.layers = nn.ModuleList(DecoderLayer(layer) for layer in self.gpt.blocks if apart)

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor, numbers: Tensor) -> Tensor:
        """Compute hidden states `[B, T, E]`; `numbers` holds the positions, `[1, T]`."""
        config, x = self.gpt.config, self.gpt.embed(ids)
        if self.gpt.positions is not None:
            x = x + functional.embedding(numbers, self.gpt.positions.weight)
        if not self.layers:
            total = torch.full((1,), ids.shape[1], dtype=torch.int32)
            for block in self.gpt.blocks:
                if block.convolution is not None:
                    x = block(x, None)
                else:
                    x, *_ = attend_causally(block, x, None, lengths - 1, total)
            return self.gpt.norm(x)
        distances = numbers[0, :, None] - numbers  # [T, T]
        near = (distances.abs() if config.bidirectional else distances) < config.window
        bias = torch.zeros((), dtype=x.dtype).masked_fill(~near, NEVER)[None, None]
        for layer, own in zip(self.layers, self.gpt.blocks, strict=True):
            x = layer(x, lengths, bias if own.window else None, not config.bidirectional)
        return self.gpt.norm(x)


class TextEncoder(nn.Module):
    """Hidden states and pooled vectors; `counted` avoids shape arithmetic on the host, so that a GPU can capture the graph."""

    def __init__(self, bert: Bert | ModernBert | Deberta | GptEncoder, counted: bool = False) -> None:
        super().__init__()
        self.counted, self.ends = counted, isinstance(bert, GptEncoder) and bert.config.pooling != "cls"
        self.skipped = bert.config.skipped_id if isinstance(bert, GptEncoder) else None
        if isinstance(bert, ModernBert):
            self.states: nn.Module = ModernBertStates(bert)
        elif isinstance(bert, GptEncoder):
            self.states = GptStates(bert, counted)
        else:
            self.states = BertStates(bert, counted) if isinstance(bert, Bert) else DebertaStates(bert, counted)

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute hidden states `[B, T, E]` in the layers' type, their mean and `cls`, both float32 `[B, E]`."""
        hidden = self.states(ids, segments, lengths, self.numbers(ids))
        mean = self.mean(hidden, ids, lengths)
        if self.ends:
            last = lengths[:, None] - 1
            if self.skipped is not None:
                ordinary = self.inside(ids, lengths) & (ids != self.skipped)
                last = (self.numbers(ids) * ordinary).amax(1, keepdim=True)
            chosen = (self.numbers(ids) == last).float()  # [B, T]
            return hidden, mean, torch.bmm(chosen[:, None], hidden.float()).squeeze(1)
        return hidden, mean, hidden[:, 0].float()

    def mean(self, hidden: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Mean over each row's tokens of `[B, T, E]`: `[B, E]`."""
        shares = self.inside(ids, lengths).float() / lengths[:, None]  # [B, T]
        return torch.bmm(shares[:, None], hidden.float()).squeeze(1)

    def inside(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Mask of real tokens: `[B, T]` bool, False on padding."""
        return self.numbers(ids) < lengths[:, None]

    def numbers(self, ids: Tensor) -> Tensor:
        """Positions, `[1, T]` int32."""
        if self.counted:
            return (ids[:1] * 0 + 1).cumsum(1, dtype=torch.int32) - 1
        return torch.arange(ids.shape[1], dtype=torch.int32)[None]


class TextGraph(nn.Module):
    """Base of text graphs: names of inputs and outputs besides the encoder."""

    inputs: ClassVar[tuple[str, ...]] = ("ids", "segments", "lengths")
    outputs: ClassVar[tuple[str, ...]] = ("mean", "cls")

    def __init__(self, model: BertModel) -> None:
        super().__init__()
        assert not isinstance(model, StaticEmbedding | Elmo)
        self.encoder = TextEncoder(model.bert)
        self.max_positions = model.config.max_positions


class EmbeddingGraph(TextGraph):
    """Graph with pooled states only, on which the model may have dense layers."""

    def __init__(self, model: BertForEmbedding) -> None:
        super().__init__(model)
        self.dense = model.dense

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """-> `[B, E]` twice."""
        _, mean, cls = self.encoder(ids, segments, lengths)
        return self.dense(mean), self.dense(cls)


class FillMaskGraph(TextGraph):
    """Graph that projects only masked positions to the vocabulary and returns the best `k` tokens.

    `absent`: ids that are not tokens, because the embedding has more rows than the tokenizer; they are never chosen.
    """

    inputs: ClassVar[tuple[str, ...]] = (*TextGraph.inputs, "places", "k")
    outputs: ClassVar[tuple[str, ...]] = (*TextGraph.outputs, "scores", "tokens", "log_probabilities")
    penalty: Tensor | None  # [V]

    def __init__(self, model: BertForPretraining, absent: Sequence[int]) -> None:
        super().__init__(model)
        self.head = model.masked_token
        penalty = torch.zeros(model.config.vocabulary_size)
        penalty[list(absent)] = NEVER
        self.register_buffer("penalty", penalty if absent else None)

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor, places: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        """`places` `[M]` int64 are indices in the flattened `[B*T]`; -> `[M, k]` scores and tokens, `[M, V]`."""
        hidden, mean, cls = self.encoder(ids, segments, lengths)
        return mean, cls, *self._fill(hidden, places, k)

    def _fill(self, hidden: Tensor, places: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.head(torch.index_select(hidden.flatten(0, 1), 0, places).float())
        # One vectorised pass serves both: ReduceLogSumExp alone takes five times as long.
        log_probabilities = torch.log_softmax(logits, dim=-1)
        best, tokens = top_k(log_probabilities if self.penalty is None else log_probabilities + self.penalty, k)
        return torch.exp(best), tokens, log_probabilities


class PretrainingGraph(FillMaskGraph):
    """FillMaskGraph with a next-sentence prediction."""

    outputs: ClassVar[tuple[str, ...]] = (*FillMaskGraph.outputs, "next_sentence")

    def __init__(self, model: BertForPretraining, absent: Sequence[int]) -> None:
        super().__init__(model, absent)
        self.pooler, self.next_sentence = model.pooler, model.next_sentence

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor, places: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs of FillMaskGraph, and probabilities `[B, 2]`; index 1: the second text follows the first."""
        assert self.pooler is not None
        assert self.next_sentence is not None
        hidden, mean, cls = self.encoder(ids, segments, lengths)
        follows = torch.softmax(self.next_sentence(self.pooler(cls)), dim=-1)
        return mean, cls, *self._fill(hidden, places, k), follows


class TextClassificationGraph(TextGraph):
    """Graph with the probabilities and logits of a text's labels; logits differ where probabilities are rounded to 1."""

    outputs: ClassVar[tuple[str, ...]] = (*TextGraph.outputs, "probabilities", "logits")

    def __init__(self, model: BertForSequenceClassification) -> None:
        super().__init__(model)
        self.pooler, self.classifier = model.pooler, model.classifier
        self.pooling, self.probabilities = model.pooling, model.probabilities

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """-> `[B, C]` twice."""
        hidden, mean, cls = self.encoder(ids, segments, lengths)
        if self.pooling == "late":
            pooled = self.encoder.mean(self.pooler(hidden.float()), ids, lengths)
        else:
            pooled = self.pooler(mean if self.pooling == "mean" else cls)
        logits = self.classifier(pooled)
        return mean, cls, self.probabilities(logits), logits


class TokenClassificationGraph(TextGraph):
    """Graph with the probabilities of every token's labels."""

    outputs: ClassVar[tuple[str, ...]] = (*TextGraph.outputs, "probabilities")

    def __init__(self, model: BertForTokenClassification) -> None:
        super().__init__(model)
        self.head, self.classifier = model.head, model.classifier

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """-> `[B, T, C]`."""
        hidden, mean, cls = self.encoder(ids, segments, lengths)
        return mean, cls, torch.softmax(self.classifier(self.head(hidden.float())), dim=-1)


class QuestionAnsweringGraph(TextGraph):
    """Graph with the logits of an answer's first and last token."""

    outputs: ClassVar[tuple[str, ...]] = (*TextGraph.outputs, "start", "end")

    def __init__(self, model: BertForQuestionAnswering) -> None:
        super().__init__(model)
        self.head, self.span = model.head, model.span

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """-> `[B, T]` each, -inf on padding."""
        hidden, mean, cls = self.encoder(ids, segments, lengths)
        start, end = self.span(self.head(hidden.float())).unbind(-1)
        padding = ~self.encoder.inside(ids, lengths)
        return mean, cls, start.masked_fill(padding, NEVER), end.masked_fill(padding, NEVER)


class StaticGraph(TextGraph):
    """Graph of a table of vectors; without states, `cls` is the mean too.

    `similarities` `[B, V]` are those of the sum of the tokens, where tokens of segment 1 are subtracted, to all tokens.
    """

    outputs: ClassVar[tuple[str, ...]] = (*TextGraph.outputs, "similarities")

    def __init__(self, model: StaticEmbedding) -> None:
        nn.Module.__init__(self)
        self.table, self.max_positions = model.bert, model.config.max_positions

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """-> `[B, E]` twice, and `[B, V]`."""
        numbers = torch.arange(ids.shape[1], dtype=torch.int32)[None]
        inside = (numbers < lengths[:, None]).float()
        mean = self.table(ids, inside)
        return mean, mean.clone(), self.table.similarities(ids, inside * (1 - 2 * segments))


class ElmoGraph(TextGraph):
    """Graph of an ELMo: `mean` is that of the known words' vectors, `states` `[B, T, E]` are the vectors of all tokens."""

    outputs: ClassVar[tuple[str, ...]] = (*TextGraph.outputs, "states")

    def __init__(self, model: Elmo) -> None:
        nn.Module.__init__(self)
        self.embedding, self.max_positions = model.bert.embedding, model.config.max_positions
        self.weights = nn.ParameterList()  # three for each layer: of inputs, of states, biases
        for number, pair in enumerate(zip(model.bert.forwards, model.bert.backwards, strict=True)):
            weight, recurrent, bias = direction_weights([(rnn, "l0") for rnn in pair], "lstm")
            if number:  # the input has both directions' states; each direction reads its own
                zeros = torch.zeros_like(weight[0])
                both = torch.stack((torch.cat((weight[0], zeros), 1), torch.cat((zeros, weight[1]), 1)))
                weight = nn.Parameter(both, requires_grad=False)
            self.weights.extend((weight, recurrent, bias))

    def forward(self, ids: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        """-> `[B, E]` twice, and `[B, T, E]`."""
        x = self.embedding(ids).transpose(0, 1)  # [T, B, E/2]
        total = layer = torch.cat((x, x), -1)
        for first in range(0, len(self.weights), 3):
            weight, recurrent, bias = (self.weights[first + part] for part in range(3))
            states = bidirectional_rnn("lstm", layer if first else x, weight, recurrent, bias, lengths)  # [T, B, E]
            layer = states + layer if first else states
            total = total + layer
        states = (total / (len(self.weights) // 3 + 1)).transpose(0, 1)  # [B, T, E]
        numbers = torch.arange(ids.shape[1], dtype=torch.int32)[None]
        known = ((numbers < lengths[:, None]) & (ids != ElmoConfig.pad_id)).float()  # [B, T]
        shares = known / known.sum(1, keepdim=True).clamp(min=1)
        return torch.bmm(shares[:, None], states).squeeze(1), states[:, 0], states


def text_graph(model: BertModel, absent: Sequence[int], half: bool) -> TextGraph:
    """Build the graph for a model's head; `absent` ids never fill a mask, `half` makes the variant for CUDA."""
    match model:
        case StaticEmbedding():
            return StaticGraph(model)
        case Elmo():
            return ElmoGraph(model)
        case BertForPretraining(next_sentence=None):
            graph: TextGraph = FillMaskGraph(model, absent)
        case BertForPretraining():
            graph = PretrainingGraph(model, absent)
        case BertForEmbedding():
            graph = EmbeddingGraph(model)
        case BertForSequenceClassification():
            graph = TextClassificationGraph(model)
        case BertForTokenClassification():
            graph = TokenClassificationGraph(model)
        case BertForQuestionAnswering():
            graph = QuestionAnsweringGraph(model)
    if half:
        graph.encoder = TextEncoder(model.bert, counted=True)
    return graph
