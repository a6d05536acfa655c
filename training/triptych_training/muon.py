"""Muon: momentum, orthogonalised (Jordan et al. 2024), for the hidden weight matrices of a Transformer.

`torch.optim.Muon` computes in bfloat16, which a CPU without such instructions runs ten times slower than float32, and treats a
fused query/key/value matrix as one; here the arithmetic follows the device and fused matrices are taken apart.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic Newton-Schulz iteration of the reference implementation


def orthogonalise(matrices: Tensor, iterations: int) -> Tensor:
    """Push the singular values of `[N, rows, columns]` towards one, whatever they were."""
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(Optimizer):
    """Updates have the size that Adam's would (scaled by 0.2 sqrt(max(rows, columns)); Liu et al. 2025), so one rate serves both.

    Args:
        params: two-dimensional parameters only.
        lr: learning rate.
        momentum: decay of the gradient average (Nesterov).
        weight_decay: decoupled, multiplied by the learning rate.
        iterations: Newton-Schulz iterations.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        iterations: int = 5,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "iterations": iterations}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take one step; closures are not supported."""
        for group in self.param_groups:
            directions = {p: self._direction(p, group["momentum"]) for p in group["params"] if p.grad is not None}
            updates = _orthogonal_updates(directions, group["iterations"])
            for parameter, update in updates.items():
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"])

    def _direction(self, parameter: Tensor, momentum: float) -> Tensor:
        gradient = parameter.grad
        assert gradient is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(state["momentum"], momentum)


def _orthogonal_updates(directions: dict[Tensor, Tensor], iterations: int) -> dict[Tensor, Tensor]:
    """Orthogonalise all blocks of one shape in one batched call."""
    blocks = {p: _blocks(direction) for p, direction in directions.items()}
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for parameter, stack in blocks.items():
        by_shape.setdefault(stack.shape[1:], []).append(parameter)
    updates = {}
    for shape, parameters in by_shape.items():
        result = orthogonalise(torch.cat([blocks[p] for p in parameters]), iterations) * (0.2 * max(shape) ** 0.5)
        parts = result.split([len(blocks[p]) for p in parameters])
        updates.update({p: part.reshape(p.shape) for p, part in zip(parameters, parts, strict=True)})
    return updates


def _blocks(matrix: Tensor) -> Tensor:
    """`[n*E, E]` of a fused attention projection -> `[n, E, E]` for n = 2 or 3; anything else is one block."""
    rows, columns = matrix.shape
    return matrix.view(-1, columns, columns) if rows in (2 * columns, 3 * columns) else matrix[None]
