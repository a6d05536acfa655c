"""What a server uses and counts, seen from outside."""

import asyncio
import http.server
import os
import socketserver
import threading
from collections.abc import Iterator

import pytest

from triptych_bench.measure.steady import Span
from triptych_bench.server.resources import (
    CounterSource,
    MetricsMeter,
    ProcessMeter,
    ResourceMonitor,
    ResourceSample,
    around,
    counters_of,
    parse_metrics,
)
from triptych_bench.target import Counters, TargetError

from ..fakes import FakeTarget

PAGE = r"""# HELP process_cpu_seconds_total CPU
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
process_resident_memory_bytes 1.048576e+06
triptych_e2e_request_latency_seconds_count{method="triptych.v1.T/Translate",model="en-de",version="1"} 10
triptych_e2e_request_latency_seconds_sum{method="triptych.v1.T/Translate",model="en-de",version="1"} 2.5
triptych_e2e_request_latency_seconds_count{method="triptych.v1.T/Translate",model="other",version="1"} 7
triptych_request_queue_time_seconds_sum{model="en-de",version="1"} 0.5 1700000000000
triptych_cache_hits_total{model="en-de",version="1"} 4
triptych_request_prefill_time_seconds_sum{model="en-de",version="1"} 0.25
triptych_request_decode_time_seconds_sum{model="en-de",version="1"} 1.25
odd{label="with } and \" in it"} NaN
no number
"""


def test_a_page_is_read() -> None:
    page = parse_metrics(PAGE)
    assert {metric.name for metric in page} >= {"process_cpu_seconds_total", "triptych_request_queue_time_seconds_sum"}
    assert [metric.value for metric in page if metric.name == "process_resident_memory_bytes"] == [1_048_576.0]
    assert not [metric for metric in page if metric.name in ("odd", "no")]


def test_counters_are_of_the_model() -> None:
    counters = counters_of(parse_metrics(PAGE), "en-de")
    seconds = {"total": 2.5, "queue": 0.5, "preprocess": 0, "compute": 1.5, "postprocess": 0}
    assert counters == {"requests": 10, "cached": 4, **seconds}
    everything = counters_of(parse_metrics(PAGE), "")
    assert everything is not None
    assert everything["requests"] == 17
    assert counters_of(parse_metrics("process_cpu_seconds_total 1"), "") is None


def test_a_span_is_what_lies_between_the_looks_around_it() -> None:
    looks = [ResourceSample(float(moment), 2.0 * moment, 100 * moment) for moment in range(6)]
    assert [sample.moment for sample in around(looks, Span(1.5, 3.5))] == [1.0, 2.0, 3.0, 4.0]
    assert [sample.moment for sample in around(looks, Span(-1.0, 9.0))] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


class Growing:
    """Two CPU seconds a sample."""

    source = "nothing"
    seconds = 0.001

    def __init__(self) -> None:
        self.looks = 0

    async def sample(self) -> ResourceSample | None:
        self.looks += 1
        return None if self.looks == 2 else ResourceSample(float(self.looks), 2.0 * self.looks, self.looks)


def test_a_watch_gives_cores_and_most_memory() -> None:
    async def check() -> None:
        meter = Growing()
        watch = ResourceMonitor(meter)
        await watch.start()
        while meter.looks < 6:
            await asyncio.sleep(0.001)
        await watch.stop()
        used = watch.used(Span(3.0, 5.0))
        assert used is not None
        assert (used.source, used.cpu_cores, used.memory_bytes) == ("nothing", 2.0, 5)
        looks = meter.looks
        await asyncio.sleep(0.01)
        assert meter.looks == looks  # it has stopped

    asyncio.run(check())


def test_this_process_uses_something() -> None:
    sample = asyncio.run(ProcessMeter(os.getpid()).sample())
    assert sample is not None
    assert sample.cpu is not None
    assert sample.cpu > 0
    assert (sample.memory or 0) > 1 << 20


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(TargetError, match="process 999999999 cannot be watched"):
        ProcessMeter(999_999_999)


@pytest.fixture
def url() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Quietly."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
        server.shutdown()


def test_a_page_is_fetched(url: str) -> None:
    meter = MetricsMeter(url)
    sample = asyncio.run(meter.sample())
    assert sample is not None
    assert (sample.cpu, sample.memory) == (12.5, 1_048_576)
    assert asyncio.run(MetricsMeter(f"{url}/nothing").sample()) is None
    with pytest.raises(TargetError, match="no metrics: HTTP Error 404"):
        asyncio.run(MetricsMeter(f"{url}/nothing").metrics())
    with pytest.raises(TargetError, match="must begin with http"):
        asyncio.run(MetricsMeter("file:///etc/passwd").metrics())


class NoHttp(socketserver.BaseRequestHandler):
    """As gRPC ports begin: with settings of HTTP/2."""

    def handle(self) -> None:
        self.request.recv(1_024)
        self.request.sendall(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\r\n")


def test_what_does_not_speak_http_is_one_error() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), NoHttp) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        meter = MetricsMeter(f"http://127.0.0.1:{server.server_address[1]}/metrics")
        with pytest.raises(TargetError, match="does not speak HTTP: BadStatusLine"):
            asyncio.run(meter.metrics())
        assert asyncio.run(meter.sample()) is None
        server.shutdown()


class Gone(FakeTarget):
    async def stats(self) -> Counters | None:
        raise TargetError("connection refused")


def test_a_server_that_is_there_no_more_has_counted_nothing() -> None:
    assert asyncio.run(CounterSource(Gone(), None, "").read()) is None


def test_counting_prefers_the_page(url: str) -> None:
    async def check() -> None:
        counting = CounterSource(FakeTarget(), MetricsMeter(url), "en-de")
        before = await counting.read()
        assert before is not None
        assert before["requests"] == 10
        assert counting.source == url
        assert (await counting.since(before))["requests"] == 0
        assert await counting.since({"requests": 11.0}) == {}  # the server has begun anew

    asyncio.run(check())
