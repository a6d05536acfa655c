"""What a reader must be told before the numbers are believed."""

from collections.abc import Iterator

from triptych_bench.measure.run import GENERATOR
from triptych_bench.reports.units import percent
from triptych_bench.results import Report, Run

FEW = 100  # with fewer requests, the 99th percentile is the slowest one
SEARCHED = "server"  # this scenario finds its rate between those that are met and those that are not


def remarks(report: Report) -> tuple[str, ...]:
    """One line each; none where all is well."""
    if not report.runs:
        return (*report.notes, "Nothing was measured.")
    found = any(run.scenario == SEARCHED and trusted(run) for run in report.runs)
    runs = [run for run in report.runs if not (found and _is_probe(run))]
    made_up = (
        ("The inputs are random: real ones may take another time.",)
        if report.inputs.get("source", "").endswith("(random)")
        else ()
    )
    return (*report.notes, *made_up, *(f"{run.name}: {remark}" for run in runs for remark in of_run(run)))


def of_run(run: Run) -> Iterator[str]:
    """What is wrong with one run."""
    if not run.valid:
        yield f"invalid: {run.problem or 'it does not meet what its scenario asks for'}"
    elif run.problem:
        yield run.problem
    if not run.steady and "steady" not in run.problem and "settle" not in run.problem:
        yield "throughput and latency did not settle; the numbers are of an unsteady server"
    if failed := sum(run.failed.values()):
        kinds = ", ".join(f"{code} {count:,}" for code, count in run.failed.items() if count)
        every = failed + run.completed
        yield f"{failed:,} of {every:,} requests failed ({percent(failed / every)}): {kinds}"
    if run.counted and run.counted.cached:
        yield f"{run.counted.cached:,} of {run.counted.requests:,} answers came from the server's cache, they were not computed"
    if 0 < run.latency.count < FEW:
        yield f"{run.latency.count:,} requests are too few for p99: it is the slowest of them"


def _is_probe(run: Run) -> bool:
    """A rate that was too much for the server, as a search must find one."""
    if run.scenario != SEARCHED or run.valid or GENERATOR in run.problem or not run.latency_limit:
        return False
    return (run.latency.percentiles.get("99") or 0.0) > run.latency_limit


def trusted(run: Run) -> bool:
    """Whether the run may be quoted."""
    return run.valid and run.steady
