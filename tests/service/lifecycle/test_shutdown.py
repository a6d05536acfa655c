"""Shutdown: requests in flight are completed, new ones are rejected."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client

from ...fixtures.toy import MODELS, SOURCE, SOURCES, TARGETS
from ..support.processes import ENDLESS_SECONDS, PATIENCE_SECONDS, STOPPING, ServerProcess

REPEATS = 2
SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 16_384), ("grpc.http2.bdp_probe", 0)]
Events = Iterator[translation_pb2.TranslateStreamResponse]


@contextmanager
def busy_server(address: str) -> Iterator[Events]:
    """Start a stream that cannot end before it is read: its responses exceed the flow-control window."""
    with grpc.insecure_channel(address, SMALL_WINDOW) as channel:
        request = translation_pb2.TranslateStreamRequest(contents=SOURCES * REPEATS)
        events = TranslationServiceStub(channel).TranslateStream(request)
        assert next(events).piece.text
        yield events


def test_second_signal_ends_at_once() -> None:
    server = ServerProcess(MODELS, "--exit-timeout-secs", ENDLESS_SECONDS)
    with busy_server(server.address) as events:
        server.signal()
        server.wait_for_log(STOPPING)
        server.signal()
        assert server.wait() == 1
        assert "exiting at once" in server.log
        assert "Traceback" not in server.log
        with pytest.raises(grpc.RpcError):
            list(events)


def test_watchers_are_told_of_the_drain_delay_in_which_requests_are_accepted() -> None:
    with (
        ServerProcess(MODELS, "--drain-delay-secs", "1", "--exit-timeout-secs", ENDLESS_SECONDS) as server,
        Client(server.address, retries=0) as client,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        gone, first, second = (stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(3))
        for watch in (gone, first, second):
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        gone.cancel()
        server.signal(signal.SIGINT)
        assert next(first).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert client.translate(SOURCE).text == TARGETS[SOURCES.index(SOURCE)]
        assert not client.is_ready()
        assert list(first) == []
        assert [response.status for response in second] == [health_pb2.HealthCheckResponse.NOT_SERVING]
        assert server.wait() == 0


def test_old_connections_are_closed_between_calls_which_outlive_them_until_the_exit_timeout() -> None:
    options = ("--grpc-max-connection-age-secs", "0.2", "--drain-delay-secs", "0.2", "--exit-timeout-secs", "0.5")
    with ServerProcess(MODELS, *options) as server, grpc.insecure_channel(server.address) as channel:
        with busy_server(server.address) as events:
            time.sleep(0.6)
            results = [event for event in events if event.WhichOneof("event") == "result"]
            assert len(results) == len(SOURCES * REPEATS)
        closed = threading.Event()
        channel.subscribe(lambda state: closed.set() if state is grpc.ChannelConnectivity.IDLE else None)
        stub = TranslationServiceStub(channel)
        for round_trip in range(2):
            closed.clear()
            assert stub.Translate(translation_pb2.TranslateRequest(contents=[SOURCE])).translations, round_trip
            assert closed.wait(PATIENCE_SECONDS)
        with busy_server(server.address) as events:
            server.signal()
            assert server.wait() == 0
            assert "drain timed out after 0.5 s" in server.log
            with pytest.raises(grpc.RpcError):
                list(events)
