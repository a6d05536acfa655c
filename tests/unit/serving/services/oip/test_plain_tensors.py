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
from triptych_serving.services.oip.plain_tensors import infer_tensors


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
