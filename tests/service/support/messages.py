"""Images for requests, and details of error responses."""

import io
from typing import Any

from google.rpc import status_pb2
from PIL import Image


def png(colour: tuple[int, int, int], size: tuple[int, int] = (9, 6)) -> bytes:
    """Encode an image of one colour."""
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


RED, GREEN = png((250, 0, 0)), png((0, 250, 0))


def details_of(status: status_pb2.Status, kind: Any) -> Any:
    """Return the only detail of a kind."""
    [packed] = [detail for detail in status.details if detail.Is(kind.DESCRIPTOR)]
    detail = kind()
    packed.Unpack(detail)
    return detail
