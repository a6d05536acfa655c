"""Muon: orthogonalisation and steps."""

import copy

import pytest
import torch
from torch import nn

from triptych_training.loop.optimizer import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 24, 16), (2, 16, 40)], ids=["square", "tall", "wide"])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    matrices = torch.randn(shape) * 100
    found = orthogonalise(matrices, 5)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5
    assert values.max() < 1.3
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    result = u.mT @ found @ v.mT
    assert torch.allclose(result, torch.diag_embed(result.diagonal(dim1=-2, dim2=-1)), atol=1e-3)
    torch.testing.assert_close(found, torch.cat([orthogonalise(matrix[None], 5) for matrix in matrices]), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("weight_decay", "expected"), [(0.0, 1.0), (0.5, 0.95)])
def test_parameters_without_gradient_stay_and_weight_decay_is_decoupled(weight_decay: float, expected: float) -> None:
    left, right = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))
    right.grad = torch.zeros(4, 4)
    Muon([left, right], lr=0.1, weight_decay=weight_decay).step()
    assert torch.equal(left, torch.ones(4, 4))
    assert torch.allclose(right, torch.full((4, 4), expected))


def test_muon_learns_a_linear_map() -> None:
    torch.manual_seed(1)
    goal, parameter = torch.randn(6, 6), nn.Parameter(torch.zeros(6, 6))
    optimizer = Muon([parameter], lr=0.1)
    for step in range(200):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 200)
        optimizer.zero_grad()
        (parameter - goal).square().sum().backward()
        optimizer.step()
    assert (parameter - goal).abs().max() < 0.1


def test_step_calls_the_closure_and_returns_its_loss() -> None:
    parameter = nn.Parameter(torch.ones(2, 2))

    def closure() -> float:
        loss = parameter.square().sum()
        loss.backward()
        return loss.item()

    assert Muon([parameter], lr=0.1).step(closure) == 4.0
    assert not torch.equal(parameter, torch.ones(2, 2))


def test_a_restored_state_continues() -> None:
    torch.manual_seed(1)
    first, second = nn.Parameter(torch.eye(4)), nn.Parameter(torch.eye(4))
    one, other = Muon([first], lr=0.1), Muon([second], lr=0.1)
    for step in range(4):
        first.grad = torch.randn(4, 4)
        if step == 2:
            other.load_state_dict(copy.deepcopy(one.state_dict()))
            second.data.copy_(first.data)
        second.grad = first.grad.clone()
        one.step()
        if step >= 2:
            other.step()
    assert torch.equal(first, second)
