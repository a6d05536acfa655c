"""Optimizers and learning-rate schedules."""

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from triptych_training.errors import RecipeError
from triptych_training.loop.muon import Muon
from triptych_training.models.attention import CrossAttention, SelfAttention
from triptych_training.models.blocks import EncoderLayer
from triptych_training.models.transformer import DecoderLayer

OPTIMIZERS = ("adam", "muon")
SCHEDULES = ("inverse-sqrt", "linear", "cosine")
ENDING = ("linear", "cosine")  # those that come down to zero


def make_optimizers(model: nn.Module, kind: str, learning_rate: float, weight_decay: float, fused: bool) -> list[Optimizer]:
    """Adam for everything (Vaswani et al. 2017), or Muon for the layers' matrices and Adam for the rest.

    Raises:
        RecipeError: `kind` is unknown.
    """
    if kind not in OPTIMIZERS:
        raise RecipeError(f"optimizer: {kind!r} is unknown; choose one of {', '.join(OPTIMIZERS)}")
    matrices = _matrices(model) if kind == "muon" else []
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    optimizers: list[Optimizer] = [
        torch.optim.AdamW(rest, learning_rate, betas=(0.9, 0.98), eps=1e-9, weight_decay=weight_decay, fused=fused)
    ]
    if matrices:
        optimizers.append(Muon(matrices, learning_rate, weight_decay=weight_decay, fused=_fused(model)))
    return optimizers


def _matrices(model: nn.Module) -> list[Tensor]:
    """The layers' matrices and the kernels of convolutions."""
    inner = [m for m in model.modules() if isinstance(m, EncoderLayer | DecoderLayer | nn.Conv2d)]
    return [p for module in inner for p in module.parameters() if p.ndim >= 2]


def _fused(model: nn.Module) -> dict[Tensor, int]:
    """How many projections each fused attention matrix holds."""
    fused: dict[Tensor, int] = {}
    for module in model.modules():
        if isinstance(module, SelfAttention):
            fused[module.query_key_value.weight] = 3
        elif isinstance(module, CrossAttention):
            fused[module.key_value.weight] = 2
    return fused


class Schedule(Protocol):
    """The factor on the peak learning rate."""

    def __call__(self, step: int, gone: float = 0.0) -> float:
        """At `step`, counted from 0, with the share `gone` of the training's time behind it (0 where it has no limit)."""
        ...


def make_schedule(kind: str, warmup: int, total: int) -> Schedule:
    """A rise over `warmup` steps, then a fall.

    `inverse-sqrt` rises linearly and falls with 1/sqrt(step) (Vaswani et al. 2017, equation 3); `linear` and `cosine` fall
    to zero at step `total`, or when the time is gone if that comes first.

    Raises:
        RecipeError: `kind` is unknown.
    """
    falls: dict[str, Callable[[int, float], float]] = {
        "inverse-sqrt": lambda step, _: math.sqrt(max(warmup, 1) / (step + 1)),
        "linear": lambda _, progress: 1 - progress,
        "cosine": lambda _, progress: 0.5 * (1 + math.cos(math.pi * progress)),
    }
    if kind not in falls:
        raise RecipeError(f"schedule: {kind!r} is unknown; choose one of {', '.join(falls)}")

    def factor(step: int, gone: float = 0.0) -> float:
        fall = falls[kind](step, _progress(step, warmup, total, gone))
        return min((step + 1) / warmup, fall) if step < warmup else fall

    return factor


def _progress(step: int, warmup: int, total: int, gone: float) -> float:
    """0 to 1; steps count from the end of the warm-up."""
    return min(1.0, max(0.0, gone, (step - warmup) / max(1, total - warmup)))
