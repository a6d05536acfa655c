"""Do a model's activations fit into float16? Looked up in PyTorch, where they are float32."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from triptych_export.errors import RangeError
from triptych_export.graphs.half import LARGEST

Hook = Callable[[nn.Module, tuple[object, ...], object], None]


@contextmanager
def within_half(model: nn.Module) -> Iterator[None]:
    """Watch what goes into and comes out of every layer that runs in the meantime.

    Raises:
        RangeError: a number is beyond what float16 can hold; names the first layer that had one.
    """
    reached: dict[str, float] = {}  # in the order in which the layers run

    def watch(name: str) -> Hook:
        def hook(_module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
            reached[name] = max(reached.get(name, 0.0), *map(_largest, (*inputs, output)))

        return hook

    leaves = [(name, module) for name, module in model.named_modules() if next(module.children(), None) is None]
    handles = [module.register_forward_hook(watch(name)) for name, module in leaves]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for name, largest in reached.items():
        if largest > LARGEST:
            raise RangeError(
                f"fp16: activations of {name} reach {largest:,.0f}, beyond float16's largest number, {LARGEST:,.0f}; "
                f"this model cannot run in fp16"
            )


def _largest(value: object) -> float:
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
        return 0.0
    numbers = value.detach()
    return float(torch.where(numbers.isfinite(), numbers, 0).abs().max())
