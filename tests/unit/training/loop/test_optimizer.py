"""Muon, schedules, the choice of weights for each optimizer, and their moving average."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from triptych_training.loop.optimizer import SCHEDULES, MovingAverage, Muon, make_optimizers, make_schedule, orthogonalise

from ..toy import make_model


def names(model: torch.nn.Module, optimizer: Optimizer) -> set[str]:
    ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_schedule_rises_to_one_and_falls(kind: str) -> None:
    factors = [make_schedule(kind, 10, 100)(step) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert all(a >= b > 0 for a, b in pairwise(factors[9:]))
    assert make_schedule(kind, 0, 5)(0) == pytest.approx(1.0)
    assert make_schedule(kind, 10, 5)(4) == pytest.approx(0.5)
    assert make_schedule(kind, 10_000, 1_000_000)(500, gone=0.05) == pytest.approx(0.5)  # of a tenth of the time limit


def test_schedules_between_the_warm_up_and_the_end() -> None:
    for kind in ("linear", "cosine"):
        schedule = make_schedule(kind, 10, 100)
        assert [schedule(55), schedule(100), schedule(200)] == pytest.approx([0.5, 0, 0])
    schedule = make_schedule("constant", 10, 100)
    assert [schedule(step, gone=0.9) for step in (9, 50, 100, 10_000)] == [1, 1, 1, 1]
    schedule = make_schedule("inverse-sqrt", 100, 10_000)
    assert schedule(399) == pytest.approx(0.5)
    assert schedule(1_599) == pytest.approx(0.25)


def test_adam_takes_every_weight_once() -> None:
    model = make_model()
    [adam] = make_optimizers(model, "adam", 1e-3, 0.0, fused=True)
    assert isinstance(adam, AdamW)
    assert names(model, adam) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_muon_gets_the_matrices_of_the_layers_and_adam_the_rest(tied: bool, positions: str) -> None:
    model = make_model(tie_embeddings=tied, positions=positions)
    adam, muon = make_optimizers(model, "muon", 1e-3, 0.0, fused=True)
    assert isinstance(muon, Muon)
    layers = {name for name, p in model.named_parameters() if ".layers." in name and p.ndim == 2}
    assert names(model, muon) == layers
    assert names(model, adam) == {name for name, _ in model.named_parameters()} - layers


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_norms_biases_and_embeddings_do_not_decay(kind: str) -> None:
    model = make_model(tie_embeddings=False)
    [optimizer] = make_optimizers(model, kind, 1e-3, 0.1, fused=True)
    [decaying] = [group["params"] for group in optimizer.param_groups if group["weight_decay"]]
    found = {name for name, p in model.named_parameters() if any(p is each for each in decaying)}
    assert found == {n for n, p in model.named_parameters() if p.ndim == 2 and (".layers." in n or "projection" in n)}


def test_muon_separates_only_fused_projections() -> None:
    # The feed-forward matrix has the same shape as a fused one.
    model = make_model(feedforward_dim=48)
    _, muon = make_optimizers(model, "muon", 1.0, 0.0, fused=True)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    muon.step()

    parts = {"attention.query_key_value": 3, "cross_attention.key_value": 2, "feedforward.expand": 1}
    for name, count in parts.items():
        parameter = model.get_parameter(f"decoder.layers.1.{name}.weight")
        assert parameter.grad is not None
        expected = [orthogonalise(part[None])[0] * (0.2 * max(part.shape) ** 0.5) for part in parameter.grad.chunk(count)]
        update = before[f"decoder.layers.1.{name}.weight"] - parameter.detach()
        torch.testing.assert_close(update, torch.cat(expected), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 24, 16), (2, 16, 40)], ids=["square", "tall", "wide"])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    matrices = torch.randn(shape) * 100
    found = orthogonalise(matrices)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    result = u.mT @ found @ v.mT
    assert torch.allclose(result, torch.diag_embed(result.diagonal(dim1=-2, dim2=-1)), atol=1e-3)
    torch.testing.assert_close(found, torch.cat([orthogonalise(matrix[None]) for matrix in matrices]), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("weight_decay", "expected"), [(0.0, 1.0), (0.5, 0.95)])
def test_parameters_without_gradient_stay_and_weight_decay_is_decoupled(weight_decay: float, expected: float) -> None:
    left, right = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))
    right.grad = torch.zeros(4, 4)
    Muon([left, right], lr=0.1, weight_decay=weight_decay).step()
    assert torch.equal(left, torch.ones(4, 4))
    assert torch.allclose(right, torch.full((4, 4), expected))


def set_weight(model: nn.Linear, value: float) -> None:
    with torch.no_grad():
        model.weight.fill_(value)


def averaged(model: nn.Linear, average: MovingAverage) -> float:
    with average.swapped():
        return float(model.weight.detach()[0, 0])


def test_the_decay_is_smaller_in_the_first_steps_and_a_restored_state_continues() -> None:
    model, other = nn.Linear(1, 1), nn.Linear(1, 1)
    set_weight(model, 0.0)
    average, again = MovingAverage(model, decay=0.3), MovingAverage(other, decay=0.3)
    expected = 0.0
    for step, value in enumerate((1.0, 5.0, -2.0, 4.0, 4.0), start=1):
        set_weight(model, value)
        average.update()
        decay = min(0.3, step / (step + 9))  # 0.1, 0.18, 0.25, then 0.3
        expected = decay * expected + (1 - decay) * value
        assert averaged(model, average) == pytest.approx(expected, rel=1e-6)
        if step == 2:
            again.restore(average.state())
        if step > 2:
            set_weight(other, value)
            again.update()
    assert averaged(other, again) == averaged(model, average)


def test_an_error_inside_swapped_restores_the_model_s_weights() -> None:
    model = nn.Linear(1, 1)
    average = MovingAverage(model, 0.9)
    set_weight(model, 7.0)
    with pytest.raises(ZeroDivisionError), average.swapped():
        set_weight(model, 1 / 0)
    assert float(model.weight.detach()[0, 0]) == 7


def test_tied_weights_stay_tied_and_running_statistics_are_averaged() -> None:
    first, second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    second.weight = first.weight
    norm = nn.BatchNorm1d(2)
    average = MovingAverage(nn.Sequential(first, second, norm), 0.9)
    set_weight(first, 3.0)
    norm(torch.full((4, 2), 10.0))
    average.update()
    assert norm.running_mean is not None
    value = float(norm.running_mean[0])
    with average.swapped():
        assert first.weight is second.weight
        inside = first.weight.clone()
        assert float(norm.running_mean[0]) == pytest.approx(0.9 * value)
        assert norm.num_batches_tracked == 1  # counts are not averaged
    assert not torch.equal(inside, first.weight)
    assert torch.equal(second.weight, torch.full((2, 2), 3.0))


@pytest.mark.parametrize("state", [{"steps": 1, "mean": {}}, {"steps": 1, "mean": None}])
def test_a_state_of_another_model_is_rejected(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the moving average is of another model"):
        MovingAverage(nn.Linear(1, 1), 0.9).restore(state)
