"""Moving average of weights."""

import pytest
import torch
from torch import nn

from triptych_training.loop.moving_average import MovingAverage


def set_weight(model: nn.Linear, value: float) -> None:
    with torch.no_grad():
        model.weight.fill_(value)


def averaged(model: nn.Linear, average: MovingAverage) -> float:
    with average.swapped():
        return float(model.weight.detach()[0, 0])


def test_the_decay_is_smaller_in_the_first_steps() -> None:
    model = nn.Linear(1, 1)
    set_weight(model, 0.0)
    average = MovingAverage(model, decay=0.3)
    expected = 0.0
    for step, value in enumerate((1.0, 5.0, -2.0, 4.0, 4.0), start=1):
        set_weight(model, value)
        average.update()
        decay = min(0.3, step / (step + 9))  # 0.1, 0.18, 0.25, then 0.3
        expected = decay * expected + (1 - decay) * value
        assert averaged(model, average) == pytest.approx(expected, rel=1e-6)


def test_an_error_inside_swapped_restores_the_model_s_weights() -> None:
    model = nn.Linear(1, 1)
    average = MovingAverage(model, 0.9)
    set_weight(model, 7.0)
    with pytest.raises(ZeroDivisionError), average.swapped():
        set_weight(model, 1 / 0)
    assert float(model.weight.detach()[0, 0]) == 7


def test_tied_weights_stay_tied() -> None:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    average = MovingAverage(nn.Sequential(first, second), 0.9)
    set_weight(first, 3.0)
    average.update()
    with average.swapped():
        assert first.weight is second.weight
        inside = first.weight.clone()
    assert not torch.equal(inside, first.weight)
    assert torch.equal(second.weight, torch.full((2, 2), 3.0))


def test_running_statistics_are_averaged_and_counts_are_not() -> None:
    model = nn.BatchNorm1d(2)
    average = MovingAverage(model, 0.5)
    model(torch.full((4, 2), 10.0))
    average.update()
    own, steps = model.running_mean, model.num_batches_tracked
    assert own is not None
    assert steps is not None
    value = float(own[0])
    with average.swapped():
        assert float(own[0]) == pytest.approx(0.9 * value)
        assert int(steps) == 1


def test_a_restored_state_continues_and_is_a_copy() -> None:
    model, other = nn.Linear(1, 1), nn.Linear(1, 1)
    average = MovingAverage(model, 0.9)
    for value in (1.0, 2.0):
        set_weight(model, value)
        average.update()
    again = MovingAverage(other, 0.9)
    again.restore(average.state())
    before = averaged(model, average)
    set_weight(other, 3.0)
    again.update()
    assert averaged(model, average) == before
    set_weight(model, 3.0)
    average.update()
    assert averaged(model, average) == averaged(other, again)


@pytest.mark.parametrize("state", [{"steps": 1, "mean": {}}, {"steps": 1, "mean": None}])
def test_a_state_of_another_model_is_rejected(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the moving average is of another model"):
        MovingAverage(nn.Linear(1, 1), 0.9).restore(state)
    with pytest.raises(KeyError):
        MovingAverage(nn.Linear(1, 1), 0.9).restore({})
