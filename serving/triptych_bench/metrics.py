"""What of a run is compared, and which way is better."""

from collections.abc import Callable
from dataclasses import dataclass

from triptych_bench.comparison import Cell, Line
from triptych_bench.results import Distribution, Run

HIGHER, LOWER, NEITHER = 1, -1, 0
TOLERANCE = 0.05  # a server is steady when it stays within 10 % of its mean: less than half of that says nothing


@dataclass(frozen=True)
class Metric:
    """A number that runs have.

    Args:
        better: HIGHER, LOWER or NEITHER.
        tolerance: ratios that are no further from 1 are the same.
    """

    name: str
    kind: str
    better: int
    value: Callable[[Run], float | None]
    tolerance: float = TOLERANCE


def line(metric: Metric, first: Run, others: "tuple[Run | None, ...]") -> Line:
    """A metric of the same load on all reports."""
    base = metric.value(first)
    values = [None if run is None else metric.value(run) for run in others]
    cells = tuple(judged(value, base, metric.better, metric.tolerance) for value in values)
    return Line(name=metric.name, kind=metric.kind, first=base, others=cells)


def judged(value: float | None, base: float | None, better: int, tolerance: float = TOLERANCE) -> Cell:
    """A value beside what it is measured by."""
    if value is None or not base:
        return Cell(value=value)
    ratio = value / base
    if better == NEITHER:
        return Cell(value=value, ratio=ratio)
    if abs(ratio - 1) <= tolerance:
        return Cell(value=value, ratio=ratio, verdict="same")
    return Cell(value=value, ratio=ratio, verdict="better" if (ratio > 1) == (better == HIGHER) else "worse")


def direction(name: str) -> tuple[str, int]:
    """Kind and better way of a report's headline figure, by the end of its name."""
    if name.endswith("_seconds"):
        return "seconds", LOWER
    if name.endswith("_bytes"):
        return "bytes", LOWER
    if name.endswith(("rate", "_per_second", "throughput", "goodput")):
        return "rate", HIGHER
    return "number", HIGHER if name in ("BLEU", "accuracy") else NEITHER


def _percentile(of: Callable[[Run], Distribution | None], name: str) -> Callable[[Run], float | None]:
    def value(run: Run) -> float | None:
        distribution = of(run)
        return distribution.percentile(name) if distribution else None

    return value


def _latency(run: Run) -> Distribution:
    return run.latency


METRICS = (
    Metric("throughput", "rate", HIGHER, lambda run: run.throughput),
    Metric("goodput", "rate", HIGHER, lambda run: run.goodput),
    Metric("mean latency", "seconds", LOWER, lambda run: run.latency.mean if run.latency.count else None),
    *(Metric(f"p{name} latency", "seconds", LOWER, _percentile(_latency, name)) for name in ("50", "90", "95", "99", "99.9")),
    Metric("p50 time to first token", "seconds", LOWER, _percentile(lambda run: run.first_token, "50")),
    Metric("p99 time to first token", "seconds", LOWER, _percentile(lambda run: run.first_token, "99")),
    Metric("p50 inter-token latency", "seconds", LOWER, _percentile(lambda run: run.inter_token, "50")),
    Metric("p99 inter-token latency", "seconds", LOWER, _percentile(lambda run: run.inter_token, "99")),
    Metric("output tokens", "rate", HIGHER, lambda run: run.output_tokens),
    Metric("mean server queue", "seconds", LOWER, lambda run: run.parts.server_queue),
    Metric("mean server compute", "seconds", LOWER, lambda run: run.parts.server_compute),
    Metric("server CPU cores", "number", NEITHER, lambda run: run.resources.cpu_cores if run.resources else None),
    Metric("server memory", "bytes", LOWER, lambda run: run.resources.memory_bytes if run.resources else None),
    Metric("failed requests", "number", LOWER, lambda run: float(sum(run.failed.values())) or None),
    Metric("quality", "number", HIGHER, lambda run: run.quality.value if run.quality else None, 0.005),
)
