"""Two-stage arg-max, suppressed tokens and edits of probabilities."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from torch import Tensor, nn

from triptych_export.graphs.translation import GraphSettings, block_width, edited, suppress, two_stage_argmax


@st.composite
def logits_in_blocks(draw: st.DrawFn) -> tuple[NDArray[np.float32], int]:
    rows, blocks, columns = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    values = st.sampled_from([-1e9, -1.0, 0.0, 0.5, 2.0])
    return draw(arrays(np.float32, (rows, blocks * columns), elements=values)), columns


@given(logits_in_blocks())
def test_the_two_stage_argmax_equals_a_single_one_and_takes_the_first_of_ties(case: tuple[NDArray[np.float32], int]) -> None:
    logits, columns = case
    assert two_stage_argmax(torch.from_numpy(logits), columns).tolist() == np.argmax(logits, axis=1).tolist()


@pytest.mark.parametrize("size", [1, 7, 256, 257, 340, 8_000, 32_128, 50_265, 58_101])
def test_a_vocabulary_is_divided_into_equal_blocks(size: int) -> None:
    width = block_width(size)
    assert size % width == 0
    assert width <= 1_024


def test_some_vocabularies_cannot_be_divided() -> None:
    assert [block_width(size) for size in (1_031, 8_011, 256_206)] == [0, 0, 0]


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "biased"])
@torch.inference_mode()
def test_suppressed_tokens_are_never_chosen_and_weights_are_shared(bias: bool) -> None:
    projection = nn.Linear(8, 40, bias=bias)
    suppressed = suppress(projection, (0, 7, 39))
    hidden = torch.randn(200, 8) * 100
    logits = projection(hidden)
    logits[:, [0, 7, 39]] = -torch.inf
    assert torch.equal(suppressed(hidden).argmax(-1), logits.argmax(-1))
    assert suppressed.weight is projection.weight
    assert suppress(projection, ()) is projection


def edits(*values: tuple[int, float, float]) -> list[Tensor]:
    tokens, factors, offsets = zip(*values, strict=True)
    return [torch.tensor([tokens]), torch.tensor([factors]), torch.tensor([offsets])]


LOGITS = torch.tensor([[2.0, -1.0, 0.5, 3.0]])
FIRST = GraphSettings(8, 8)
LAST = GraphSettings(8, 8, edits_last=True)


@pytest.mark.parametrize(("factor", "offset"), [(1.0, -1e9), (1.5, 0.0), (0.5, 0.25)])
def test_edits_before_the_softmax_change_logits(factor: float, offset: float) -> None:
    expected = LOGITS.clone()
    expected[0, 0], expected[0, 1] = 2 / factor + offset, -1 * factor + offset
    found = edited(LOGITS, edits((0, factor, offset), (1, factor, offset), (0, factor, offset)), FIRST)
    torch.testing.assert_close(found, expected.log_softmax(-1))


def test_edits_after_the_softmax_change_log_probabilities() -> None:
    expected = LOGITS.log_softmax(-1)
    expected[0, 0] *= 1.5
    expected[0, 2] -= 1e9
    torch.testing.assert_close(edited(LOGITS, edits((0, 1.5, 0.0), (2, 1.0, -1e9)), LAST), expected)


def test_negative_factors_change_logits_but_not_the_normaliser() -> None:
    normaliser = LOGITS.logsumexp(-1)
    expected = LOGITS.clone()
    expected[0, 0], expected[0, 1] = 2 / 1.5, -1 * 1.5
    found = edited(LOGITS, edits((0, -1.5, 0.0), (1, -1.5, 0.0), (2, -1.0, 0.0)), LAST)
    torch.testing.assert_close(found, expected - normaliser)


def test_renormalised_probabilities_sum_to_one() -> None:
    given = edits((0, 1.5, 0.0), (2, 1.0, -1e9))
    found = edited(LOGITS, given, GraphSettings(8, 8, edits_last=True, renormalizes=True))
    torch.testing.assert_close(found, edited(LOGITS, given, LAST).log_softmax(-1))
    assert found.exp().sum() == pytest.approx(1)
