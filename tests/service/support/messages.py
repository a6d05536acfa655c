"""Images for requests, and errors in responses."""

import io
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc import status_pb2
from numpy.typing import NDArray
from PIL import Image


def png(colour: tuple[int, int, int], size: tuple[int, int] = (9, 6)) -> bytes:
    """Encode an image of one colour."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


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
