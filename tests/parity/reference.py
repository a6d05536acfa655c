"""What the engine must answer, from PyTorch: the slow beam search, one sentence at a time, and teacher-forced probabilities."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.scheduling.request import Finish, Hypothesis, Row
from triptych_training.models.transformer import Transformer

from .beam_search import BeamOptions, Candidate, beam_search

TOLERANCE = 1e-4  # of scores and attention, fp32


def expected(model: Transformer, row: Row) -> list[Candidate]:
    """The best translations of a row that is searched with beams, best first."""
    [found] = beam_search(model, [list(row.source)], beam_options(row.search, row.max_tokens), [list(row.prefix)])
    return found


def beam_options(search: SearchParams, max_tokens: int) -> BeamOptions:
    """The same options by the reference's names."""
    return BeamOptions(
        search.beam_size,
        search.num_hypotheses,
        search.patience,
        search.length_penalty,
        search.coverage_penalty,
        search.repetition_penalty,
        search.no_repeat_ngram_size,
        search.min_length,
        max_tokens,
    )


def assert_found(row: Row, candidates: Sequence[Candidate]) -> None:
    """The row's hypotheses are these, in this order, and the row says what the best says."""
    assert [hypothesis.tokens for hypothesis in row.hypotheses] == [candidate.tokens for candidate in candidates]
    for hypothesis, candidate in zip(row.hypotheses, candidates, strict=True):
        assert_same(hypothesis, candidate)
    assert (tuple(row.tokens), row.finish) == (row.hypotheses[0].tokens, row.hypotheses[0].finish)


def assert_same(hypothesis: Hypothesis, candidate: Candidate) -> None:
    """Why it ended, score, probability and attention are the reference's."""
    assert hypothesis.finish is (Finish.STOP if candidate.ended else Finish.LENGTH)
    assert hypothesis.score == pytest.approx(candidate.score, abs=TOLERANCE)
    tolerance = TOLERANCE * len(candidate.log_probabilities)
    assert hypothesis.log_probability == pytest.approx(candidate.log_probability, abs=tolerance)
    if hypothesis.attention is not None:
        rows = candidate.attention[: len(candidate.tokens)]
        assert hypothesis.attention.shape == (len(rows), len(candidate.attention[0]))
        for mine, row in zip(hypothesis.attention, rows, strict=True):
            np.testing.assert_allclose(mine, row.numpy(), rtol=0, atol=TOLERANCE)


@torch.inference_mode()
def log_probabilities(model: Transformer, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """`[T, V]`: before each token of `target`, those of every token."""
    inputs = torch.tensor([[model.config.bos_id, *target[:-1]]])
    logits: Tensor = model(torch.tensor([list(source)]), inputs)[0]
    return logits.log_softmax(-1)


def token_log_probabilities(model: Transformer, source: Sequence[int], target: Sequence[int]) -> list[float]:
    """Of each token of `target`."""
    picked = log_probabilities(model, source, target).gather(1, torch.tensor(list(target))[:, None])
    return [float(value) for value in picked[:, 0]]
