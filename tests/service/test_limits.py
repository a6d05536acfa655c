"""Limits of message sizes, calls per client and queued requests."""

import grpc
import pytest

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client, ResourceExhaustedError

from ..fixtures.toy import MODELS, SOURCE, SOURCES, TARGET
from .support.in_process import Pace, local_server
from .support.messages import ask, failure

LIMIT_BYTES = 2_000
MANY = SOURCES[:40]


def test_oversized_messages_and_too_many_calls_are_rejected(pace: Pace) -> None:
    flags = ("--max-message-bytes", str(LIMIT_BYTES), "--max-requests-per-client", "2")
    unlimited = [("grpc.max_receive_message_length", -1)]
    with (
        local_server(MODELS, *flags) as server,
        grpc.insecure_channel(server.address, unlimited) as channel,
        Client(server.address, retries=0) as client,
    ):
        with pytest.raises(ResourceExhaustedError, match=r"at most 2,000 are accepted .*raise the server's message") as error:
            client.translate("a" * LIMIT_BYTES)
        assert error.value.retry_delay_seconds is None  # a retry does not help
        response = failure(lambda: ask(channel, "Translate", contents=MANY))
        assert response.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert response.details().startswith("response would have ")

        pace.slow.set()
        stub = TranslationServiceStub(channel)
        streams = [stub.TranslateStream(translation_pb2.TranslateStreamRequest(contents=MANY)) for _ in range(2)]
        for events in streams:
            next(events)
        message = r"client 127.0.0.1 has 2 calls in progress, at most 2 are allowed \(--max-requests-per-client\)"
        with pytest.raises(ResourceExhaustedError, match=message) as error:
            client.translate(SOURCE)
        assert error.value.retry_delay_seconds
        assert client.is_ready()
        pace.slow.clear()
        for events in streams:
            assert sum(event.WhichOneof("event") == "result" for event in events) == len(MANY)
        assert client.translate(SOURCE).text == TARGET
