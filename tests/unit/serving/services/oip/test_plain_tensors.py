"""Requests to models of plain tensors."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.rpc.active_calls import ModelLeases
from triptych_serving.rpc.call_context import CallContext, Observers, current_call
from triptych_serving.rpc.limits import MessageLimit
from triptych_serving.services.oip import plain_tensors
from triptych_serving.services.oip.plain_tensors import infer_tensors, inputs_from


class Model:
    name, version, text_inputs = "images", 1, ()

    def __init__(self, leases: ModelLeases) -> None:
        self.leases, self.in_use = leases, False

    def read_images(self, name: str, images: Sequence[bytes]) -> None:
        self.in_use = bool(self.leases._held)
        raise InvalidInputError(name, f"{len(images)} images of no known format")


class Context:
    def time_remaining(self) -> None:
        return None


def infer(model: Any, tensor: pb.ModelInferRequest.InferInputTensor) -> None:
    async def run() -> None:
        current_call.set(CallContext("S", "M", "unary", "id", "ipv4:127.0.0.1:1", {}, model.leases, Observers()))
        context: Any = Context()
        await infer_tensors(model, pb.ModelInferRequest(model_name=model.name, inputs=[tensor]), context, MessageLimit())

    asyncio.run(run())


def test_a_model_is_in_use_while_its_images_are_decoded() -> None:
    leases = ModelLeases()
    model = Model(leases)
    image = pb.ModelInferRequest.InferInputTensor(name="x", datatype="BYTES", shape=[1])
    image.contents.bytes_contents.append(b"a")
    with pytest.raises(InvalidInputError, match="1 images of no known format"):
        infer(model, image)
    assert model.in_use
    assert not leases._held


def test_values_are_converted_a_few_at_a_time_and_many_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    class Sums(Model):
        def prepare(self, inputs: Mapping[str, Any], outputs: Sequence[str]) -> None:
            raise InvalidInputError("x", f"the sum is {inputs['x'].sum():g}")

    def own_values(tensor: Any, count: int) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return plain_tensors_own_values(tensor, count)

    plain_tensors_own_values = plain_tensors.own_values
    monkeypatch.setattr(plain_tensors, "own_values", own_values)
    monkeypatch.setattr(plain_tensors, "VALUES_AT_ONCE", 1_000)
    for count in (2_500, 300_000):
        tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[count])
        tensor.contents.fp32_contents.extend([0.5] * count)
        with pytest.raises(InvalidInputError, match=f"the sum is {count / 2:g}$"):
            infer(Sums(ModelLeases()), tensor)
    assert threads == [True, False]


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        ([2**63 - 1] * 5_000, "its shape has 5,000 dimensions, must have at most 64"),
        ([-2, -3], r"shape \[-2, -3\] has a negative size"),
    ],
)
def test_shapes_that_no_tensor_has_are_rejected(datatype: str, raw: bool, shape: Sequence[int], problem: str) -> None:
    """The product of thousands of sizes would take minutes, and is too long for a message."""
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=shape)
    request = pb.ModelInferRequest(inputs=[tensor], raw_input_contents=[b""] if raw else [])
    with pytest.raises(InvalidInputError, match=f"x: {problem}"):
        inputs_from(request, ("x",))
