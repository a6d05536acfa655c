"""Errors on their way out: every failure's status and rich details."""

import logging

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]

from triptych_serving.errors import InvalidInputError, OverloadedError, ServingError

logger = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
DETAILS = "grpc-status-details-bin"
MAX_MESSAGE = 1_000  # bytes; it travels three times, encoded, in trailers of which clients take 8 KiB
MAX_FIELD = 200  # bytes of a field's name, which may be a caller's own
DOMAIN = "triptych"


def public_error(error: BaseException, request_id: str) -> ServingError:
    """What the caller may know of an error; one that nobody foresaw is logged."""
    if isinstance(error, ServingError):
        return error
    logger.error("request %s failed: %s", request_id, error, exc_info=error)
    return ServingError("internal error; the server's log has more under this request id")


def status_of(error: ServingError, request_id: str) -> status_pb2.Status:
    """google.rpc.Status with ErrorInfo, BadRequest, RetryInfo and RequestInfo as they apply."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=_reason(error), domain=DOMAIN),
        error_details_pb2.RequestInfo(request_id=request_id),
    ]
    if isinstance(error, InvalidInputError):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_short(error.field, MAX_FIELD), description=_short(error.problem)
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, OverloadedError):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(error.retry_after_seconds * 1000))
        details.append(retry)
    status = status_pb2.Status(code=code_pb2.Code.Value(error.status), message=_short(str(error)))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _short(message: str, limit: int = MAX_MESSAGE) -> str:
    """One line of at most so many bytes."""
    line = " ".join(message.split())
    cut = line.encode()[:limit].decode(errors="ignore")
    return cut if cut == line else f"{cut}..."


def _reason(error: ServingError) -> str:
    """`InvalidInputError` -> `INVALID_INPUT`."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"_{letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()
