"""Requests to models of plain tensors."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from triptych.inference import open_inference_pb2 as pb
from triptych_serving.errors import InvalidInputError
from triptych_serving.rpc.active_calls import ModelLeases
from triptych_serving.rpc.call_context import CallContext, Observers, current_call
from triptych_serving.rpc.limits import MessageLimit
from triptych_serving.services.oip.plain_tensors import infer_tensors, inputs_from


class Model:
    name, version, text_inputs = "images", 1, ()

    def __init__(self, leases: ModelLeases) -> None:
        self._leases, self.in_use = leases, False

    def read_images(self, name: str, images: Sequence[bytes]) -> None:
        self.in_use = bool(self._leases._held)
        raise InvalidInputError(name, f"{len(images)} images of no known format")


class Context:
    def time_remaining(self) -> None:
        return None


def test_a_model_is_in_use_while_its_images_are_decoded() -> None:
    leases = ModelLeases()
    model: Any = Model(leases)
    image = pb.ModelInferRequest.InferInputTensor(name="x", datatype="BYTES", shape=[1])
    image.contents.bytes_contents.append(b"a")

    async def infer() -> None:
        current_call.set(CallContext("S", "M", "unary", "id", "ipv4:127.0.0.1:1", {}, leases, Observers()))
        context: Any = Context()
        await infer_tensors(model, pb.ModelInferRequest(model_name="images", inputs=[image]), context, MessageLimit())

    with pytest.raises(InvalidInputError, match="1 images of no known format"):
        asyncio.run(infer())
    assert model.in_use
    assert not leases._held


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
