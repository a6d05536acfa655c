"""What stands above the tables: of what, under what load, and the numbers that count."""

from collections.abc import Iterator

from triptych_bench.reports import units
from triptych_bench.reports.remarks import trusted
from triptych_bench.results import Report, Run

SCENARIOS = {
    "single-stream": "one request after the other",
    "multi-stream": "one request of several inputs after the other",
    "server": "requests arrive at random, as from many users",
    "offline": "all inputs at once",
    "closed-loop": "a fixed number of requests under way",
}


def title(report: Report) -> str:
    """`translate: en-de, version 3, int8, cpu`."""
    version = report.target.get("model_version")
    parts = (report.target.get("model"), version and f"version {version}", *map(report.target.get, ("precision", "devices")))
    said = ", ".join(filter(None, parts))
    return f"{report.task or 'benchmark'}: {said}" if said else report.task or "benchmark"


def subject(report: Report) -> str:
    """Whom, how and when."""
    target = report.target
    parts = (target.get("server"), target.get("address"), target.get("protocol"), report.started)
    return ", ".join(filter(None, parts))


def best(report: Report) -> Run | None:
    """The run that the report is about: the most within the limit or, without one, the most at all."""
    runs = [run for run in report.runs if trusted(run)] or report.runs
    return max(runs, key=lambda run: run.goodput if run.goodput is not None else run.throughput, default=None)


def headline(report: Report) -> list[tuple[str, str]]:
    """Labels and values: the scenario's own metric first, then what the best run adds to it."""
    said = [units.named(name, value) for name, value in report.headline.items() if value or any(map(trusted, report.runs))]
    run = best(report)
    if run is None:
        return said
    if not said:
        said.append((f"throughput at {run.name}", f"{units.number(run.throughput)}/s"))
    known = " ".join(report.headline)
    return [*said, *((label, value) for name, label, value in _more(run) if name not in known)]


def _more(run: Run) -> Iterator[tuple[str, str, str]]:
    """Key, label and value of what is worth a card."""
    for name in ("50", "99"):
        if run.latency.count and name in run.latency.percentiles:
            yield f"p{name}", f"p{name} at {run.name}", units.duration(run.latency.percentiles[name])
    if run.first_token and "50" in run.first_token.percentiles:
        yield "first_token", "p50 time to first token", units.duration(run.first_token.percentiles["50"])
    if run.quality:
        yield run.quality.metric, run.quality.metric, units.number(run.quality.value)


def load(run: Run) -> float:
    """What orders runs: how much was asked of the server."""
    return float(run.concurrency or 0) or run.offered_rate or 0.0
