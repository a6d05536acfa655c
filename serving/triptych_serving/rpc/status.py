"""Conversion of errors to gRPC status with rich details."""

import logging
import os
from pathlib import Path

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2  # type: ignore[import-untyped]

from triptych_serving.errors import BundleError, InvalidInputError, OverloadedError, ServingError

logger = logging.getLogger(__name__)

REQUEST_ID = "x-request-id"
DETAILS = "grpc-status-details-bin"
MAX_MESSAGE = 1_000  # bytes; it is sent three times, encoded, in trailers of which clients accept 8 KiB
MAX_FIELD = 200  # bytes of a field's name, which may come from the caller
DOMAIN = "triptych"


def public_error(error: BaseException, request_id: str) -> ServingError:
    """Return the error that the caller may see. What it hides is logged: unexpected errors, folders of bundle errors."""
    if isinstance(error, BundleError) and isinstance(error.where, Path):  # such as a graph that was loaded for this call
        logger.error("request %s failed: %s", request_id, error)
        faults = [fault.replace(f"{error.where.parent}{os.sep}", "") for fault in error.faults]
        return type(error)(error.where.name, faults)  # without folders of the server
    if isinstance(error, ServingError):
        return error
    logger.error("request %s failed: %s", request_id, error, exc_info=error)
    return ServingError("internal error; the server's log has the details under this request id")


def status_of(error: ServingError, request_id: str) -> status_pb2.Status:
    """Build google.rpc.Status with ErrorInfo, RequestInfo and, where they apply, BadRequest and RetryInfo."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=_reason(error), domain=DOMAIN),
        error_details_pb2.RequestInfo(request_id=request_id),
    ]
    if isinstance(error, InvalidInputError):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_shorten(error.field, MAX_FIELD), description=_shorten(error.problem)
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, OverloadedError):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(error.retry_after_seconds * 1000))
        details.append(retry)
    status = status_pb2.Status(code=code_pb2.Code.Value(error.status), message=_shorten(str(error)))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _shorten(message: str, limit: int = MAX_MESSAGE) -> str:
    """Return one line of at most `limit` bytes."""
    line = " ".join(message.split())
    cut = line.encode()[:limit].decode(errors="ignore")
    return cut if cut == line else f"{cut}..."


def _reason(error: ServingError) -> str:
    """Convert `InvalidInputError` to `INVALID_INPUT`."""
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"_{letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()
