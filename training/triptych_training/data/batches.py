"""Batches with a token budget; sentences of similar length share a batch, so that there is little padding."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ids = list[int]
Sizes = NDArray[np.integer[Any]]
Row = Sequence[int] | NDArray[np.integer[Any]]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Example:
    """Sentence pair as ids; both sides end with EOS."""

    source: Row
    target: Row

    def size(self) -> int:
        """Return the tokens of the longer side, which the pair takes in a padded batch."""
        return max(len(self.source), len(self.target))


def example_sizes(examples: Sequence[Example]) -> Sizes:
    """`[N, 2]`: the sizes of examples for `plan_batches`."""
    return np.array([(example.size(), len(example.source)) for example in examples], np.int64).reshape(-1, 2)


def plan_batches(sizes: Sizes, batch_tokens: int, seed: str) -> list[Indices]:
    """Group row indices so that rows x longest row stays within `batch_tokens`; the order depends on `seed`.

    The first column of `sizes` `[N, K]` is the length; the others are used to group similar rows.
    """
    rng = random.Random(seed)
    by_lot = np.random.default_rng(rng.getrandbits(64)).random(len(sizes))
    order = np.lexsort((by_lot, *sizes.T[::-1]))
    lengths, cuts = sizes[order, 0].astype(np.int64), [0]
    while (start := cuts[-1]) < len(order):
        window = lengths[start : start + max(1, batch_tokens // lengths[start])]
        fitting = window * np.arange(1, len(window) + 1) <= batch_tokens  # ascending lengths: the newest row is the longest
        cuts.append(start + max(1, int(fitting.sum())))
    batches = [order[start:end] for start, end in pairwise(cuts)]
    rng.shuffle(batches)
    return batches


def plan_steps(batches: list[Indices], per_step: int) -> list[list[Indices]]:
    """Group batches by `per_step` for the optimizer steps.

    An incomplete last group is dropped (another epoch has another order); if there is no complete group, batches are repeated.
    """
    if 0 < len(batches) < per_step:
        return [[batches[i % len(batches)] for i in range(per_step)]]
    return [batches[start : start + per_step] for start in range(0, len(batches) - per_step + 1, per_step)]


def decoder_inputs(labels: Tensor, pad_id: int, bos_id: int) -> Tensor:
    """Return what the decoder reads to predict padded targets `[B, T]`: BOS, then the targets one position later."""
    inputs = torch.full_like(labels, bos_id)
    inputs[:, 1:] = labels[:, :-1].where(labels[:, 1:] != pad_id, pad_id)
    return inputs


def pad(rows: Sequence[Row], pad_id: int) -> Tensor:
    """`[B, longest]`, padded on the right."""
    padded = np.full((len(rows), max(map(len, rows))), pad_id, np.int64)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(padded)


def by_length(rows: Sequence[Row], batch_tokens: int) -> Iterator[list[int]]:
    """Group the indices of `rows` into batches of similar length, longest first, for decoding."""
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        if batch and (len(batch) + 1) * len(rows[batch[0]]) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
