"""Reference beam search: against enumeration, greedy search and the teacher-forced pass."""

import itertools
from collections.abc import Sequence

import pytest
import torch

from triptych_training.decoding.greedy import greedy
from triptych_training.models.transformer import Transformer

from ..unit.training.toy import SHAPE, make_ids, make_model
from .beam_search import BeamOptions, Candidate, beam_search

START, END = 1, 2
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


def test_one_beam_is_greedy_search() -> None:
    model, sources = make_model(), make_ids(*range(2, 14))
    found = beam_search(model, sources, BeamOptions(1, max_length=12))
    assert [list(best.tokens) for [best] in found] == greedy(model, sources, 12)
    assert beam_search(make_model(), [], BeamOptions()) == []
    assert greedy(make_model(), [], 12) == []
    assert SHAPE.eos_id == END


@pytest.mark.parametrize("prefix", [[], [7, 9]], ids=["free", "prefix"])
def test_log_probabilities_are_those_of_the_teacher_forced_pass(prefix: list[int]) -> None:
    model, [source] = make_model(), make_ids(9)
    options = BeamOptions(4, num_hypotheses=4, max_length=8, length_penalty=0.7)
    [found] = beam_search(model, [source], options, [prefix])
    for candidate in found:
        steps = [*candidate.tokens, END] if candidate.ended else list(candidate.tokens)
        logits = model(torch.tensor([source]), torch.tensor([[START, *steps[:-1]]]))[0]
        expected = logits.log_softmax(-1).gather(1, torch.tensor(steps)[:, None])[:, 0].tolist()
        assert candidate.log_probabilities == pytest.approx(expected, abs=1e-4)
        assert candidate.log_probability == pytest.approx(sum(expected), abs=1e-4)
        assert candidate.score == pytest.approx(sum(expected[len(prefix) :]) / len(steps) ** 0.7, abs=1e-4)
        assert list(candidate.tokens[: len(prefix)]) == prefix
