"""What a replica gives Ray for a message, and for an end that is not a good one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc


@dataclass(frozen=True, slots=True)
class Packed:
    """A response that is bytes already."""

    message: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 Ray calls it, as it does a message's
        """The bytes."""
        return self.message


class Ended:
    """The end of a stream whose context has a status: nothing goes to the caller, but the context's trailers do.

    An exception would end it too, with the status and without the trailers, so without what details there are.
    """

    def SerializeToString(self) -> Any:  # noqa: N802
        """What Ray's proxy takes for the end of a stream, and does not send."""
        from ray.serve._private.proxy_request_response import ResponseStatus  # noqa: PLC0415 of Ray's own, beside its interface

        return ResponseStatus(code=grpc.StatusCode.OK)  # the context's counts more
