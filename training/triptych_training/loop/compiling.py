"""torch.compile for the layers of a model.

Layer by layer rather than the whole model: one layer's code serves them all, which is compiled in a fraction of the time, and
weights keep their names.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from triptych_training.models.blocks import EncoderLayer
from triptych_training.models.transformer import DecoderLayer

VARIANTS = 64  # of one layer's code: shapes, and depths that drop otherwise


def compile_layers(model: nn.Module, backend: str = "inductor") -> int:
    """Have every layer of `model` compiled when it is first called; returns how many there are."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    layers = [module for module in model.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
    for layer in layers:
        layer.compile(backend=backend)
    return len(layers)


@contextmanager
def uncompiled() -> Iterator[None]:
    """Layers run as they are written within: a validation has other shapes, and few of them."""
    with torch.compiler.set_stance("force_eager"):
        yield
