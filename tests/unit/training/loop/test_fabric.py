"""Loss scaling and compilation of layers."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from triptych_training.errors import RecipeError
from triptych_training.loop import fabric
from triptych_training.loop.fabric import LARGEST, LossScale, compile_layers, machine_errors, uncompiled
from triptych_training.models.transformer import Transformer
from triptych_training.tasks.translation import sequence_batch, sequence_loss

from ..toy import make_ids, make_model, make_recipe


def parameters(*gradients: float | None) -> list[nn.Parameter]:
    made = []
    for gradient in gradients:
        parameter = nn.Parameter(torch.zeros(3))
        parameter.grad = None if gradient is None else torch.full((3,), gradient)
        made.append(parameter)
    return made


def test_the_factor_divides_gradients_grows_and_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "GROWTH_STEPS", steps := 20)
    scale, weights = LossScale(8.0), parameters(16.0, None, -4.0)
    assert scale.unscale(weights)
    assert [None if p.grad is None else p.grad.tolist() for p in weights] == [[2.0] * 3, None, [-0.5] * 3]
    assert scale.factor == 8.0
    scale = LossScale(LARGEST / 2)
    factors = []
    for _ in range(2 * steps):
        scale.unscale(parameters(1.0))
        factors.append(scale.factor)
    assert (factors[steps - 2], factors[steps - 1], factors[-1]) == (LARGEST / 2, LARGEST, LARGEST)
    one, other = LossScale(8.0), LossScale()
    for _ in range(steps - 1):
        one.unscale(parameters(1.0))
    other.restore(one.state())
    other.unscale(parameters(1.0))
    assert other.factor == 16.0


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize(("factor", "halved"), [(8.0, 4.0), (1.0, 1.0)])
def test_an_overflow_halves_the_factor_down_to_one(bad: float, factor: float, halved: float) -> None:
    scale = LossScale(factor)
    assert not scale.unscale(parameters(1.0, bad))
    assert scale.factor == halved


def gradients(model: Transformer) -> list[Tensor]:
    """Compute the gradients of two batches of different shapes."""
    for lengths in ((3, 5), (9, 2, 4)):
        ids = [torch.tensor(row) for row in make_ids(*lengths)]
        source = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
        sequence_loss(model, 0.1, *sequence_batch(source, source, model.config)).backward()
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


@pytest.mark.full
def test_uncompiled_bypasses_the_compiler() -> None:
    model = make_model(encoder_layers=1)
    calls: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        calls.append(len(inputs))
        return graph.forward

    for layer in model.encoder.layers:
        layer.compile(backend=backend)
    source = torch.tensor(make_ids(4))
    with torch.inference_mode(), uncompiled(True):
        expected = model.encoder(source, None)
    assert calls == []
    with torch.inference_mode():
        assert torch.allclose(model.encoder(source, None), expected, atol=1e-6)
    assert calls
    torch.compiler.reset()


class InductorError(RuntimeError):
    __module__ = "torch._inductor.exc"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            InductorError("InvalidCxxCompiler: none\n\nSet TORCHDYNAMO_VERBOSE=1"),
            "compile: the layers cannot be compiled on this machine (InvalidCxxCompiler: none); leave it out",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4 GiB."),
            "batch_tokens: a batch does not fit into memory (CUDA out of memory. Tried to allocate 2.00 GiB.); lower it and "
            "raise accumulate, in a new training",
        ),
    ],
)
def test_lack_of_memory_or_of_a_compiler_is_named(error: RuntimeError, message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught, machine_errors(make_recipe(tmp_path)):
        raise error
    assert str(caught.value) == message


def test_memory_of_the_cpu_is_named_and_other_errors_are_not_changed(tmp_path: Path) -> None:
    with (
        pytest.raises(RecipeError, match=r"^batch_tokens: a batch does not fit into memory"),
        machine_errors(make_recipe(tmp_path)),
    ):
        torch.empty(1 << 60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match=r"^another$"), machine_errors(make_recipe(tmp_path)):
        raise RuntimeError("another")
