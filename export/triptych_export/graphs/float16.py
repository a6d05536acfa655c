"""float16: conversion of modules for CUDA graphs, and a check that activations fit."""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

from triptych_export.errors import RangeError
from triptych_export.graphs.image_stems import PatchStem, PixelStem
from triptych_training.models.transformer import Embedding

LARGEST = torch.finfo(torch.float16).max  # 65,504
Module = TypeVar("Module", bound=nn.Module)


@torch.no_grad()
def to_float16(module: Module, keep: Callable[[str], bool] | None = None) -> Module:
    """Copy a module in float16, but for tensors whose name is one to `keep`; the copy can be traced, but not run.

    Raises:
        RangeError: a weight exceeds float16's range; names the weight.
    """
    tensors = (*module.parameters(), *module.buffers())
    result = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    for part in result.modules():  # weights are scaled first if their products are scaled later, or if they are very small
        if isinstance(part, Embedding) and part.scale != 1.0:
            part.tokens.weight = nn.Parameter(part.tokens.weight * part.scale)  # saves a kernel in every step
            part.scale = 1.0
        elif isinstance(part, PatchStem | PixelStem):
            part.shrink_pixels()
    named = [*result.named_parameters(remove_duplicate=False), *result.named_buffers(remove_duplicate=False)]
    halves: dict[int, Tensor] = {}
    for name, tensor in named:
        if tensor.is_floating_point() and not (keep and keep(name)):
            parent, _, own = name.rpartition(".")
            if id(tensor) not in halves:
                halves[id(tensor)] = _half(name, tensor)
            setattr(result.get_submodule(parent), own, halves[id(tensor)])
    return result


def _half(name: str, tensor: Tensor) -> Tensor:
    half = tensor.half()
    if bool((half.isinf() & tensor.isfinite()).any()):
        largest = float(tensor[tensor.isfinite()].abs().max())
        raise _range_error(name, largest)
    return nn.Parameter(half, requires_grad=False) if isinstance(tensor, nn.Parameter) else half


@contextmanager
def check_activations(model: nn.Module) -> Iterator[None]:
    """Record the largest input and output of every layer that runs in this context, and check them on leaving it.

    Raises:
        RangeError: a number exceeds float16's range; names the first layer where it happened.
    """
    reached: dict[str, float] = {}  # in the order in which the layers run

    def watch(name: str) -> Callable[[nn.Module, tuple[object, ...], object], None]:
        def hook(_module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
            reached[name] = max(reached.get(name, 0.0), *map(_largest, (*inputs, output)))

        return hook

    leaves = [(name, module) for name, module in model.named_modules() if next(module.children(), None) is None]
    with ExitStack() as hooks:
        for name, module in leaves:
            hooks.enter_context(module.register_forward_hook(watch(name)))
        yield
    for name, largest in reached.items():
        if largest > LARGEST:
            raise _range_error(f"activations of {name}", largest)


def _range_error(name: str, largest: float) -> RangeError:
    return RangeError(
        f"fp16: {name}: {largest:,.0f} exceeds float16's largest number, {LARGEST:,.0f}; "
        f"export this model without --precision fp16"
    )


def _largest(value: object) -> float:
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
        return 0.0
    numbers = value.detach()
    return float(torch.where(numbers.isfinite(), numbers, 0).abs().max())
