"""Limits of message sizes, calls per client and queued requests."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client, ResourceExhaustedError

from ..fixtures.toy import MODELS, SOURCE, SOURCES, TARGET
from .support.in_process import Pace, local_server
from .support.processes import PATIENCE_SECONDS

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
LIMIT_BYTES = 2_000
MANY = SOURCES[:40]


def refusal(call: Callable[[], object]) -> tuple[str, float | None]:
    """Return the message of a rejected call, and the retry delay in seconds."""
    with pytest.raises(grpc.RpcError) as raised:
        call()
    error: Any = raised.value
    assert error.code() is EXHAUSTED, error
    return error.details(), delay_of(error)


def delay_of(error: Any) -> float | None:
    trailers = dict(error.trailing_metadata())
    retry = error_details_pb2.RetryInfo()
    for detail in status_pb2.Status.FromString(trailers["grpc-status-details-bin"]).details:
        if detail.Unpack(retry):
            return float(retry.retry_delay.ToMilliseconds() / 1_000)
    return None


def request(*texts: str) -> translation_pb2.TranslateRequest:
    return translation_pb2.TranslateRequest(contents=texts or [SOURCE])


def test_oversized_messages_and_too_many_calls_are_rejected(pace: Pace) -> None:
    flags = ("--max-message-bytes", str(LIMIT_BYTES), "--max-requests-per-client", "2")
    unlimited = [("grpc.max_receive_message_length", -1)]
    with local_server(MODELS, *flags) as server, grpc.insecure_channel(server.address, unlimited) as channel:
        stub = TranslationServiceStub(channel)
        message, delay = refusal(lambda: stub.Translate(request("a" * LIMIT_BYTES)))
        assert message.startswith(f"request has {request('a' * LIMIT_BYTES).ByteSize():,} bytes")
        assert "at most 2,000 are accepted (--max-message-bytes)" in message
        assert delay is None  # a retry does not help
        with (
            Client(server.address) as client,
            pytest.raises(ResourceExhaustedError, match="raise the server's message size limit"),
        ):
            client.translate("a" * LIMIT_BYTES)

        assert request(*MANY).ByteSize() < LIMIT_BYTES
        message, delay = refusal(lambda: stub.Translate(request(*MANY)))
        assert message.startswith("response would have ")
        assert "(--max-message-bytes)" in message
        assert delay is None

        pace.slow.set()
        streams = [stub.TranslateStream(translation_pb2.TranslateStreamRequest(contents=MANY)) for _ in range(2)]
        for events in streams:
            next(events)
        message, delay = refusal(lambda: stub.Translate(request()))
        assert message == "client 127.0.0.1 has 2 calls in progress, at most 2 are allowed (--max-requests-per-client)"
        assert delay
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        pace.slow.clear()
        for events in streams:
            assert sum(event.WhichOneof("event") == "result" for event in events) == len(MANY)
        assert stub.Translate(request(), timeout=PATIENCE_SECONDS).translations[0].translated_text == TARGET
