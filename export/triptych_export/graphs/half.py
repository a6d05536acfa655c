"""Conversion of modules to float16, from which CUDA graphs are traced."""

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from triptych_export.errors import RangeError
from triptych_export.graphs.image_stems import PatchStem, PixelStem
from triptych_training.models.transformer import Embedding

LARGEST = torch.finfo(torch.float16).max  # 65,504
Module = TypeVar("Module", bound=nn.Module)


@torch.no_grad()
def halve(module: Module, stays: Callable[[str], bool] | None = None) -> Module:
    """Copy a module in float16; the copy can be traced, but not run.

    Args:
        module: a graph's.
        stays: whether the tensor of a name keeps its type; None: no tensor does.

    Raises:
        RangeError: a weight is beyond what float16 can hold.
    """
    tensors = (*module.parameters(), *module.buffers())
    result = copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    for part in result.modules():
        _prepare(part)
    named = [*result.named_parameters(remove_duplicate=False), *result.named_buffers(remove_duplicate=False)]
    halves: dict[int, Tensor] = {}
    for name, tensor in named:
        if tensor.is_floating_point() and not (stays and stays(name)):
            parent, _, own = name.rpartition(".")
            half = halves[id(tensor)] if id(tensor) in halves else _half(name, tensor)
            halves[id(tensor)] = half
            setattr(result.get_submodule(parent), own, half)
    return result


def _prepare(part: nn.Module) -> None:
    """Scale weights before rounding if their products are scaled later, or if they are very small."""
    if isinstance(part, Embedding) and part.scale != 1.0:
        part.tokens.weight = nn.Parameter(part.tokens.weight * part.scale)  # and a step has a kernel less to run
        part.scale = 1.0
    elif isinstance(part, PatchStem | PixelStem):
        part.shrink_pixels()


def _half(name: str, tensor: Tensor) -> Tensor:
    half = tensor.half()
    if bool((half.isinf() & tensor.isfinite()).any()):
        largest = float(tensor[tensor.isfinite()].abs().max())
        raise RangeError(f"fp16: {name} reaches {largest:,.0f}, beyond float16's largest number, {LARGEST:,.0f}")
    return nn.Parameter(half, requires_grad=False) if isinstance(tensor, nn.Parameter) else half
