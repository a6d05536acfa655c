"""Schedules, and which optimizer gets which weights."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch.optim import AdamW, Optimizer

from triptych_training.errors import RecipeError
from triptych_training.loop.muon import Muon, orthogonalise
from triptych_training.loop.optimizer import SCHEDULES, make_optimizers, make_schedule

from ..toy import make_model


def names(model: torch.nn.Module, optimizer: Optimizer) -> set[str]:
    ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_schedule_rises_to_one_and_falls(kind: str) -> None:
    factors = [make_schedule(kind, 10, 100)(step) for step in range(100)]
    assert factors[:10] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert all(a >= b > 0 for a, b in pairwise(factors[9:]))


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_two_schedules_end_at_zero_and_stay_there(kind: str) -> None:
    schedule = make_schedule(kind, 10, 100)
    assert [schedule(100), schedule(200)] == pytest.approx([0, 0])
    assert schedule(55) == pytest.approx(0.5)


def test_inverse_sqrt_halves_with_four_times_the_steps() -> None:
    schedule = make_schedule("inverse-sqrt", 100, 10_000)
    assert schedule(399) == pytest.approx(0.5)
    assert schedule(1_599) == pytest.approx(0.25)


@pytest.mark.parametrize("kind", SCHEDULES)
def test_a_schedule_can_do_without_warm_up_and_with_more_of_it_than_steps(kind: str) -> None:
    assert make_schedule(kind, 0, 5)(0) == pytest.approx(1.0)
    assert make_schedule(kind, 10, 5)(4) == pytest.approx(0.5)


def test_adam_takes_every_weight_once() -> None:
    model = make_model()
    [adam] = make_optimizers(model, "adam", 1e-3, 0.0, fused=True)
    assert isinstance(adam, AdamW)
    assert names(model, adam) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_muon_takes_the_matrices_of_the_layers_and_adam_the_rest(tied: bool, positions: str) -> None:
    model = make_model(tie_embeddings=tied, positions=positions)
    adam, muon = make_optimizers(model, "muon", 1e-3, 0.0, fused=True)
    assert isinstance(muon, Muon)
    layers = {name for name, p in model.named_parameters() if ".layers." in name and p.ndim == 2}
    assert names(model, muon) == layers
    assert names(model, adam) == {name for name, _ in model.named_parameters()} - layers


def test_muon_takes_fused_projections_apart_and_nothing_else() -> None:
    # A feed-forward matrix of the same shape as a fused one, to be taken whole.
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
        expected = [orthogonalise(part[None], 5)[0] * (0.2 * max(part.shape) ** 0.5) for part in parameter.grad.chunk(count)]
        update = before[f"decoder.layers.1.{name}.weight"] - parameter.detach()
        torch.testing.assert_close(update, torch.cat(expected), rtol=1e-3, atol=1e-4)


UNKNOWN = {
    "step": lambda: make_schedule("step", 1, 2),
    "sgd": lambda: make_optimizers(make_model(), "sgd", 1e-3, 0.0, fused=True),
}


@pytest.mark.parametrize(("kind", "make"), UNKNOWN.items(), ids=UNKNOWN)
def test_an_unknown_kind_is_refused_with_the_choices(kind: str, make: Callable[[], object]) -> None:
    with pytest.raises(RecipeError, match=f"'{kind}' is unknown; choose one of "):
        make()
