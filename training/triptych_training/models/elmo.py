"""ELMo (Peters et al. 2018): contextual vectors of words from a forward and a backward language model.

Words have vectors of a table, not of a convolution over their characters. The vector of word k is the mean of its L + 1 layers,

    ELMo_k = 1/(L + 1) sum_j h_kj,    h_kj = [forward h_kj; backward h_kj],    h_k0 = [x_k; x_k]

the scalar mix with the weights that it has before a task learns its own (section 3.2).

Shapes: `B` rows, `T` positions, `V` words, `E` dimensions of a direction, `L` layers.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import at_least, fraction
from triptych_training.models.word2vec import PAD


@dataclass(frozen=True)
class ElmoConfig:
    """Shape of both language models. The special tokens of other text encoders are one here, which counts nothing.

    Raises:
        ValueError: a field is out of range.
    """

    heads: ClassVar[int] = 0
    pad_id: ClassVar[int] = PAD
    cls_id = sep_id = mask_id = pad_id

    vocabulary_size: int
    direction_dim: int = 256  # E
    layers: int = 2
    max_positions: int = 512
    dropout: float = 0.1

    def __post_init__(self) -> None:
        at_least(1, self, "vocabulary_size", "direction_dim", "layers")
        at_least(2, self, "max_positions")
        fraction(self, "dropout")

    @property
    def model_dim(self) -> int:
        """Length of a word's vector."""
        return 2 * self.direction_dim


class ElmoEncoder(nn.Module):
    """The table of words, and an LSTM for each layer and direction; each but the first adds to its input."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        size = config.direction_dim
        self.embedding = nn.Embedding(config.vocabulary_size, size)
        self.forwards = nn.ModuleList(nn.LSTM(size, size, batch_first=True) for _ in range(config.layers))
        self.backwards = nn.ModuleList(nn.LSTM(size, size, batch_first=True) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """`[B, T]` without padding -> the layers h_kj, `[L + 1, B, T, 2E]`."""
        x = self.embedding(ids)
        layers = [torch.cat((x, x), -1)]
        ahead, back = x, x.flip(1)
        for number, (first, second) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            ahead = first(self.dropout(ahead))[0] + (ahead if number else 0)
            back = second(self.dropout(back))[0] + (back if number else 0)
            layers.append(torch.cat((ahead, back.flip(1)), -1))
        return torch.stack(layers)


class Elmo(nn.Module):
    """Both language models, which share the words' table and the output layer."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = ElmoEncoder(config)
        self.output = nn.Linear(config.direction_dim, config.vocabulary_size)

    def forward(self, ids: Tensor) -> Tensor:
        """`[B, T]` without padding -> vectors `[B, T, 2E]`."""
        return self.bert(ids).mean(0)

    def losses(self, ids: Tensor, smoothing: float) -> Tensor:
        """`[B, T + 1]` -> sum of T cross-entropies: of a token by those before it, and by those after it; their mean."""
        ahead, back = self.bert(ids)[-1].chunk(2, -1)
        predicted = torch.cat((ahead[:, :-1], back[:, 1:])).flatten(0, 1)
        right = torch.cat((ids[:, 1:], ids[:, :-1])).flatten()
        logits = self.output(self.bert.dropout(predicted)).float()
        return functional.cross_entropy(logits, right, label_smoothing=smoothing, reduction="sum") / 2
