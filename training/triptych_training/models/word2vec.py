"""Word2Vec (Mikolov et al. 2013): CBOW and skip-gram with negative sampling; and the table of vectors that they leave.

Shapes: `B` examples, `G` given words, `P` predicted words, `K` negative samples, `T` positions, `V` words, `E` dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import at_least, token_id

PAD = 0  # id of no word
SHORTEST = 1e-20  # length by which a vector is divided at least


@dataclass(frozen=True)
class Word2VecConfig:
    """Shape of both tables; raises ValueError if a field is out of range."""

    vocabulary_size: int
    model_dim: int = 100

    def __post_init__(self) -> None:
        at_least(1, self, "vocabulary_size", "model_dim")


class Word2Vec(nn.Module):
    """The input vectors v_w and the output vectors v'_w of all words.

    CBOW predicts a word from the words around it; skip-gram predicts the words around from the one in the middle. So they
    differ only in which words are given: see `data.words.WordWindows`.
    """

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__()
        self.config = config
        self.inputs = nn.Embedding(config.vocabulary_size, config.model_dim)  # v_w
        self.outputs = nn.Embedding(config.vocabulary_size, config.model_dim)  # v'_w
        nn.init.uniform_(self.inputs.weight, -0.5 / config.model_dim, 0.5 / config.model_dim)
        nn.init.zeros_(self.outputs.weight)

    def scores(self, given: Tensor, words: Tensor) -> Tensor:
        """v'_w . h: `[B, G]` given words, PAD for none, and `[B, N]` words -> `[B, N]`; h is the mean of the given v_w."""
        inside = (given != PAD).to(self.inputs.weight.dtype)  # [B, G]
        shares = inside / inside.sum(1, keepdim=True).clamp(min=1)
        h = torch.bmm(shares[:, None], self.inputs(given))  # [B, 1, E]
        return torch.bmm(h, self.outputs(words).transpose(1, 2)).squeeze(1)

    def forward(self, given: Tensor, predicted: Tensor, negatives: Tensor) -> Tensor:
        """Sum of -log s(v'_w . h) - sum_k log s(-v'_k . h) over all predicted words; a row's words share its `[B, K]` k."""
        inside = (predicted != PAD) & (given != PAD).any(1, keepdim=True)  # [B, P]
        scores = self.scores(given, torch.cat((predicted, negatives), 1)).float()
        right, wrong = scores.tensor_split((predicted.shape[1],), 1)
        losses = inside * functional.softplus(-right)  # -log s(x) = softplus(-x)
        return losses.sum() + (inside.sum(1, keepdim=True) * functional.softplus(wrong)).sum()


@dataclass(frozen=True)
class StaticConfig:
    """Shape of a table of vectors; the special tokens of other text encoders are one token here, which counts nothing.

    Raises:
        ValueError: a field is out of range.
    """

    layers: ClassVar[int] = 0
    heads: ClassVar[int] = 0

    vocabulary_size: int
    model_dim: int
    pad_id: int
    max_positions: int = 8_192

    def __post_init__(self) -> None:
        at_least(1, self, "vocabulary_size", "model_dim")
        token_id(self.vocabulary_size, self, "pad_id")

    @property
    def cls_id(self) -> int:
        """Id of the token before and after every text."""
        return self.pad_id

    sep_id = mask_id = cls_id


class StaticTable(nn.Module):
    """Vectors of tokens, and which tokens count in a text's mean: 1 or 0."""

    counted: Tensor  # [V, 1]
    scales: Tensor  # [V, 1], 1 / length of a vector; 0 for tokens that do not count

    def __init__(self, table: Tensor, ignored: Sequence[int]) -> None:
        super().__init__()
        self.vectors = nn.Embedding(len(table), table.shape[1], _weight=table, _freeze=True)
        counted = torch.ones(len(table), 1)
        counted[list(ignored)] = 0
        self.register_buffer("counted", counted)
        self.register_buffer("scales", counted / table.norm(dim=1, keepdim=True).clamp(min=SHORTEST))

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        """`[B, T]` ids and weights, 0 for padding -> `[B, E]`: the mean of the vectors that count; zeros where none do."""
        weights = weights * functional.embedding(ids, self.counted).squeeze(-1)  # [B, T]
        shares = weights / weights.sum(1, keepdim=True).clamp(min=1)
        return torch.bmm(shares[:, None], self.vectors(ids)).squeeze(1)

    def similarities(self, ids: Tensor, signs: Tensor) -> Tensor:
        """`[B, T]` ids and signs, 0 for padding -> `[B, V]`: cosines of sums of unit vectors with all vectors.

        Tokens that do not count have -2.
        """
        weights = signs * functional.embedding(ids, self.scales).squeeze(-1)  # [B, T]
        total = torch.bmm(weights[:, None], self.vectors(ids)).squeeze(1)  # [B, E]
        total = total / (total * total).sum(1, keepdim=True).sqrt().clamp(min=SHORTEST)
        return functional.linear(total, self.vectors.weight) * self.scales.squeeze(-1) + 2 * (self.counted.squeeze(-1) - 1)


class StaticEmbedding(nn.Module):
    """A text's vector is the mean of its tokens' vectors, rows of `table` `[V, E]`.

    The token `pad_id` around texts and those of `ignored`, such as the unknown token, do not count.
    """

    def __init__(self, table: Tensor, pad_id: int, ignored: Sequence[int] = ()) -> None:
        super().__init__()
        self.config = StaticConfig(len(table), table.shape[1], pad_id)
        self.bert = StaticTable(table, [pad_id, *ignored])

    def forward(self, ids: Tensor) -> Tensor:
        """`[T]` ids -> `[E]`, plainly."""
        counting = ids[self.bert.counted[ids, 0] > 0]
        return self.bert.vectors(counting).sum(0) / max(1, len(counting))

    def similarities(self, ids: Tensor) -> Tensor:
        """`[T]` ids -> `[V]`, plainly."""
        units = functional.normalize(self.bert.vectors.weight, dim=1) * self.bert.counted
        return torch.where(self.bert.counted[:, 0] > 0, units @ functional.normalize(units[ids].sum(0), dim=0), -2.0)
