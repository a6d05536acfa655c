"""A server's own metrics, in Prometheus' text format."""

import asyncio
import math
import re
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException

from triptych_bench.server.watch import Look
from triptych_bench.target import Counters, TargetError

TIMEOUT_SECONDS = 5.0
LARGEST_BYTES = 64 << 20
# https://prometheus.io/docs/instrumenting/exposition_formats/: name, labels in braces, value, perhaps a time.
LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$")
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
CPU, MEMORY = "process_cpu_seconds_total", "process_resident_memory_bytes"
REQUESTS, CACHED = "triptych_e2e_request_latency_seconds", "triptych_cache_hits_total"
STAGES = {
    "queue": ("queue",),
    "preprocess": ("preprocess",),
    "compute": ("inference", "prefill", "decode"),
    "postprocess": ("postprocess",),
}


@dataclass(frozen=True)
class Metric:
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_page(text: str) -> list[Metric]:
    """Comments and lines that are none are left out."""
    found = []
    for line in text.splitlines():
        if (match := LINE.match(line)) is not None:
            labels = dict(LABEL.findall(match[2] or ""))
            value = _number(match[3])
            if value is not None:
                found.append(Metric(match[1], labels, value))
    return found


def counters_of(page: list[Metric], model: str) -> Counters | None:
    """What Triptych has counted of a model, or of all where it is not named; None: these are not Triptych's metrics."""

    def total(name: str) -> float:
        return math.fsum(metric.value for metric in page if metric.name == name and model in ("", metric.labels.get("model")))

    if not any(metric.name == f"{REQUESTS}_count" for metric in page):
        return None
    stages = {
        stage: math.fsum(total(f"triptych_request_{name}_time_seconds_sum") for name in names)
        for stage, names in STAGES.items()
    }
    requests, seconds = total(f"{REQUESTS}_count"), total(f"{REQUESTS}_sum")
    return {"requests": requests, "total": seconds, "cached": total(CACHED), **stages}


class MetricsMeter:
    """CPU and memory as the server's page says: `process_cpu_seconds_total`, `process_resident_memory_bytes`."""

    seconds = 2.0  # a page costs the server something

    def __init__(self, url: str) -> None:
        self.source = url

    async def page(self) -> list[Metric]:
        """All of it.

        Raises:
            TargetError: it cannot be had.
        """
        try:
            return read_page(await asyncio.to_thread(_fetch, self.source))
        except (OSError, ValueError) as error:
            raise TargetError(f"{self.source}: no metrics there: {error}") from error
        except HTTPException as error:
            raise TargetError(f"{self.source}: what answers there does not speak HTTP: {error!r}") from error

    async def look(self) -> Look | None:
        """A page that fails is left out."""
        try:
            values = {metric.name: metric.value for metric in await self.page()}
        except TargetError:
            return None
        memory = values.get(MEMORY)
        return Look(time.perf_counter(), values.get(CPU), None if memory is None else int(memory))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _fetch(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("the address must begin with http:// or https://")
    with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
        return str(response.read(LARGEST_BYTES).decode())
