"""Compilation of layers."""

import pytest
import torch
from torch import Tensor

from triptych_training.loop.fabric import compile_layers, uncompiled
from triptych_training.models.transformer import Transformer
from triptych_training.tasks.translation import SequenceLoss

from ..toy import make_ids, make_model


def gradients(model: Transformer) -> list[Tensor]:
    """Compute the gradients of two batches of different shapes."""
    for lengths in ((3, 5), (9, 2, 4)):
        ids = [torch.tensor(row) for row in make_ids(*lengths)]
        source = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        SequenceLoss(model, 0.1)(source, source, source).backward()
    found = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None for gradient in found)
    return [gradient for gradient in found if gradient is not None]


@pytest.mark.full
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_layers_have_the_same_gradients_and_names(backend: str) -> None:
    plain, compiled = make_model(), make_model()
    assert compile_layers(compiled, backend) == 4
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    for expected, gradient in zip(gradients(plain), gradients(compiled), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)
    torch.compiler.reset()


def test_uncompiled_bypasses_the_compiler() -> None:
    model = make_model()
    calls: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        calls.append(len(inputs))
        return graph.forward

    for layer in model.encoder.layers:
        layer.compile(backend=backend)
    source = torch.tensor(make_ids(4))
    with torch.inference_mode(), uncompiled():
        expected = model.encoder(source, None)
    assert calls == []
    with torch.inference_mode():
        assert torch.allclose(model.encoder(source, None), expected, atol=1e-6)
    assert calls
    torch.compiler.reset()
