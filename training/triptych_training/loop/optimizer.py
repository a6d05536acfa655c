"""Optimizers, Muon among them, learning-rate schedules, and the moving average of weights."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from triptych_training.models.attention import CrossAttention, SelfAttention
from triptych_training.models.blocks import EncoderLayer
from triptych_training.models.pvt import PvtLayer
from triptych_training.models.swin import SwinLayer
from triptych_training.models.transformer import DecoderLayer

LAYERS = EncoderLayer | DecoderLayer | PvtLayer | SwinLayer
OPTIMIZERS = ("adam", "muon", "sgd")
SCHEDULES = ("inverse-sqrt", "linear", "cosine", "constant")
RECURRENT = nn.RNNBase | nn.RNNCellBase
ENDING = ("linear", "cosine")  # schedules that end at zero
WARMUP_SHARE = 0.1  # of a training at most is its warm-up
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic Newton-Schulz iteration of Muon's reference implementation
MOMENTUM, ITERATIONS = 0.95, 5  # of Muon: decay of the gradient average (Nesterov), Newton-Schulz iterations


def make_optimizers(
    model: nn.Module, kind: str, learning_rate: float, weight_decay: float, fused: bool, bfloat16: bool = False
) -> list[Optimizer]:
    """Make Adam for all weights (Vaswani et al. 2017), Muon for the layers' matrices and Adam for the others, or plain SGD.

    Only matrices of projections and kernels of convolutions decay: norms, biases and embeddings keep their size.
    """
    matrices = _matrices(model) if kind == "muon" else []
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    decaying = _decaying(model) if weight_decay else chosen | {id(p) for p in rest}
    groups = [
        {"params": [p for p in rest if (id(p) in decaying) == decays], "weight_decay": weight_decay * decays}
        for decays in (True, False)
    ]
    groups = [group for group in groups if group["params"]]
    if kind == "sgd":
        return [torch.optim.SGD(groups, learning_rate)]
    optimizers: list[Optimizer] = [torch.optim.AdamW(groups, learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=fused)]
    if matrices:
        optimizers.append(Muon(matrices, learning_rate, weight_decay=weight_decay, fused=_fused(model), bfloat16=bfloat16))
    return optimizers


def _matrices(model: nn.Module) -> list[Tensor]:
    """List the layers' matrices and the kernels of convolutions."""
    layers = (module for module in model.modules() if isinstance(module, LAYERS | nn.Conv2d | RECURRENT))
    named = [pair for layer in layers for pair in layer.named_parameters()]
    return list(dict.fromkeys(p for name, p in named if p.ndim >= 2 and not name.endswith("relative_positions")))


def _decaying(model: nn.Module) -> set[int]:
    """Identify the weights of projections and convolutions that are not embeddings as well."""
    weights = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    cells = [module for module in model.modules() if isinstance(module, RECURRENT)]
    weights |= {id(p) for module in cells for p in module.parameters() if p.ndim >= 2}
    return weights - {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}


def _fused(model: nn.Module) -> dict[Tensor, int]:
    """Map each fused matrix of attention or of gates to its number of projections."""
    fused: dict[Tensor, int] = {}
    for module in model.modules():
        if isinstance(module, SelfAttention):
            fused[module.query_key_value.weight] = sum(module.parts) // math.gcd(*module.parts)
        elif isinstance(module, CrossAttention):
            fused[module.key_value.weight] = 2
        elif isinstance(module, RECURRENT):  # one matrix for each gate
            fused |= {p: len(p) // module.hidden_size for p in module.parameters() if p.ndim >= 2}
    return fused


def clip_gradients(model: nn.Module, limit: float) -> Tensor:
    """Scale all gradients so that their norm is at most `limit`; 0 is off, and needed for sparse ones. Returns the norm."""
    if limit:
        return torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.nn.utils.get_total_norm([each._values() if each.is_sparse else each for each in gradients])


def make_schedule(kind: str, warmup: int, total: int) -> Callable[..., float]:
    """Make a schedule that rises over `warmup` steps and then falls: a factor on the peak learning rate.

    It is a function of the step, counted from 0, and of the share `gone` of the time limit (0: no limit).

    `inverse-sqrt` falls with 1/sqrt(step) (Vaswani et al. 2017, equation 3); `linear` and `cosine` fall to zero at step
    `total`, or at the time limit if that comes first. `constant` does not fall, so such a training can be extended at any time;
    a short training with `linear` that begins with its weights then lowers the rate (Hägele et al. 2024).
    """
    falls: dict[str, Callable[[int, float], float]] = {
        "inverse-sqrt": lambda step, _: math.sqrt(max(warmup, 1) / (step + 1)),
        "linear": lambda _, progress: 1 - progress,
        "cosine": lambda _, progress: 0.5 * (1 + math.cos(math.pi * progress)),
        "constant": lambda _, __: 1.0,
    }

    def factor(step: int, gone: float = 0.0) -> float:
        progress = min(1.0, max(0.0, gone, (step - warmup) / max(1, total - warmup)))  # from the end of the warm-up
        fall = falls[kind](step, progress)
        return min(max((step + 1) / warmup, gone / WARMUP_SHARE), fall) if step < warmup else fall

    return factor


def orthogonalise(matrices: Tensor, bfloat16: bool = False) -> Tensor:
    """Push all singular values of `[N, rows, columns]` towards one; bfloat16 takes a third of the time where it is native."""
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16() if bfloat16 else matrices
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.mT if tall else x
    return result.to(matrices.dtype)


class Muon(Optimizer):
    """Orthogonalised momentum (Jordan et al. 2024), for the hidden weight matrices of a Transformer.

    `torch.optim.Muon` computes in bfloat16, ten times slower than float32 on a CPU without such instructions, and treats a
    fused query/key/value matrix as one; here that is an option, and fused matrices are separated. Updates
    are scaled to the size of Adam's (0.2 sqrt(max(rows, columns)); Liu et al. 2025), so that both use one learning rate.

    Args:
        params: matrices; in kernels of convolutions all dimensions but the first are flattened.
        lr: learning rate.
        weight_decay: decoupled, multiplied by the learning rate.
        fused: number of matrices stacked in a parameter, if more than one.
        bfloat16: iterate in bfloat16.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        fused: Mapping[Tensor, int] = MappingProxyType({}),
        bfloat16: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self._fused, self._bfloat16 = dict(fused), bfloat16

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Take one step with the gradients that the parameters have."""
        for group in self.param_groups:
            directions = self._directions(group["params"])
            if not directions:
                continue
            updates = self._orthogonal(directions)
            parameters = list(updates)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, list(updates.values()), alpha=-group["lr"])

    def _directions(self, parameters: Iterable[Tensor]) -> dict[Tensor, Tensor]:
        """Update the momentum of all parameters in one call each: on a GPU every call costs, however small its tensors."""
        moving = {parameter: parameter.grad for parameter in parameters if parameter.grad is not None}
        if not moving:
            return {}
        for parameter in moving:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        gradients, means = list(moving.values()), [self.state[parameter]["momentum"] for parameter in moving]
        torch._foreach_lerp_(means, gradients, 1 - MOMENTUM)
        return dict(zip(moving, torch._foreach_lerp(gradients, means, MOMENTUM), strict=True))

    def _orthogonal(self, directions: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
        """Orthogonalise all matrices of one shape in one batched call."""
        flat = {p: direction.flatten(1) for p, direction in directions.items()}
        stacks = {p: torch.unflatten(matrix, 0, (self._fused.get(p, 1), -1)) for p, matrix in flat.items()}
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for parameter, stack in stacks.items():
            by_shape.setdefault(stack.shape[1:], []).append(parameter)
        updates = {}
        for shape, parameters in by_shape.items():
            stack = torch.cat([stacks[p] for p in parameters])
            result = orthogonalise(stack, self._bfloat16) * (0.2 * max(shape) ** 0.5)
            parts = result.split([len(stacks[p]) for p in parameters])
            updates.update({p: part.reshape(p.shape) for p, part in zip(parameters, parts, strict=True)})
        return updates


class MovingAverage:
    """Mean of the weights, running statistics included, over about the last 1 / (1 - decay) steps; fewer in the beginning.

    Source: Polyak and Juditsky 1992, as in Tarvainen and Valpola 2017.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model = model
        self._decay = decay
        self._steps = 0
        self._mean = self._copy()

    @torch.no_grad()
    def update(self) -> None:
        """Include the weights after a step."""
        self._steps += 1
        decay = min(self._decay, self._steps / (self._steps + 9))
        weights = self._weights()
        torch._foreach_lerp_(list(self._mean.values()), [weights[name] for name in self._mean], 1 - decay)

    def reset(self) -> None:
        """Start again from the current weights."""
        self._steps = 0
        for name, tensor in self._weights().items():
            self._mean[name].copy_(tensor)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Give the model the mean's weights inside the context."""
        own = self._copy()
        self._model.load_state_dict(self._mean, strict=False)
        try:
            yield
        finally:
            self._model.load_state_dict(own, strict=False)

    def state(self) -> dict[str, object]:
        """Return the state for `restore`."""
        return {"steps": self._steps, "mean": self._mean}

    def restore(self, state: Mapping[str, object]) -> None:
        """Continue from a saved state; raises KeyError or ValueError if the state belongs to another model."""
        mean = state["mean"]
        if not isinstance(mean, dict) or mean.keys() != self._mean.keys():
            raise ValueError("the moving average is of another model")
        for name, tensor in mean.items():
            self._mean[name].copy_(tensor)
        self._steps = int(str(state["steps"]))

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self._model.state_dict().items() if tensor.is_floating_point()}

    def _copy(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self._weights().items()}
