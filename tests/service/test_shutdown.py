"""Stopping: what runs is answered, what comes is refused."""

import re
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
from triptych_client import Client, UnavailableError

from ..fixtures.toy import MODELS, SOURCE, SOURCES, TARGETS
from .processes import PATIENCE_SECONDS, ServerProcess

STOPPING = re.compile("stopping: drain delay")
ENDLESS_SECONDS = "3600"  # a drain that waits for its time-out fails the test
REPEATS = 2
SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 16_384), ("grpc.http2.bdp_probe", 0)]
Events = Iterator[translation_pb2.TranslateStreamResponse]


@contextmanager
def busy_server(address: str) -> Iterator[Events]:
    """A stream that has begun. It is not at its end before it is read: its answers are more than fits on the way."""
    with grpc.insecure_channel(address, SMALL_WINDOW) as channel:
        request = translation_pb2.TranslateStreamRequest(contents=SOURCES * REPEATS)
        events = TranslationServiceStub(channel).TranslateStream(request)
        assert next(events).piece.text
        yield events


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_answered_and_what_comes_is_refused(number: int) -> None:
    with ServerProcess(MODELS, "--exit-timeout-secs", ENDLESS_SECONDS) as server, busy_server(server.address) as events:
        server.signal(number)
        server.wait_for_log(STOPPING)
        with Client(server.address, retries=0) as client:
            with pytest.raises(UnavailableError):
                client.translate(SOURCE)
            assert not client.is_ready()

        results = [event.result for event in events if event.WhichOneof("event") == "result"]
        texts = {result.content_index: result.translation.translated_text for result in results}
        assert [texts[index] for index in range(len(texts))] == TARGETS * REPEATS
        assert server.wait() == 0


def test_a_second_signal_ends_at_once() -> None:
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


def test_what_is_not_done_in_time_is_given_up() -> None:
    with ServerProcess(MODELS, "--exit-timeout-secs", "0.1") as server, busy_server(server.address) as events:
        server.signal()
        assert server.wait() == 0
        with pytest.raises(grpc.RpcError):
            list(events)


def test_watchers_of_health_hear_of_the_end_and_do_not_hold_it_up() -> None:
    with (
        ServerProcess(MODELS, "--exit-timeout-secs", ENDLESS_SECONDS) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        gone, first, second = (stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(3))
        for watch in (gone, first, second):
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        gone.cancel()
        server.signal()
        for watch in (first, second):
            assert [response.status for response in watch] == [health_pb2.HealthCheckResponse.NOT_SERVING]
        assert server.wait() == 0


def test_an_idle_server_stops_with_clients_connected() -> None:
    with ServerProcess(MODELS, "--exit-timeout-secs", ENDLESS_SECONDS) as server, Client(server.address) as client:
        assert client.is_ready()
        server.signal()
        assert server.wait() == 0
        assert not client.is_ready()


def test_before_the_drain_requests_are_taken_for_a_while() -> None:
    with (
        ServerProcess(MODELS, "--drain-delay-secs", "2", "--exit-timeout-secs", ENDLESS_SECONDS) as server,
        Client(server.address, retries=0) as client,
        grpc.insecure_channel(server.address) as channel,
    ):
        states = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(states).status == health_pb2.HealthCheckResponse.SERVING
        server.signal()
        assert next(states).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert client.translate(SOURCE).text == TARGETS[SOURCES.index(SOURCE)]
        assert not client.is_ready()
        assert server.wait() == 0


def test_who_does_not_go_away_is_cut_off_when_the_time_is_over() -> None:
    options = ("--drain-delay-secs", "0.5", "--exit-timeout-secs", "1")
    with ServerProcess(MODELS, *options) as server, busy_server(server.address) as events:
        server.signal()
        assert server.wait() == 0
        assert "drain timed out after 1 s" in server.log
        with pytest.raises(grpc.RpcError):
            list(events)


def test_old_connections_are_closed_between_calls() -> None:
    options = ("--grpc-max-connection-age-secs", "0.3")
    with ServerProcess(MODELS, *options) as server, grpc.insecure_channel(server.address) as channel:
        closed = threading.Event()
        channel.subscribe(lambda state: closed.set() if state is grpc.ChannelConnectivity.IDLE else None)
        stub = TranslationServiceStub(channel)
        for round_trip in range(2):
            closed.clear()
            assert stub.Translate(translation_pb2.TranslateRequest(contents=[SOURCE])).translations, round_trip
            assert closed.wait(PATIENCE_SECONDS)


def test_a_call_outlives_its_connections_age() -> None:
    options = ("--grpc-max-connection-age-secs", "0.1")
    with ServerProcess(MODELS, *options) as server, busy_server(server.address) as events:
        time.sleep(0.5)
        results = [event for event in events if event.WhichOneof("event") == "result"]
        assert len(results) == len(SOURCES * REPEATS)
