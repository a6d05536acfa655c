"""Range check: do the activations of a float32 PyTorch model fit into float16?"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from triptych_export.errors import RangeError
from triptych_export.graphs.half import LARGEST

Hook = Callable[[nn.Module, tuple[object, ...], object], None]


@contextmanager
def within_half(model: nn.Module) -> Iterator[None]:
    """Record the largest input and output of every layer that runs in this context.

    Raises:
        RangeError: a number exceeds float16's range; names the first layer where it happened.
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
                f"fp16: activations of {name} reach {largest:,.0f}, float16 allows at most {LARGEST:,.0f}; "
                f"export this model without --precision fp16"
            )


def _largest(value: object) -> float:
    if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
        return 0.0
    numbers = value.detach()
    return float(torch.where(numbers.isfinite(), numbers, 0).abs().max())
