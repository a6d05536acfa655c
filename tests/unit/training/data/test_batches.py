"""Batches with a token budget."""

import random
from typing import Any

import pytest
import torch

from triptych_training.data.batches import Example, by_length, decoder_inputs, example_sizes, pad, plan_batches, plan_steps

RNG = random.Random(3)
EXAMPLES = [Example([5] * RNG.randint(1, 30), [6] * RNG.randint(1, 30)) for _ in range(300)]
SIZES = example_sizes(EXAMPLES)


def plan(*arguments: Any) -> list[list[int]]:
    return [batch.tolist() for batch in plan_batches(*arguments)]


@pytest.mark.parametrize("budget", [30, 64, 500, 100_000])
def test_batches_keep_the_budget_and_contain_every_example_once(budget: int) -> None:
    batches = plan(SIZES, budget, "1")
    assert sorted(i for batch in batches for i in batch) == list(range(len(EXAMPLES)))
    assert max(len(batch) * max(EXAMPLES[i].size() for i in batch) for batch in batches) <= budget


def test_steps_and_unusual_examples() -> None:
    sizes = example_sizes([Example([5] * 9, [6]), Example([5], [6]), Example([5] * 8, [6])])
    assert sorted(plan(sizes, 4, "1")) == [[0], [1], [2]]
    assert plan(example_sizes([]), 64, "1") == []
    assert plan_steps([], 2) == []
    assert list(by_length([], 64)) == []
    assert plan_steps([[0], [1], [2], [3], [4]], 2) == [[[0], [1]], [[2], [3]]]
    assert plan_steps([[0], [1]], 1) == [[[0]], [[1]]]
    assert plan_steps([[0], [1]], 5) == [[[0], [1], [0], [1], [0]]]  # too few for one step: repeated


def test_batches_have_little_padding_and_follow_the_seed() -> None:
    batches = plan(SIZES, 500, "1")
    padded = sum(len(batch) * max(EXAMPLES[i].size() for i in batch) for batch in batches)
    assert padded < 1.1 * sum(example.size() for example in EXAMPLES)
    first = plan(SIZES, 64, "1/0")
    assert plan(SIZES, 64, "1/0") == first
    others = [plan(SIZES, 64, seed) for seed in ("1/1", "2/0", "1/11", "11/1")]
    assert all(other != first for other in others)
    assert {len(other) for other in others} == {len(first)}


def test_rows_are_padded_on_the_right_and_shifted_for_the_decoder() -> None:
    labels = pad([[7, 2], [9, 10, 11, 2]], 0)
    inputs = decoder_inputs(labels, pad_id=0, bos_id=1)
    assert labels.tolist() == [[7, 2, 0, 0], [9, 10, 11, 2]]
    assert inputs.tolist() == [[1, 7, 0, 0], [1, 9, 10, 11]]
    assert labels.dtype == inputs.dtype == torch.int64


def test_rows_for_decoding_are_batched_by_length_within_the_budget() -> None:
    rows = [example.source for example in EXAMPLES]
    batches = list(by_length(rows, 100))
    assert sorted(i for batch in batches for i in batch) == list(range(len(rows)))
    assert all(pad([rows[i] for i in batch], 0).numel() <= 100 for batch in batches)
