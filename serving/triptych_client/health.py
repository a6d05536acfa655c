"""grpc.health.v1, without a dependency on its package.

Its two messages have one field each, number 1: protobuf's own wrappers of a string and an int32 are the same bytes.
"""

import uuid
from typing import TypeAlias

import grpc
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from triptych_client.call import Call
from triptych_client.errors import DeadlineExceededError, UnavailableError
from triptych_client.settings import check_timeout

CHECK = "/grpc.health.v1.Health/Check"
SERVING = 1
TIMEOUT_SECONDS = 5.0

# Failures that are an answer: nobody is there, or nobody answers in time.
NOT_READY = (UnavailableError, DeadlineExceededError)

# Strings: grpc's classes are generic for type checkers only.
CheckMethod: TypeAlias = "grpc.UnaryUnaryMultiCallable[StringValue, Int32Value]"
AsyncCheckMethod: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[StringValue, Int32Value]"


def check_method(channel: grpc.Channel) -> CheckMethod:
    return channel.unary_unary(CHECK, StringValue.SerializeToString, Int32Value.FromString)


def async_check_method(channel: grpc.aio.Channel) -> AsyncCheckMethod:
    return channel.unary_unary(CHECK, StringValue.SerializeToString, Int32Value.FromString)


def is_serving(response: Int32Value) -> bool:
    return response.value == SERVING


def check_call(timeout_seconds: float) -> Call:
    """Without retries: that the server is unavailable is the answer."""
    check_timeout(timeout_seconds)
    return Call(uuid.uuid4().hex, timeout_seconds, retries=0)
