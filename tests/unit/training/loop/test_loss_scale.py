"""Loss scaling."""

import pytest
import torch
from torch import nn

from triptych_training.loop.fabric import GROWTH_STEPS, LARGEST, LossScale


def parameters(*gradients: float | None) -> list[nn.Parameter]:
    made = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(3))
        parameter.grad = None if gradient is None else torch.full((3,), gradient)
        made.append(parameter)
    return made


def test_finite_gradients_are_divided_by_the_factor() -> None:
    scale, weights = LossScale(8.0), parameters(16.0, None, -4.0)
    assert scale.unscale(weights)
    assert [None if p.grad is None else p.grad.tolist() for p in weights] == [[2.0] * 3, None, [-0.5] * 3]
    assert scale.factor == 8.0


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize(("factor", "halved"), [(8.0, 4.0), (1.0, 1.0)])
def test_an_overflow_halves_the_factor_down_to_one(bad: float, factor: float, halved: float) -> None:
    scale = LossScale(factor)
    assert not scale.unscale(parameters(1.0, bad))
    assert scale.factor == halved


def test_the_factor_grows_after_many_finite_steps_up_to_a_limit() -> None:
    scale = LossScale(LARGEST / 2)
    factors = []
    for _ in range(2 * GROWTH_STEPS):
        scale.unscale(parameters(1.0))
        factors.append(scale.factor)
    assert (factors[GROWTH_STEPS - 2], factors[GROWTH_STEPS - 1], factors[-1]) == (LARGEST / 2, LARGEST, LARGEST)


def test_a_restored_state_continues() -> None:
    one, other = LossScale(8.0), LossScale()
    for _ in range(GROWTH_STEPS - 1):
        one.unscale(parameters(1.0))
    other.restore(one.state())
    other.unscale(parameters(1.0))
    assert other.factor == 16.0
