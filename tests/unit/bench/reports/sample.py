"""Reports without a measurement."""

from dataclasses import replace
from typing import Any

from triptych_bench.measure.distribution import distribution as measured
from triptych_bench.results import (
    Distribution,
    Generator,
    Quality,
    Report,
    Resources,
    Run,
    ServerCounts,
    TimeBreakdown,
    TimelineEntry,
)

NINES = {"50": 1.0, "90": 1.5, "95": 1.75, "99": 3.0, "99.9": 4.5}


def distribution(seconds: float, count: int = 5_000) -> Distribution:
    """Make a distribution with this median."""
    percentiles = {name: factor * seconds for name, factor in NINES.items()}
    curve = [(float(name) / 100, value) for name, value in percentiles.items()]
    return Distribution(
        count=count,
        mean=1.1 * seconds,
        minimum=0.5 * seconds,
        maximum=5 * seconds,
        percentiles=percentiles,
        curve=((0.0, 0.5 * seconds), *curve, (1.0, 5 * seconds)),
    )


def closed(concurrency: int, throughput: float, seconds: float, **more: Any) -> Run:
    """Make a run of a closed loop."""
    run = Run(
        name=f"concurrency {concurrency}",
        scenario="closed-loop",
        concurrency=concurrency,
        offered_rate=None,
        inputs_per_request=1,
        seconds=15.0,
        steady=True,
        completed=round(15 * throughput),
        failed={},
        throughput=throughput,
        request_rate=throughput,
        goodput=None,
        latency_limit=None,
        latency=distribution(seconds),
        parts=TimeBreakdown(
            client_send=0.0001234567,
            network=0.0005,
            server_queue=0.25 * seconds,
            server_preprocess=0.0002,
            server_compute=0.5 * seconds,
            server_postprocess=0.0003,
            client_receive=0.0001,
        ),
        moments=tuple(
            TimelineEntry(start=float(second), completed=100, failed=0, p50=seconds, p99=3 * seconds, steady=2 <= second < 5)
            for second in range(6)
        ),
    )
    return replace(run, **more)


def opened(rate: float, seconds: float, limit: float = 0.2, **more: Any) -> Run:
    """Make a run at a rate; above the limit, it is not valid."""
    valid = NINES["99"] * seconds <= limit
    settings: dict[str, Any] = {"valid": valid, "problem": "" if valid else "over the latency limit", **more}
    return replace(
        closed(1, rate, seconds),
        name=f"{rate:g} requests/s",
        scenario="server",
        concurrency=None,
        offered_rate=rate,
        goodput=rate,
        latency_limit=limit,
        **settings,
    )


def unanswered(concurrency: int) -> Run:
    """Make a run without a successful request."""
    run = closed(concurrency, 0.0, 0.01, completed=0, failed={"UNAVAILABLE": 30}, valid=False, problem="no request succeeded")
    return replace(run, latency=measured([]), parts=TimeBreakdown(), moments=())


def full() -> Run:
    """Make a run with all optional figures."""
    return closed(
        8,
        400.5,
        0.02,
        goodput=380.0,
        latency_limit=0.1,
        failed={"UNAVAILABLE": 2},
        first_token=distribution(0.005),
        inter_token=distribution(0.001),
        output_tokens=9_000.0,
        resources=Resources(source="process 7", cpu_cores=1.5, memory_bytes=300 << 20),
        generator=Generator(cpu_cores=0.1, cpu_per_request=0.0002),
        counted=ServerCounts(
            source="ModelStatistics", requests=7_000, expected=7_000, mean_seconds=0.019, expected_seconds=0.02
        ),
        quality=Quality(metric="BLEU", value=33.25, signature="tok:13a"),
    )


def report(*runs: Run, **more: Any) -> Report:
    """Make a report of these runs, or of a sweep."""
    made = Report(
        tool="triptych 0.1.0",
        started="2026-01-02T03:04:05+00:00",
        command="triptych bench translate",
        task="translate",
        scenario=runs[0].scenario if runs else "closed-loop",
        target={
            **{"address": "localhost:8001", "protocol": "triptych.v1", "model": "en-de", "model_version": "3"},
            **{"precision": "int8", "devices": "cpu"},
        },
        inputs={"source": "bundled", "count": "52", "sha256": "ab" * 32},
        machine={"processor": "abacus", "cpus": "2"},
        settings={"beam-size": "4"},
        runs=runs or (closed(1, 100.0, 0.01), closed(2, 180.0, 0.012), full()),
        headline={"max_throughput": 400.5},
    )
    return replace(made, **more)
