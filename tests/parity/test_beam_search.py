"""Reference beam search against enumeration; test_search and test_batch_beam compare all others with it."""

import itertools
from collections.abc import Sequence

import pytest
import torch

from triptych_training.models.transformer import Transformer

from ..unit.training.toy import SHAPE, make_model
from .beam_search import BeamOptions, Candidate, beam_search

START, END = SHAPE.bos_id, SHAPE.eos_id
SOURCE, STEPS = [5, 3, END], 3


def texts(found: Sequence[Candidate]) -> list[tuple[int, ...]]:
    return [candidate.tokens for candidate in found]


@pytest.fixture(scope="module")
def everything() -> list[tuple[float, int, tuple[int, ...]]]:
    """Log-probability, steps and tokens of every translation of SOURCE in at most STEPS steps."""
    return enumerate_all(make_model(vocabulary_size=6), SOURCE, STEPS)


@torch.inference_mode()
def enumerate_all(model: Transformer, source: list[int], length: int) -> list[tuple[float, int, tuple[int, ...]]]:
    size, found = model.config.vocabulary_size, []
    for steps in range(1, length + 1):
        free = [token for token in range(size) if token != END]
        lasts = range(size) if steps == length else [END]
        for tokens in itertools.product(*[free] * (steps - 1), lasts):
            logits = model(torch.tensor([source]), torch.tensor([[START, *tokens[:-1]]]))[0].double()
            total = float(logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None]).sum())
            found.append((total, steps, tokens[: -1 if tokens[-1] == END else None]))
    return found


@pytest.mark.parametrize("penalty", [0.6, 1.0, 2.0])
def test_a_beam_wide_enough_finds_the_best_of_all_translations(
    penalty: float, everything: list[tuple[float, int, tuple[int, ...]]]
) -> None:
    best = sorted(((total / steps**penalty, tokens) for total, steps, tokens in everything), reverse=True)[:100]
    options = BeamOptions(300, num_hypotheses=100, length_penalty=penalty, max_length=STEPS)
    [found] = beam_search(make_model(vocabulary_size=6), [SOURCE], options)
    assert texts(found) == [tokens for _, tokens in best]
    assert [candidate.score for candidate in found] == pytest.approx([score for score, _ in best], abs=1e-5)
