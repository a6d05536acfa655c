"""CPU, memory and counters of a server: from its process on this machine, or from its Prometheus metrics."""

import asyncio
import math
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, InvalidURL

import psutil
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample as MetricSample

from triptych_bench.measure.steady import Span
from triptych_bench.results import Resources
from triptych_bench.target import Counters, Target, TargetError

TIMEOUT_SECONDS = 5.0
LARGEST_BYTES = 64 << 20
CPU, MEMORY = "process_cpu_seconds_total", "process_resident_memory_bytes"
REQUESTS, CACHED = "triptych_e2e_request_latency_seconds", "triptych_cache_hits_total"
STAGES = {
    "queue": ("queue",),
    "preprocess": ("preprocess",),
    "compute": ("inference", "prefill", "decode"),
    "postprocess": ("postprocess",),
}


# The parser takes about 60 microseconds per line, during which the load generator waits: only these lines reach it.
NEEDED = re.compile(
    rf"^(?:{CPU}|{MEMORY}|{CACHED}|{REQUESTS}_(?:count|sum)|triptych_request_\w+_time_seconds_sum)[\s{{].*$", re.MULTILINE
)


@dataclass(frozen=True)
class ResourceSample:
    """CPU time and memory of a server at one moment."""

    moment: float  # time.perf_counter
    cpu: float | None  # seconds since the process was started
    memory: int | None  # resident bytes


class ProcessMeter:
    """CPU and memory of a process and its children.

    Raises:
        TargetError: The process does not exist or cannot be accessed.
    """

    seconds = 0.25  # between two samples

    def __init__(self, pid: int) -> None:
        self.source = f"process {pid}"
        try:
            process = psutil.Process(pid)
            self._processes = [process, *process.children(recursive=True)]
            _cpu_and_memory(self._processes[0])
        except psutil.Error as error:
            raise TargetError(f"process {pid} cannot be watched: {error}") from error

    async def sample(self) -> ResourceSample | None:
        """Add up the processes that are still running."""
        seen = []
        for process in self._processes:
            with suppress(psutil.Error):
                seen.append(_cpu_and_memory(process))
        if not seen:
            return None
        return ResourceSample(time.perf_counter(), sum(cpu for cpu, _ in seen), sum(memory for _, memory in seen))


def _cpu_and_memory(process: "psutil.Process") -> tuple[float, int]:
    with process.oneshot():
        times = process.cpu_times()
        return times.user + times.system, process.memory_info().rss


class MetricsMeter:
    """CPU and memory as in a server's metrics: `process_cpu_seconds_total` and `process_resident_memory_bytes`."""

    seconds = 2.0  # each request for the metrics costs the server CPU time

    def __init__(self, url: str) -> None:
        self.source = url

    async def metrics(self) -> list[MetricSample]:
        """Fetch all metrics. Raises TargetError."""
        try:
            return parse_metrics(await asyncio.to_thread(_fetch, self.source))
        except (OSError, ValueError, InvalidURL) as error:
            raise TargetError(f"{self.source}: no metrics: {error}") from error
        except HTTPException as error:
            raise TargetError(f"{self.source}: the server does not speak HTTP: {error!r}") from error

    async def sample(self) -> ResourceSample | None:
        """Fetch the metrics; None if that fails."""
        try:
            metrics = await self.metrics()
        except TargetError:
            return None
        # One value for each process of the server.
        cpu, memory = ([metric.value for metric in metrics if metric.name == name] for name in (CPU, MEMORY))
        return ResourceSample(time.perf_counter(), sum(cpu) if cpu else None, int(sum(memory)) if memory else None)


def _fetch(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("the address must begin with http:// or https://")
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        return str(response.read(LARGEST_BYTES).decode())


def parse_metrics(text: str) -> list[MetricSample]:
    """Parse the metrics used here, in Prometheus' text format; values that are not finite are left out. Raises ValueError."""
    lines = "".join(f"{line}\n" for line in NEEDED.findall(text))
    samples = (sample for family in text_string_to_metric_families(lines) for sample in family.samples)
    return [sample for sample in samples if math.isfinite(sample.value)]


def counters_of(metrics: Sequence[MetricSample], model: str) -> Counters | None:
    """Read Triptych's counters of a model, or of all without a name; None if these are not Triptych's metrics."""

    def total(name: str) -> float:
        return math.fsum(
            metric.value for metric in metrics if metric.name == name and model in ("", metric.labels.get("model"))
        )

    if not any(metric.name == f"{REQUESTS}_count" for metric in metrics):
        return None
    stages = {
        stage: math.fsum(total(f"triptych_request_{name}_time_seconds_sum") for name in names)
        for stage, names in STAGES.items()
    }
    requests, seconds = total(f"{REQUESTS}_count"), total(f"{REQUESTS}_sum")
    return {"requests": requests, "total": seconds, "cached": total(CACHED), **stages}


ResourceMeter = ProcessMeter | MetricsMeter


STATISTICS = "ModelStatistics"  # the target's method


class CounterSource:
    """The server's counters: from its metrics if they are Triptych's, otherwise from the target.

    Args:
        model: Name of the model; empty for all.
    """

    def __init__(self, target: Target, meter: MetricsMeter | None, model: str) -> None:
        self._target, self._meter, self._model = target, meter, model
        self.source = STATISTICS

    async def read(self) -> Counters | None:
        """Return the counters; None if the server has none or is gone."""
        if self._meter is not None:
            try:
                counters = counters_of(await self._meter.metrics(), self._model)
            except TargetError:
                counters = None
            if counters is not None:
                self.source = self._meter.source
                return counters
        self.source = STATISTICS
        try:
            return await self._target.stats()
        except TargetError:
            return None

    async def since(self, before: Counters) -> Mapping[str, float]:
        """Return the differences; empty if the server was restarted, or its counters are not those of the same source."""
        source, after = self.source, await self.read()
        if after is None or self.source != source:
            return {}
        more = {name: after[name] - before[name] for name in after if name in before}
        return more if all(value >= 0 for value in more.values()) else {}


class ResourceMonitor:
    """Takes samples from `start` to `stop`; none without a meter."""

    def __init__(self, meter: ResourceMeter | None) -> None:
        self._meter = meter
        self._samples: list[ResourceSample] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take the first sample and start the others."""
        if self._meter is not None:
            await self._take(self._meter)
            self._task = asyncio.create_task(self._take_repeatedly(self._meter))

    async def stop(self) -> None:
        """Take the last sample."""
        if self._meter is None or self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._take(self._meter)

    def used(self, span: Span) -> Resources | None:
        """Return the resources used in the span, from the samples in and around it."""
        if self._meter is None or not self._samples:
            return None
        inside = around(self._samples, span)
        memory = [sample.memory for sample in inside if sample.memory is not None]
        return Resources(source=self._meter.source, cpu_cores=_cores(inside), memory_bytes=max(memory, default=None))

    async def _take_repeatedly(self, meter: ResourceMeter) -> None:
        while True:
            await asyncio.sleep(meter.seconds)
            await self._take(meter)

    async def _take(self, meter: ResourceMeter) -> None:
        if (sample := await meter.sample()) is not None:
            self._samples.append(sample)


def around(samples: Sequence[ResourceSample], span: Span) -> list[ResourceSample]:
    """Return the samples in the span, the last one before it and the first one after it."""
    before = [sample for sample in samples if sample.moment <= span.start][-1:]
    after = [sample for sample in samples if sample.moment >= span.end][:1]
    return [*before, *(sample for sample in samples if span.start < sample.moment < span.end), *after]


def _cores(samples: Sequence[ResourceSample]) -> float | None:
    known = [(sample.moment, sample.cpu) for sample in samples if sample.cpu is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])
