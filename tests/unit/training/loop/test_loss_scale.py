"""Loss scaling."""

import pytest
import torch
from torch import nn

from triptych_training.loop.loss_scale import GROWTH_STEPS, LARGEST, LossScale


def parameters(*gradients: float | None) -> list[nn.Parameter]:
    made = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(3))
        parameter.grad = None if gradient is None else torch.full((3,), gradient)
        made.append(parameter)
    return made


def test_finite_gradients_lose_the_factor() -> None:
    scale, weights = LossScale(8.0), parameters(16.0, None, -4.0)
    assert scale.unscale(weights)
    assert [None if p.grad is None else p.grad.tolist() for p in weights] == [[2.0] * 3, None, [-0.5] * 3]
    assert scale.factor == 8.0


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_one_that_overflowed_halves_the_factor_and_leaves_the_step_out(bad: float) -> None:
    scale = LossScale(8.0)
    assert not scale.unscale(parameters(1.0, bad))
    assert scale.factor == 4.0


def test_the_factor_never_falls_below_one() -> None:
    scale = LossScale(1.0)
    assert not scale.unscale(parameters(float("inf")))
    assert scale.factor == 1.0


def test_it_grows_after_many_good_steps_up_to_a_limit() -> None:
    scale = LossScale(LARGEST / 2)
    factors = []
    for _ in range(2 * GROWTH_STEPS):
        scale.unscale(parameters(1.0))
        factors.append(scale.factor)
    assert (factors[GROWTH_STEPS - 2], factors[GROWTH_STEPS - 1], factors[-1]) == (LARGEST / 2, LARGEST, LARGEST)


def test_a_saved_state_goes_on_as_before() -> None:
    one, other = LossScale(8.0), LossScale()
    for _ in range(GROWTH_STEPS - 1):
        one.unscale(parameters(1.0))
    other.restore(one.state())
    other.unscale(parameters(1.0))
    assert other.factor == 16.0
