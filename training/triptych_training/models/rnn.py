"""Recurrent sequence to sequence models (Sutskever et al. 2014), with attention (Bahdanau et al. 2015; Luong et al. 2015).

A bidirectional encoder reads the source x_1 ... x_S into annotations h_1 ... h_S. The decoder, with the states s_i, writes the
target y_1 ... y_T. By the kind of attention:

paper            attention       score e_ij of h_j          first layer reads     output s~_i
Sutskever et al. none                                       y_i-1                 s_i
Bahdanau et al.  additive        v tanh(W_a s_i-1 + U_a h_j) y_i-1, c_i           tanh(W_c [s_i, c_i, y_i-1])
Luong et al.     multiplicative  s_i W_a h_j                y_i-1, s~_i-1         tanh(W_c [s_i, c_i])

The weights a_ij are the softmax of e_ij over j, and the context c_i is the sum of a_ij h_j. To read the last output again is
Luong's input feeding. Cells are gated recurrent units (Cho et al. 2014) or long short-term memory (Hochreiter and Schmidhuber
1997).

Shapes: `B` sentences, `S` source positions, `T` target positions, `E` model dimensions, `L` decoder layers, `V` tokens, `P`
vectors of the decoder's state: one of each layer and, with input feeding, the last output.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from triptych_training.checks import at_least, fraction, one_of, token_id
from triptych_training.models.attention import KeyValues
from triptych_training.models.transformer import Transformer, TransformerConfig

CELLS = ("gru", "lstm")
NONE, ADDITIVE, MULTIPLICATIVE = ATTENTIONS = ("none", "additive", "multiplicative")

State = tuple[Tensor, Tensor]  # `[B, P, E]`: states, and the memory cells of an LSTM or zeros


@dataclass(frozen=True)
class RnnConfig:
    """Shapes of the weights and options of the arithmetic; raises ValueError if a field is out of range."""

    vocabulary_size: int
    model_dim: int = 512  # of tokens, states and annotations; half of an annotation comes from each direction
    encoder_layers: int = 1
    decoder_layers: int = 1
    cell: str = "gru"
    attention: str = ADDITIVE
    teacher_forcing: float = 1.0  # probability of reading the target's token in training, not the model's own
    truncate: int = 0  # target tokens through which a gradient flows back from state to state; 0: all
    max_positions: int = 512  # longest source or target, in tokens
    tie_embeddings: bool = True  # source, target and output share one matrix (Press and Wolf 2017)
    dropout: float = 0.1
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        at_least(1, self, "vocabulary_size", "encoder_layers", "decoder_layers")
        at_least(2, self, "model_dim", "max_positions")
        at_least(0, self, "truncate")
        if self.model_dim % 2:
            raise ValueError(f"model_dim: {self.model_dim} is odd; each direction of the encoder has half of it")
        one_of(CELLS, self, "cell")
        one_of(ATTENTIONS, self, "attention")
        fraction(self, "dropout")
        fraction(self, "teacher_forcing", closed=True)
        token_id(self.vocabulary_size, self, "pad_id", "bos_id", "eos_id")
        if self.pad_id == self.eos_id:
            raise ValueError(f"pad_id, eos_id: both are {self.pad_id}; padding would end every sentence")

    @property
    def source_vocabulary_size(self) -> int:
        """0: sources and targets share one vocabulary, as in a TransformerConfig."""
        return 0

    @property
    def feeds_input(self) -> bool:
        """The decoder reads its last output."""
        return self.attention == MULTIPLICATIVE

    @property
    def state_vectors(self) -> int:
        """P."""
        return self.decoder_layers + self.feeds_input


class Encoder(nn.Module):
    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary_size, config.model_dim, padding_idx=config.pad_id)
        self.dropout = nn.Dropout(config.dropout)
        width, between = config.model_dim, config.dropout if config.encoder_layers > 1 else 0.0
        kind = nn.GRU if config.cell == "gru" else nn.LSTM
        self.rnn = kind(width, width // 2, config.encoder_layers, batch_first=True, dropout=between, bidirectional=True)

    def forward(self, source: Tensor, mask: Tensor) -> Tensor:
        """`[B, S]` ids -> annotations `[B, S, E]`, zeros at padding; `mask` `[B, S]` is False there."""
        x = self.dropout(self.embedding(source))
        packed = pack_padded_sequence(x, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        annotations, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=source.shape[1])
        return annotations


class Decoder(nn.Module):
    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        self.config = config
        width, layers = config.model_dim, config.decoder_layers
        self.embedding = nn.Embedding(config.vocabulary_size, width, padding_idx=config.pad_id)
        self.dropout = nn.Dropout(config.dropout)
        cell = nn.GRUCell if config.cell == "gru" else nn.LSTMCell
        read = width if config.attention == NONE else 2 * width
        self.cells = nn.ModuleList(cell(width if layer else read, width) for layer in range(layers))
        self.bridge = nn.Linear(width, width * layers * (2 if config.cell == "lstm" else 1))
        if config.attention != NONE:
            self.key = nn.Linear(width, width, bias=False)  # U_a, or Luong's W_a
            self.combine = nn.Linear((3 if config.attention == ADDITIVE else 2) * width, width, bias=False)  # W_c
        if config.attention == ADDITIVE:
            self.query = nn.Linear(width, width)  # W_a
            self.score = nn.Linear(width, 1, bias=False)  # v

    def project_memory(self, annotations: Tensor) -> list[KeyValues]:
        """Project the annotations, `[B, S, E]`, to what scores are computed from, once per sentence."""
        return [(annotations if self.config.attention == NONE else self.key(annotations), annotations)]

    def initial_state(self, annotations: Tensor, last: Tensor) -> State:
        """Compute s_0 from the last annotation of each direction; `last` `[B]` is the index of the last source token."""
        half, layers = self.config.model_dim // 2, self.config.decoder_layers
        index = last.long()[:, None, None].expand(-1, 1, annotations.shape[2])
        forward, backward = annotations.gather(1, index)[:, 0, :half], annotations[:, 0, half:]
        values = torch.tanh(self.bridge(torch.cat((forward, backward), -1)))
        parts = torch.unflatten(values, 1, (-1, layers, self.config.model_dim)).unbind(1)  # [B, L, E] each
        states, cells = parts if len(parts) == 2 else (parts[0], torch.zeros_like(parts[0]))
        if self.config.feeds_input:
            fed = torch.zeros_like(states[:, :1])
            states, cells = torch.cat((states, fed), 1), torch.cat((cells, fed), 1)
        return states, cells

    def advance(self, tokens: Tensor, memory: KeyValues, mask: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Decode one token of every row.

        Args:
            tokens: `[B]`, y_i-1.
            memory: of `project_memory`.
            mask: `[B, S]`, False at padding.
            state: the last one.

        Returns:
            The output s~_i `[B, E]`, the weights a_ij `[B, S]` (all alike without attention), and the state.
        """
        config, layers = self.config, self.config.decoder_layers
        states, cells = state
        y = self.dropout(self.embedding(tokens))
        weights, context, x = mask, None, y
        if config.attention == ADDITIVE:
            weights, context = self._attend(states[:, layers - 1], memory, mask)
            x = torch.cat((y, context), -1)
        elif config.feeds_input:
            x = torch.cat((y, states[:, layers]), -1)
        next_states, next_cells = [], []
        for layer, cell in enumerate(self.cells):
            x, c = self._run(cell, self.dropout(x) if layer else x, states[:, layer], cells[:, layer])
            next_states.append(x)
            next_cells.append(c)
        output = s = x
        if config.attention == MULTIPLICATIVE:
            weights, context = self._attend(s, memory, mask)
            output = torch.tanh(self.combine(torch.cat((s, context), -1)))
            next_states.append(output)
            next_cells.append(cells[:, layers])
        elif context is not None:
            output = torch.tanh(self.combine(torch.cat((s, context, y), -1)))
        if config.attention == NONE:
            weights = mask / mask.sum(1, keepdim=True)
        return self.dropout(output), weights, (torch.stack(next_states, 1), torch.stack(next_cells, 1))

    def step(
        self, tokens: Tensor, position: int, memory: list[KeyValues], mask: Tensor, past: list[State] | None
    ) -> tuple[Tensor, list[State]]:
        """Decode one token per row: `tokens` `[B, 1]` -> output `[B, 1, E]` and the state, as the Transformer does."""
        state = past[0] if past else self.initial_state(memory[0][1], mask.sum(1) - 1)
        output, _, state = self.advance(tokens[:, 0], memory[0], mask, state)
        return output[:, None], [state]

    def _run(self, cell: nn.Module, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Run one cell: `[B, E]` -> the new state and memory cell; those of a GRU are left as they are."""
        if isinstance(cell, nn.LSTMCell):
            return cell(x, (h, c))
        return cell(x, h), c

    def _attend(self, s: Tensor, memory: KeyValues, mask: Tensor) -> tuple[Tensor, Tensor]:
        """`[B, E]` -> weights `[B, S]`, context `[B, E]`."""
        keys, annotations = memory
        if self.config.attention == ADDITIVE:
            scores = self.score(torch.tanh(self.query(s)[:, None] + keys)).squeeze(-1)
        else:
            scores = (keys @ s[..., None]).squeeze(-1)
        weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), -1)
        return weights, (weights[:, None] @ annotations).squeeze(1)


class Rnn(nn.Module):
    """Encoder, decoder and output projection; `forward` is the teacher-forced training pass."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.projection = nn.Linear(config.model_dim, config.vocabulary_size, bias=False)
        with torch.no_grad():
            for table in (self.encoder.embedding, self.decoder.embedding):
                nn.init.normal_(table.weight, std=config.model_dim**-0.5)
                table.weight[config.pad_id].zero_()
        if config.tie_embeddings:
            self.projection.weight = self.decoder.embedding.weight = self.encoder.embedding.weight

    def source_mask(self, source: Tensor) -> Tensor:
        """`[B, S]` ids -> `[B, S]`, False at padding."""
        return source != self.config.pad_id

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:
        """Outputs `[B, T, E]` for target input ids `[B, T]` (which start with `bos_id`).

        In training, some of these ids are replaced by the model's own predictions (Bengio et al. 2015), and gradients stop
        every few tokens, as the configuration says.
        """
        mask, config = self.source_mask(source), self.config
        memory = self.decoder.project_memory(self.encoder(source, mask))
        past: list[State] | None = None
        outputs: list[Tensor] = []
        for i in range(target.shape[1]):
            tokens = target[:, i : i + 1]
            if self.training and i and config.teacher_forcing < 1:
                tokens = self._forced(tokens, outputs[-1])
            if past and config.truncate and i % config.truncate == 0:
                past = [(h.detach(), c.detach()) for h, c in past]
            output, past = self.decoder.step(tokens, i, memory, mask, past)
            outputs.append(output)
        return torch.cat(outputs, 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits `[B, T, V]` of the token after each target position."""
        return self.projection(self.hidden(source, target))

    @torch.no_grad()
    def _forced(self, tokens: Tensor, output: Tensor) -> Tensor:
        """Return the target's `tokens` `[B, 1]`, or, with the rest of the probability, those that the model would choose."""
        keep = torch.rand(tokens.shape, device=tokens.device) < self.config.teacher_forcing
        return torch.where(keep, tokens, self.projection(output).argmax(-1))


TranslationModel = Transformer | Rnn
TranslationConfig = TransformerConfig | RnnConfig


def make_translation_model(config: TranslationConfig) -> TranslationModel:
    """Make the model that the configuration describes."""
    return Transformer(config) if isinstance(config, TransformerConfig) else Rnn(config)
