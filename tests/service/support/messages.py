"""Calls by the name of their method, images for requests, and errors in responses."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message_factory import GetMessageClass
from google.rpc import status_pb2
from numpy.typing import NDArray
from PIL import Image

from triptych_serving.rpc.descriptors import ALL_SERVICES, DESCRIPTORS

from ...fixtures.encoders import png
from .processes import PATIENCE_SECONDS

METHODS = {method.name: method for name in ALL_SERVICES for method in DESCRIPTORS.FindServiceByName(name).methods}


def ask(
    channel: grpc.Channel,
    method: str,
    metadata: Sequence[tuple[str, str]] = (),
    timeout: float = PATIENCE_SECONDS,
    **fields: Any,
) -> Any:
    """Call a method that takes one message; return its answer, or the list of its answers."""
    found = METHODS[method]
    request, response = (GetMessageClass(kind) for kind in (found.input_type, found.output_type))
    path = f"/{found.containing_service.full_name}/{method}"
    kind = channel.unary_stream if found.server_streaming else channel.unary_unary
    answer = kind(path, request.SerializeToString, response.FromString)(request(**fields), metadata=metadata, timeout=timeout)
    return list(answer) if found.server_streaming else answer


def noise(width: int, height: int, seed: int = 3) -> bytes:
    """Encode an image of random pixels, whose file does not get smaller."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def pixels_of(file: bytes) -> NDArray[np.uint8]:
    """Decode an image, [height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(file)))


RED, GREEN = png((250, 0, 0)), png((0, 250, 0))


def details_of(status: status_pb2.Status, kind: Any) -> Any:
    """Return the only detail of a kind."""
    [packed] = [detail for detail in status.details if detail.Is(kind.DESCRIPTOR)]
    detail = kind()
    packed.Unpack(detail)
    return detail


def failure(call: Callable[[], object]) -> Any:
    """Return the error of a call that must fail."""
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value
