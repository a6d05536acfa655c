"""Conversion of a failed gRPC call to an exception of `triptych_client.errors`."""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from triptych_client import errors
from triptych_client.errors import FieldViolation, ServerError, TriptychClientError, UnavailableError

ERRORS: dict[grpc.StatusCode, type[TriptychClientError]] = {
    **dict.fromkeys(grpc.StatusCode, ServerError),  # of all others; a call that failed with OK is a faulty server
    grpc.StatusCode.CANCELLED: errors.CallCancelledError,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgumentError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceededError,
    grpc.StatusCode.NOT_FOUND: errors.NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: errors.FailedPreconditionError,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDeniedError,
    grpc.StatusCode.UNAUTHENTICATED: errors.UnauthenticatedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhaustedError,
    grpc.StatusCode.FAILED_PRECONDITION: errors.FailedPreconditionError,
    grpc.StatusCode.UNIMPLEMENTED: errors.UnimplementedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.OUT_OF_RANGE: errors.InvalidArgumentError,
}
CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
DETAILS_KEY = "grpc-status-details-bin"

# gRPC's core rejects large messages before either side's code runs, and its message names no setting.
SIZE_LIMIT = re.compile(r"(?P<side>CLIENT|SERVER): (?:Received|Sent) message larger than max")
SIZE_HINTS = {
    "CLIENT": "raise `max_message_bytes` of the client, lower `texts_per_call`, or send smaller images",
    "SERVER": "raise the server's message size limit, lower `texts_per_call` of the client, or send smaller images",
}

# gRPC reports TLS problems in its message alone. Part of that message -> remedy:
UNTRUSTED = "no trusted authority has signed the server's certificate: see `tls_credentials(ca=...)`, or --tls-ca"
TLS_HINTS = {
    "unable to get local issuer certificate": UNTRUSTED,
    "self signed certificate": UNTRUSTED,
    "Hostname Verification Check failed": "the server's certificate does not have the host name, or IP address, of `address`",
    "WRONG_VERSION_NUMBER": "the server does not speak TLS",
}
CLOSED = ("failed to connect to all addresses", "Socket closed")
CLOSED_HINT = (
    "if the server is running, it requires TLS or a trusted client certificate: see `tls_credentials`, or --tls, --tls-ca and "
    "--tls-client-cert"
)
LASTING_TLS_FAILURES = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification Check failed", "WRONG_VERSION_NUMBER")

# Indices of texts and images in the server's messages count from the start of the request.
INPUT_INDEX = re.compile(r"\b(?P<field>contents|prompts|target_prefix|pairs|inputs|images)\[(?P<index>\d+)\]")

# grpc.aio's message if the server ends a call while something is being sent.
LOST_STATUS = "Internal error from Core"

# gRPC's message if a server that is closing resets a call, of which its methods learn nothing: it sends no metadata either.
RESET = re.compile(r"^CANCELLED$|RST_STREAM")


def error_of(call: grpc.RpcError, request_id: str, first_input: int = 0) -> TriptychClientError:
    """Convert a failed call to an exception with the call as its cause.

    Args:
        first_input: Index of the request's first input among the user's inputs.
    """
    code, message = call.code(), call.details() or "no details"
    if code is grpc.StatusCode.CANCELLED and not call.trailing_metadata() and RESET.search(message):
        code, message = grpc.StatusCode.UNAVAILABLE, "the server closed the connection before it took the call"
    error = build_error(code, message, details_of(call), request_id, first_input)
    error.__cause__ = call
    return error


def error_of_async_stream(call: grpc.RpcError, request_id: str) -> TriptychClientError:
    """Convert a failed stream of grpc.aio, which loses the server's status if the stream ends during sending."""
    error = error_of(call, request_id)
    if isinstance(error, ServerError) and error.message == LOST_STATUS:
        return UnavailableError("the call ended while the client was sending", code="UNAVAILABLE", request_id=request_id)
    return error


def error_of_status(status: status_pb2.Status, request_id: str) -> TriptychClientError:
    """Convert the status of one input of a stream that continues."""
    details = Details()
    with contextlib.suppress(DecodeError):
        for packed in status.details:
            details.read(packed)
    code = CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return build_error(code, status.message or "no details", details, request_id)


def build_error(
    code: grpc.StatusCode, message: str, details: "Details", request_id: str, first_input: int = 0
) -> TriptychClientError:
    """Make the exception for a status."""
    message = shift_indices(message, first_input)
    return ERRORS[code](
        message + remedy_for(message),
        code=code.name,
        request_id=request_id,
        reason=details.reason,
        violations=tuple(
            FieldViolation(shift_indices(violation.field, first_input), violation.description)
            for violation in details.violations
        ),
        retry_delay_seconds=details.retry_delay_seconds,
    )


def broken_contract(message: str, request_id: str) -> ServerError:
    """Make the exception for a server that violates the contract."""
    return ServerError(message, code="INTERNAL", request_id=request_id)


def shift_indices(message: str, first_input: int) -> str:
    """Replace indices of the request by those of the user's list: `contents[2]` by `contents[66]` after 64 other texts."""
    return INPUT_INDEX.sub(lambda match: f"{match['field']}[{int(match['index']) + first_input}]", message)


def remedy_for(message: str) -> str:
    """Return the remedy, after "; ", for messages of gRPC that name none."""
    if limit := SIZE_LIMIT.search(message):
        return f"; {SIZE_HINTS[limit['side']]}"
    if all(part in message for part in CLOSED):
        return f"; {CLOSED_HINT}"
    return "".join(f"; {hint}" for part, hint in TLS_HINTS.items() if part in message)


@dataclass(slots=True)
class Details:
    """The google.rpc details of a status that the client uses."""

    reason: str = ""
    violations: tuple[FieldViolation, ...] = ()
    retry_delay_seconds: float | None = None

    def read(self, packed: Packed) -> None:
        """Take over one detail; unknown types are ignored."""
        if packed.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            violations = error_details_pb2.BadRequest.FromString(packed.value).field_violations
            self.violations = tuple(FieldViolation(violation.field, violation.description) for violation in violations)
        elif packed.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            delay = error_details_pb2.RetryInfo.FromString(packed.value).retry_delay
            self.retry_delay_seconds = delay.seconds + delay.nanos / 1e9
        elif packed.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            self.reason = error_details_pb2.ErrorInfo.FromString(packed.value).reason


def details_of(call: grpc.RpcError) -> Details:
    """Read the details in the trailing metadata of a failed call."""
    details = Details()
    trailers = cast(Iterable[tuple[str, bytes]], call.trailing_metadata() or ())
    # Details that cannot be decoded must not hide the error that they belong to.
    with contextlib.suppress(DecodeError):
        for key, value in trailers:
            if key == DETAILS_KEY:
                for packed in status_pb2.Status.FromString(value).details:
                    details.read(packed)
    return details
