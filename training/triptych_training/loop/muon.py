"""Muon: momentum, orthogonalised (Jordan et al. 2024), for the hidden weight matrices of a Transformer.

`torch.optim.Muon` computes in bfloat16, which a CPU without such instructions runs ten times slower than float32, and treats a
fused query/key/value matrix as one; here the arithmetic follows the device and fused matrices are taken apart.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

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
    result: Tensor = x.mT if tall else x
    return result.to(matrices.dtype)


class Muon(Optimizer):
    """Updates have the size that Adam's would (0.2 sqrt(max(rows, columns)); Liu et al. 2025), so one rate serves both.

    Args:
        params: matrices; of more dimensions (kernels of convolutions) all but the first are taken as one.
        lr: learning rate.
        momentum: decay of the gradient average (Nesterov).
        weight_decay: decoupled, multiplied by the learning rate.
        iterations: Newton-Schulz iterations.
        fused: how many matrices, one below the other, a parameter holds, where it is not one.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        iterations: int = 5,
        fused: Mapping[Tensor, int] = MappingProxyType({}),
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "iterations": iterations}
        super().__init__(params, defaults)
        self._fused = dict(fused)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step; `closure`, if given, computes the gradients and returns the loss."""
        loss = closure() if closure is not None else None
        self._update()
        return loss

    @torch.no_grad()
    def _update(self) -> None:
        for group in self.param_groups:
            directions = self._directions(group["params"], group["momentum"])
            if not directions:
                continue
            updates = self._orthogonal(directions, group["iterations"])
            parameters = list(updates)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, list(updates.values()), alpha=-group["lr"])

    def _directions(self, parameters: Iterable[Tensor], momentum: float) -> dict[Tensor, Tensor]:
        """Where momentum leads, all at once: on a GPU every call costs, however small its tensors are."""
        moving = {parameter: parameter.grad for parameter in parameters if parameter.grad is not None}
        if not moving:
            return {}
        for parameter in moving:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        gradients, means = list(moving.values()), [self.state[parameter]["momentum"] for parameter in moving]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        return dict(zip(moving, torch._foreach_lerp(gradients, means, momentum), strict=True))

    def _orthogonal(self, directions: dict[Tensor, Tensor], iterations: int) -> dict[Tensor, Tensor]:
        """Orthogonalise all matrices of one shape in one batched call."""
        flat = {p: direction.flatten(1) for p, direction in directions.items()}
        stacks = {p: torch.unflatten(matrix, 0, (self._fused.get(p, 1), -1)) for p, matrix in flat.items()}
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for parameter, stack in stacks.items():
            by_shape.setdefault(stack.shape[1:], []).append(parameter)
        updates = {}
        for shape, parameters in by_shape.items():
            result = orthogonalise(torch.cat([stacks[p] for p in parameters]), iterations) * (0.2 * max(shape) ** 0.5)
            parts = result.split([len(stacks[p]) for p in parameters])
            updates.update({p: part.reshape(p.shape) for p, part in zip(parameters, parts, strict=True)})
        return updates
