"""Resources and counters of a server."""

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

from ..fakes import FakeTarget, in_event_loop

METRICS = r"""# HELP process_cpu_seconds_total CPU
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 12.5
process_resident_memory_bytes 1.048576e+06
triptych_e2e_request_latency_seconds_count{method="triptych.v1.T/Translate",model="en-de",version="1"} 10
triptych_e2e_request_latency_seconds_sum{method="triptych.v1.T/Translate",model="en-de",version="1"} 2.5
triptych_e2e_request_latency_seconds_bucket{model="en-de",le="+Inf"} 10
triptych_e2e_request_latency_seconds_count{method="triptych.v1.T/Translate",model="other",version="1"} 7
triptych_request_queue_time_seconds_sum{model="en-de",version="1"} 0.5 1700000000000
triptych_cache_hits_total{model="en-de",version="1"} 4
triptych_request_prefill_time_seconds_sum{model="en-de",version="1"} 0.25
triptych_request_decode_time_seconds_sum{model="en-de",version="1"} 1.25
triptych_request_odd_time_seconds_sum{label="with } and \" in it"} NaN
no number
"""


def test_counters_are_the_finite_ones_of_the_model() -> None:
    seconds = {"total": 2.5, "queue": 0.5, "preprocess": 0, "compute": 1.5, "postprocess": 0}
    assert counters_of(parse_metrics(METRICS), "en-de") == {"requests": 10, "cached": 4, **seconds}
    everything = counters_of(parse_metrics(METRICS), "")
    assert everything is not None
    assert everything["requests"] == 17
    assert counters_of(parse_metrics("process_cpu_seconds_total 1"), "") is None
    assert "triptych_request_odd_time_seconds_sum" not in {metric.name for metric in parse_metrics(METRICS)}


def test_processes_and_samples_around_a_span() -> None:
    samples = [ResourceSample(float(moment), 2.0 * moment, 100 * moment) for moment in range(6)]
    assert [sample.moment for sample in around(samples, Span(1.5, 3.5))] == [1.0, 2.0, 3.0, 4.0]
    assert [sample.moment for sample in around(samples, Span(-1.0, 9.0))] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    sample = asyncio.run(ProcessMeter(os.getpid()).sample())
    assert sample is not None
    assert (sample.cpu or 0) > 0
    assert (sample.memory or 0) > 1 << 20
    with pytest.raises(TargetError, match="process 999999999 cannot be watched"):
        ProcessMeter(999_999_999)


class GrowingMeter:
    """Reports two CPU seconds per sample; the second sample fails."""

    source = "nothing"
    seconds = 0.001

    def __init__(self) -> None:
        self.count = 0

    async def sample(self) -> ResourceSample | None:
        self.count += 1
        return None if self.count == 2 else ResourceSample(float(self.count), 2.0 * self.count, self.count)


@in_event_loop
async def test_a_monitor_reports_cores_and_most_memory() -> None:
    meter = GrowingMeter()
    monitor = ResourceMonitor(meter)
    await monitor.start()
    while meter.count < 6:
        await asyncio.sleep(0.001)
    await monitor.stop()
    used = monitor.used(Span(3.0, 5.0))
    assert used is not None
    assert (used.source, used.cpu_cores, used.memory_bytes) == ("nothing", 2.0, 5)
    count = meter.count
    await asyncio.sleep(0.01)
    assert meter.count == count


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
        server.shutdown()


@in_event_loop
async def test_metrics_are_fetched(url: str) -> None:
    sample = await MetricsMeter(url).sample()
    assert sample is not None
    assert (sample.cpu, sample.memory) == (12.5, 1_048_576)
    assert await MetricsMeter(f"{url}/nothing").sample() is None
    with pytest.raises(TargetError, match="no metrics: nonnumeric port: 'abc'"):
        await MetricsMeter("http://localhost:abc/metrics").metrics()
    with pytest.raises(TargetError, match="no metrics: HTTP Error 404"):
        await MetricsMeter(f"{url}/nothing").metrics()
    with pytest.raises(TargetError, match="must begin with http"):
        await MetricsMeter("file:///etc/passwd").metrics()


class NoHttp(socketserver.BaseRequestHandler):
    """Responds like a gRPC port, with HTTP/2 settings."""

    def handle(self) -> None:
        self.request.recv(1_024)
        self.request.sendall(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\r\n")


def test_a_port_without_http_is_one_error() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), NoHttp) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with pytest.raises(TargetError, match="does not speak HTTP: BadStatusLine"):
            asyncio.run(MetricsMeter(f"http://127.0.0.1:{server.server_address[1]}/metrics").metrics())
        server.shutdown()


class GoneTarget(FakeTarget):
    async def stats(self) -> Counters | None:
        raise TargetError("connection refused")


@in_event_loop
async def test_counters_come_from_the_metrics_or_the_target(url: str) -> None:
    assert await CounterSource(GoneTarget(), None, "").read() is None
    source = CounterSource(FakeTarget(), MetricsMeter(url), "en-de")
    before = await source.read()
    assert before is not None
    assert (before["requests"], source.source) == (10, url)
    assert (await source.since(before))["requests"] == 0
    assert await source.since({"requests": 11.0}) == {}  # the server was restarted
    source._meter = MetricsMeter(f"{url}/gone")
    assert await source.since({"requests": 0.0}) == {}  # the target counts from another time
