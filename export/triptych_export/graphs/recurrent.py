"""Parts of a translation bundle's graphs for recurrent models: the encoder graph, and the decoder of the step graphs.

The caches of a recurrent decoder are its state: `[B, 1, P, E]` states and, in place of values, memory cells. A step reads
and replaces them; in a row's first step it computes the initial state instead. Shapes as in `triptych_training.models.rnn`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from triptych_export.graphs.operators import bidirectional_rnn
from triptych_training.models.rnn import Rnn

GATES = {"gru": (1, 0, 2), "lstm": (0, 3, 1, 2)}  # order of PyTorch's gates in the operators GRU and LSTM


class RecurrentEncoderGraph(nn.Module):
    """Encoder graph: source ids -> the keys and the annotations that the decoder attends to."""

    def __init__(self, model: Rnn) -> None:
        super().__init__()
        self.embedding, self.decoder, self.cell = model.encoder.embedding, model.decoder, model.config.cell
        self.weights = nn.ParameterList()  # three for each layer: of inputs, of states, biases
        for layer in range(model.config.encoder_layers):
            both = [(model.encoder.rnn, f"l{layer}{direction}") for direction in ("", "_reverse")]
            self.weights.extend(direction_weights(both, self.cell))

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """`[B, S]` int64 and `[B]` int32 -> `[2, B, 1, S, E]`."""
        x = self.embedding(source).transpose(0, 1)  # [S, B, E]
        for first in range(0, len(self.weights), 3):
            weight, recurrent, bias = (self.weights[first + part] for part in range(3))
            x = bidirectional_rnn(self.cell, x, weight, recurrent, bias, lengths)
        [(keys, annotations)] = self.decoder.project_memory(x.transpose(0, 1))
        return torch.stack((keys, annotations))[:, :, None]


class RecurrentDecoder(nn.Module):
    """One step of every row's decoder, with CachedDecoder's interface."""

    def __init__(self, model: Rnn) -> None:
        super().__init__()
        self.decoder = model.decoder

    def forward(
        self, places: list[Tensor], cache: list[Tensor], memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], Tensor | None]:
        """Compute outputs `[B, 1, E]`, the new state, and attention `[B, 1, 1, S]`."""
        tokens, positions, last = places
        keys, annotations = (each.squeeze(1) for each in memory)
        mask = torch.arange(keys.shape[1], dtype=torch.int32) <= last[:, None]
        begins, initial = (positions == 0)[:, None, None], self.decoder.initial_state(annotations, last)
        state = torch.where(begins, initial[0], cache[0].squeeze(1)), torch.where(begins, initial[1], cache[1].squeeze(1))
        output, weights, present = self.decoder.advance(tokens, (keys, annotations), mask, state)
        return output[:, None], [each[:, None] for each in present], weights[:, None, None]


@torch.no_grad()
def direction_weights(directions: Sequence[tuple[nn.Module, str]], cell: str) -> list[nn.Parameter]:
    """Stack the weights of two directions, modules with suffixes, as the operators expect them, `[2, gates * N, ...]`."""

    def stacked(kind: str) -> Tensor:
        found = [getattr(rnn, f"{kind}_{suffix}") for rnn, suffix in directions]
        return torch.stack([torch.cat([each.chunk(len(GATES[cell]))[gate] for gate in GATES[cell]]) for each in found])

    biases = torch.cat((stacked("bias_ih"), stacked("bias_hh")), 1)
    return [nn.Parameter(each, requires_grad=False) for each in (stacked("weight_ih"), stacked("weight_hh"), biases)]
