"""From a failed gRPC call to the client's exception."""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from triptych_client.errors import (
    CallCancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    FieldViolation,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    ServerError,
    TriptychClientError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from triptych_client.tls_faults import tls_hint

ERRORS: dict[grpc.StatusCode, type[TriptychClientError]] = {
    grpc.StatusCode.OK: ServerError,  # a call that failed with OK is a broken server
    grpc.StatusCode.CANCELLED: CallCancelledError,
    grpc.StatusCode.UNKNOWN: ServerError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: FailedPreconditionError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.ABORTED: ServerError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.INTERNAL: ServerError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DATA_LOSS: ServerError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgumentError,
}

DETAILS_KEY = "grpc-status-details-bin"

# gRPC's core refuses large messages before either side's code runs, and its text names no setting.
SIZE_LIMIT = re.compile(r"(?P<side>CLIENT|SERVER): (?:Received|Sent) message larger than max")
SIZE_HINTS = {
    "CLIENT": "raise `max_message_bytes` of the client, lower `texts_per_call`, or send smaller images",
    "SERVER": "raise the server's message size limit, lower `texts_per_call` of the client, or send smaller images",
}


# What the server says of a text or an image, it says of its place in the request.
INPUT_INDEX = re.compile(r"\b(?P<field>contents|target_prefix|pairs|inputs|images)\[(?P<index>\d+)\]")

CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def error_of(call: grpc.RpcError, request_id: str, first_input: int = 0) -> TriptychClientError:
    """The exception for a failed call, the call as its cause.

    `first_input` is the place, among the texts or images that the user gave, of the request's first one.
    """
    error = build_error(call.code(), call.details() or "no details", details_of(call), request_id, first_input)
    error.__cause__ = call
    return error


def error_of_status(status: status_pb2.Status, request_id: str) -> TriptychClientError:
    """The exception for one input of a stream that goes on."""
    details = Details()
    with contextlib.suppress(DecodeError):
        for packed in status.details:
            details.read(packed)
    code = CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return build_error(code, status.message or "no details", details, request_id)


def build_error(
    code: grpc.StatusCode, message: str, details: "Details", request_id: str, first_input: int = 0
) -> TriptychClientError:
    message = shift_indices(message, first_input)
    return ERRORS[code](
        message + size_hint(message) + tls_hint(message),
        code=code.name,
        request_id=request_id,
        reason=details.reason,
        violations=tuple(
            FieldViolation(shift_indices(fault.field, first_input), fault.description) for fault in details.violations
        ),
        retry_delay_seconds=details.retry_delay_seconds,
    )


def size_hint(message: str) -> str:
    """What to change, where gRPC itself refused a message for its size; else nothing."""
    limit = SIZE_LIMIT.search(message)
    return f"; {SIZE_HINTS[limit['side']]}" if limit else ""


def shift_indices(message: str, first_input: int) -> str:
    """`contents[2]` of a request is `contents[66]` of the user's where 64 texts came before."""
    return INPUT_INDEX.sub(lambda match: f"{match['field']}[{int(match['index']) + first_input}]", message)


@dataclass(slots=True)
class Details:
    """What the client reads of a status' google.rpc details."""

    reason: str = ""
    violations: tuple[FieldViolation, ...] = ()
    retry_delay_seconds: float | None = None

    def read(self, packed: Packed) -> None:
        """Take over one detail; kinds that are not known are left alone."""
        if packed.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            faults = error_details_pb2.BadRequest.FromString(packed.value).field_violations
            self.violations = tuple(FieldViolation(fault.field, fault.description) for fault in faults)
        elif packed.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            delay = error_details_pb2.RetryInfo.FromString(packed.value).retry_delay
            self.retry_delay_seconds = delay.seconds + delay.nanos / 1e9
        elif packed.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            self.reason = error_details_pb2.ErrorInfo.FromString(packed.value).reason


def details_of(call: grpc.RpcError) -> Details:
    """The details of a failed call."""
    details = Details()
    trailers = cast(Iterable[tuple[str, bytes]], call.trailing_metadata() or ())
    # Details that cannot be decoded must not hide the error that they belong to.
    with contextlib.suppress(DecodeError):
        for key, value in trailers:
            if key == DETAILS_KEY:
                for packed in status_pb2.Status.FromString(value).details:
                    details.read(packed)
    return details
