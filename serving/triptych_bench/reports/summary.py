"""The texts above and below the tables: title, conditions, main figures, and remarks on doubtful results."""

from collections.abc import Iterator

from triptych_bench.measure.run import GENERATOR
from triptych_bench.reports import units
from triptych_bench.results import Report, Run

SCENARIOS = {
    "single-stream": "one request after the other",
    "multi-stream": "one request with several inputs after the other",
    "server": "requests arrive at random, as from many users",
    "offline": "all inputs at once",
    "closed-loop": "a fixed number of requests in flight",
}
FEW = 100  # with fewer requests, the 99th percentile is the slowest one
SEARCHED = "server"  # this scenario's search also measures rates that fail

UNCONFIRMED = (
    "No rate was confirmed: those that passed failed when they were measured for twice the time. "
    "The machine or the server was unsteady: measure again, or with a longer --measure-secs."
)


def title(report: Report) -> str:
    """Return `translate: en-de, version 3, int8, cpu`."""
    version = report.target.get("model_version")
    parts = (report.target.get("model"), version and f"version {version}", *map(report.target.get, ("precision", "devices")))
    model = ", ".join(filter(None, parts))
    return f"{report.task or 'benchmark'}: {model}" if model else report.task or "benchmark"


def subject(report: Report) -> str:
    """Return server, address, protocol and date."""
    target = report.target
    parts = (target.get("server"), target.get("address"), target.get("protocol"), report.started)
    return ", ".join(filter(None, parts))


def best_run(report: Report) -> Run | None:
    """Return the run with the highest goodput or, without a latency limit, the highest throughput."""
    runs = [run for run in report.runs if run.trusted] or report.runs
    return max(runs, key=lambda run: run.goodput if run.goodput is not None else run.throughput, default=None)


def headline(report: Report) -> list[tuple[str, str]]:
    """Return labels and values: the scenario's own figures first, then those of the best run."""
    any_trusted = any(run.trusted for run in report.runs)
    figures = [units.named(name, value) for name, value in report.headline.items() if value or any_trusted]
    run = best_run(report)
    if run is None:
        return figures
    if not figures:
        figures.append((f"throughput at {run.name}", f"{units.number(run.throughput)}/s"))
    known = " ".join(report.headline)
    return [*figures, *((label, value) for name, label, value in _figures(run) if name not in known)]


def _figures(run: Run) -> Iterator[tuple[str, str, str]]:
    """Yield key, label and value of the main figures of a run."""
    for name in ("50", "99"):
        if run.latency.count and name in run.latency.percentiles:
            yield f"p{name}", f"p{name} at {run.name}", units.duration(run.latency.percentiles[name])
    if run.first_token and "50" in run.first_token.percentiles:
        yield "first_token", "p50 time to first token", units.duration(run.first_token.percentiles["50"])
    if run.quality:
        yield run.quality.metric, run.quality.metric, units.number(run.quality.value)


def load_of(run: Run) -> float:
    """Sort key: concurrency or rate."""
    return float(run.concurrency or 0) or run.offered_rate or 0.0


def remarks(report: Report) -> tuple[str, ...]:
    """Return what a reader should know before trusting the figures, one line each; often none."""
    if not report.runs:
        return (*report.notes, "No load was measured.")
    found = any(run.scenario == SEARCHED and run.trusted for run in report.runs)
    runs = [run for run in report.runs if not (found and _is_failed_probe(run))]
    is_random = report.inputs.get("source", "").endswith("(random)")
    random_inputs = ("The inputs are random: real ones may take another time.",) if is_random else ()
    unconfirmed = (UNCONFIRMED,) if found and report.headline.get("max_rate") == 0.0 else ()
    of_runs = (f"{run.name}: {remark}" for run in runs for remark in run_remarks(run))
    return (*report.notes, *unconfirmed, *random_inputs, *of_runs)


def run_remarks(run: Run) -> Iterator[str]:
    """Yield the problems of one run."""
    if not run.valid:
        yield f"invalid: {run.problem or 'it does not meet the requirements of its scenario'}"
    elif run.problem:
        yield run.problem
    if run.valid and not run.steady:
        yield "throughput and latency did not settle; the figures are of an unsteady server"
    if run.failures:
        codes = ", ".join(f"{code} {count:,}" for code, count in run.failed.items() if count)
        every = run.failures + run.completed
        yield f"{run.failures:,} of {every:,} requests failed ({units.percent(run.failures / every)}): {codes}"
    if run.counted and run.counted.cached:
        yield f"{run.counted.cached:,} of {run.counted.requests:,} responses came from the server's cache, without computation"
    if 0 < run.latency.count < FEW:
        yield f"{run.latency.count:,} requests are too few for p99: it is the slowest of them"


def _is_failed_probe(run: Run) -> bool:
    """Return whether the run is a rate above the server's limit, which every search measures."""
    if run.scenario != SEARCHED or run.valid or GENERATOR in run.problem or not run.latency_limit:
        return False
    return (run.latency.percentiles.get("99") or 0.0) > run.latency_limit
