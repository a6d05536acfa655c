"""Word2Vec (Mikolov et al. 2013): CBOW and skip-gram with negative sampling; and the table of vectors that they leave.

Shapes: `B` blocks of `C` words, `W` words with those before and after, `K` negative samples of a batch, `P` predicted words of
each, `T` positions, `V` words, `E` dimensions.
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

    Skip-gram predicts the words around a word; CBOW (`cbow`) a word from the mean of those around it. Each has `negatives`
    negative samples, in whose place it has the mean of all of its batch's. With `sparse`, gradients have only the rows of a
    batch's words.
    """

    def __init__(self, config: Word2VecConfig, negatives: int = 5, cbow: bool = False, sparse: bool = False) -> None:
        super().__init__()
        self.config, self.negatives, self.cbow = config, negatives, cbow
        self.inputs = nn.Embedding(config.vocabulary_size, config.model_dim, sparse=sparse)  # v_w
        self.outputs = nn.Embedding(config.vocabulary_size, config.model_dim, sparse=sparse)  # v'_w
        nn.init.uniform_(self.inputs.weight, -0.5 / config.model_dim, 0.5 / config.model_dim)
        nn.init.zeros_(self.outputs.weight)

    def scores(self, ids: Tensor, around: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """v'_w . h of the predicted words w and of the negative samples, and which predicted words there are.

        Args:
            ids: `[B, W]`, blocks of C words with the words before and after them.
            around: `[B, C, W]`, whether a word is one of those around another.
            negatives: `[K]` words.

        Returns:
            `[B, C, P]`, `[B, C, K]` and, true or false, `[B, C, P]`; P is W, and 1 for CBOW.
        """
        window = (ids.shape[1] - around.shape[1]) // 2
        middle = ids[:, window : ids.shape[1] - window]  # [B, C]
        if self.cbow:
            shares = around / around.sum(2, keepdim=True).clamp(min=1)
            h = torch.bmm(shares, self.inputs(ids))  # [B, C, E]
            right, inside = (h * self.outputs(middle)).sum(2, keepdim=True), around.any(2, keepdim=True)
        else:
            h = self.inputs(middle)
            right, inside = torch.bmm(h, self.outputs(ids).mT), around
        return right.float(), functional.linear(h, self.outputs(negatives)).float(), inside

    def forward(self, ids: Tensor, around: Tensor, negatives: Tensor) -> Tensor:
        """Sum the losses of all predicted words; arguments as of `scores`."""
        return self.loss_of(*self.scores(ids, around, negatives))

    def loss_of(self, right: Tensor, wrong: Tensor, inside: Tensor) -> Tensor:
        """Sum -log s(v'_w . h) - sum_k log s(-v'_k . h) over all predicted words; arguments are the results of `scores`."""
        share = self.negatives / wrong.shape[2]
        losses = inside * functional.softplus(-right)  # -log s(x) = softplus(-x)
        return losses.sum() + share * (inside.sum(2, keepdim=True) * functional.softplus(wrong)).sum()


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
