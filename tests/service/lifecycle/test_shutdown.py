"""Shutdown: probes and watchers are told, requests in flight are completed, new ones are rejected."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych.signals import SAME_SIGNAL_SECONDS
from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client
from triptych_serving.server import FLUSH_SECONDS

from ...fixtures.toy import MODELS, SOURCE, SOURCES, TARGET, TARGETS
from ...unit.deploy.files import KUBERNETES, document
from ...unit.deploy.test_kubernetes import METRIC
from ..support.in_process import Pace, local_server
from ..support.messages import ask
from ..support.processes import ENDLESS_SECONDS, PATIENCE_SECONDS, ServerProcess, eventually
from ..support.telemetry import Collector, Scrape, fetch

CALLERS, SLOTS = 8, 4
MANY = SOURCES[:240]
SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 16_384), ("grpc.http2.bdp_probe", 0)]
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
TOY = {"model": "toy", "version": "1"}
Events = Iterator[translation_pb2.TranslateStreamResponse]


@contextmanager
def begun_streams(address: str, texts: Sequence[str] = MANY, count: int = 1) -> Iterator[Sequence[Events]]:
    """Start streams that cannot end before they are read: their responses exceed the flow-control window."""
    channels = [grpc.insecure_channel(address, [*SMALL_WINDOW, OWN_CONNECTION]) for _ in range(count)]
    request = translation_pb2.TranslateStreamRequest(contents=texts)
    try:
        begun = [TranslationServiceStub(channel).TranslateStream(request) for channel in channels]
        for events in begun:
            assert next(events).piece.text
        yield begun
    finally:
        for channel in channels:
            channel.close()


def read_all(events: Events) -> list[str]:
    results = [event.result for event in events if event.WhichOneof("event") == "result"]
    texts = {result.content_index: result.translation.translated_text for result in results}
    return [texts[index] for index in range(len(texts))]


def test_a_server_as_deployed_ends_on_sigterm_whoever_holds_connections() -> None:
    """Silent clients of its HTTP port and an absent collector of traces disturb nobody; two signals at once are one."""
    [container] = document(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    with Collector() as gone:
        collector = f"http://{gone.address}"
    with ServerProcess(MODELS, *container["args"], "--drain-delay-secs=0.2", "--otlp-endpoint", collector) as server:
        http = server.metrics_address
        for path in (container["livenessProbe"]["httpGet"]["path"], "/readyz"):
            assert fetch(http, path).status == 200
        assert Scrape(http).value(METRIC.removeprefix("triptych_"), **TOY) == 0  # what the autoscaler reads
        host, _, port = http.rpartition(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(100)]
        with Client(server.address) as client:
            assert [client.translate(SOURCE).text for _ in range(20)] == [TARGET] * 20
        for connection in silent:
            connection.close()

        def is_live() -> bool:
            with suppress(OSError):
                return fetch(http, "/healthz").status == 200
            return False

        eventually(is_live)
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGINT)  # a second SIGTERM could be merged with the first
        assert server.wait() == 0
        assert "draining" in server.log
        assert server.log.count("Transient error") == 1
        with pytest.raises(OSError, match="refused"):
            fetch(http, "/readyz")


def test_a_signal_that_another_thread_receives_stops_an_idle_server() -> None:
    """The kernel chooses the thread; only the main thread's waiting is interrupted."""
    with ServerProcess(MODELS, "--drain-delay-secs", "0") as server:
        threads = {int(entry.name) for entry in Path(f"/proc/{server.pid}/task").iterdir()} - {server.pid}
        os.kill(max(threads), signal.SIGTERM)
        assert server.wait() == 0


def test_a_server_that_drains_is_live_but_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        local_server(MODELS, "--workers", "1", "--slots", str(SLOTS)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        http = server.metrics_address
        assert [fetch(http, path).status for path in ("/healthz", "/readyz")] == [200, 200]
        pace = Pace(monkeypatch)
        pace.slow.set()
        call = TranslationServiceStub(channel).Translate.future(translation_pb2.TranslateRequest(contents=SOURCES[:40]))
        eventually(lambda: Scrape(http).value("num_requests_running", **TOY) == SLOTS)
        assert Scrape(http).value("num_requests_waiting", **TOY) == 40 - SLOTS
        server.signal()
        eventually(lambda: fetch(http, "/readyz").status == 503)
        assert fetch(http, "/healthz").status == 200
        pace.slow.clear()
        assert len(call.result(PATIENCE_SECONDS).translations) == 40


def test_watchers_are_told_of_the_drain_delay_and_a_second_signal_ends_at_once() -> None:
    flags = ("--drain-delay-secs", "1", "--exit-timeout-secs", ENDLESS_SECONDS)
    server = ServerProcess(MODELS, *flags)
    with (
        begun_streams(server.address) as [events],
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
        assert client.translate(SOURCE).text == TARGET  # requests are still accepted
        assert not client.is_ready()
        assert list(first) == []
        assert [response.status for response in second] == [health_pb2.HealthCheckResponse.NOT_SERVING]
        time.sleep(SAME_SIGNAL_SECONDS)
        server.signal()
        assert server.wait() == 1
        assert "exiting at once" in server.log
        assert "Traceback" not in server.log
        with pytest.raises(grpc.RpcError):
            list(events)


def test_the_end_under_full_load_fails_no_call_that_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(monkeypatch)
    pace.slow.set()
    flags = ("--exit-timeout-secs", ENDLESS_SECONDS, "--slots", str(SLOTS))
    with (
        local_server(MODELS, *flags) as server,
        ThreadPoolExecutor(2 * CALLERS) as pool,
        begun_streams(server.address, SOURCES[:64], 2) as begun,
    ):
        callers = [pool.submit(call_until_refused, server.address) for _ in range(CALLERS)]
        eventually(lambda: server.server.calls.count == CALLERS + len(begun))
        server.signal()
        eventually(lambda: f"draining: {CALLERS + len(begun)} requests in flight" in server.log)
        pace.slow.clear()
        readers = [pool.submit(read_all, events) for events in begun]
        assert {caller.result(PATIENCE_SECONDS) for caller in callers} == {grpc.StatusCode.UNAVAILABLE}
        for reader in readers:
            assert reader.result(PATIENCE_SECONDS) == TARGETS[:64]


def call_until_refused(address: str) -> grpc.StatusCode:
    """Make one call after the other: each has the right answer until one is refused, and so are all after it."""
    with grpc.insecure_channel(address) as channel:
        code = grpc.StatusCode.OK
        while code is grpc.StatusCode.OK:
            code = translate(channel)
        assert {translate(channel) for _ in range(5)} == {code}
        return code


def translate(channel: grpc.Channel) -> grpc.StatusCode:
    try:
        response = ask(channel, "Translate", contents=[SOURCE])
    except grpc.RpcError as error:
        return error.code()
    assert response.translations[0].translated_text == TARGET
    return grpc.StatusCode.OK


def test_old_connections_are_closed_between_calls_which_outlive_them_until_the_exit_timeout() -> None:
    flags = ("--grpc-max-connection-age-secs", "0.2", "--drain-delay-secs", "0.2", "--exit-timeout-secs", "0.5")
    with local_server(MODELS, *flags) as server, grpc.insecure_channel(server.address) as channel:
        with begun_streams(server.address) as [events]:
            time.sleep(0.6)
            assert read_all(events) == TARGETS[: len(MANY)]
        closed = threading.Event()
        channel.subscribe(lambda state: closed.set() if state is grpc.ChannelConnectivity.IDLE else None)
        for _ in range(2):
            closed.clear()
            assert translate(channel) is grpc.StatusCode.OK
            assert closed.wait(PATIENCE_SECONDS)
        with begun_streams(server.address) as [events]:
            server.signal()
            eventually(lambda: "drain timed out after 0.5 s" in server.log)
            time.sleep(2 * FLUSH_SECONDS)  # a caller that reads at once may still get everything
            with pytest.raises(grpc.RpcError):
                list(events)
