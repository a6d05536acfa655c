"""The table of runs, for the terminal and for the page: a column a number that was measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triptych_bench.reports import units
from triptych_bench.reports.remarks import trusted
from triptych_bench.results import Distribution, Run


@dataclass(frozen=True)
class Column:
    """Of the table of runs.

    Args:
        rank: the highest goes first where not all fit.
    """

    name: str
    unit: str
    value: Callable[[Run], str]
    rank: int = 0


def known(runs: Sequence[Run]) -> list[Column]:
    """Those that any run has a value for."""
    several = any(run.inputs_per_request > 1 for run in runs)  # otherwise requests are inputs
    columns = [column for column in COLUMNS if column.name != "requests" or several]
    return [column for column in columns if any(column.value(run) != units.NONE for run in runs)]


def heads(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Names and units of the known columns."""
    return [(column.name, column.unit) for column in known(runs)]


def rows(runs: Sequence[Run]) -> list[list[str]]:
    """Their values, a list a run."""
    columns = known(runs)
    return [[column.value(run) for column in columns] for run in runs]


def _name(run: Run) -> str:
    return run.name if trusted(run) else f"{run.name} !"


def _percentile(distribution: Distribution | None, name: str) -> str:
    return units.millis(distribution.percentile(name)) if distribution else units.NONE


def _failed(run: Run) -> str:
    return f"{sum(run.failed.values()):,}" if any(run.failed.values()) else units.NONE


def _quality(run: Run) -> str:
    return f"{run.quality.metric} {units.number(run.quality.value)}" if run.quality else units.NONE


COLUMNS = (
    Column("load", "", _name),
    Column("inputs", "/s", lambda run: units.number(run.throughput)),
    Column("requests", "/s", lambda run: units.number(run.request_rate), 6),
    Column("goodput", "/s", lambda run: units.number(run.goodput), 1),
    Column("p50", "ms", lambda run: _percentile(run.latency, "50")),
    Column("p90", "ms", lambda run: _percentile(run.latency, "90")),
    Column("p99", "ms", lambda run: _percentile(run.latency, "99")),
    Column("p99.9", "ms", lambda run: _percentile(run.latency, "99.9"), 7),
    Column("queue", "ms", lambda run: units.millis(run.parts.server_queue), 4),
    Column("compute", "ms", lambda run: units.millis(run.parts.server_compute), 4),
    Column("TTFT", "p50 ms", lambda run: _percentile(run.first_token, "50"), 2),
    Column("ITL", "p50 ms", lambda run: _percentile(run.inter_token, "50"), 3),
    Column("tokens", "/s", lambda run: units.number(run.output_tokens), 3),
    Column("CPU", "cores", lambda run: units.number(run.resources.cpu_cores if run.resources else None), 5),
    Column("memory", "", lambda run: units.size(run.resources.memory_bytes if run.resources else None), 5),
    Column("client", "cores", lambda run: units.number(run.generator.cpu_cores if run.generator else None), 8),
    Column("quality", "", _quality, 2),
    Column("failed", "", _failed, 1),
)
