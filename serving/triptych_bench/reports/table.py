"""Reports as plain text for a terminal, and the table of runs, which the page shows, too."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triptych_bench.reports import summary, units
from triptych_bench.results import Report, Run, percentile_of

WIDTH = 120
GAP = "  "


@dataclass(frozen=True)
class RunColumn:
    """A column of the table of runs."""

    name: str
    unit: str
    value: Callable[[Run], str]
    rank: int = 0  # Columns with the highest rank are dropped first if the table is too wide


COLUMNS = (
    RunColumn("load", "", lambda run: run.name if run.trusted else f"{run.name} !"),
    RunColumn("inputs", "/s", lambda run: units.number(run.throughput)),
    RunColumn("requests", "/s", lambda run: units.number(run.request_rate), 6),
    RunColumn("goodput", "/s", lambda run: units.number(run.goodput), 1),
    RunColumn("p50", "ms", lambda run: units.millis(percentile_of(run.latency, "50"))),
    RunColumn("p90", "ms", lambda run: units.millis(percentile_of(run.latency, "90"))),
    RunColumn("p99", "ms", lambda run: units.millis(percentile_of(run.latency, "99"))),
    RunColumn("p99.9", "ms", lambda run: units.millis(percentile_of(run.latency, "99.9")), 7),
    RunColumn("queue", "ms", lambda run: units.millis(run.parts.server_queue), 4),
    RunColumn("compute", "ms", lambda run: units.millis(run.parts.server_compute), 4),
    RunColumn("TTFT", "p50 ms", lambda run: units.millis(percentile_of(run.first_token, "50")), 2),
    RunColumn("ITL", "p50 ms", lambda run: units.millis(percentile_of(run.inter_token, "50")), 3),
    RunColumn("tokens", "/s", lambda run: units.number(run.output_tokens), 3),
    RunColumn("CPU", "cores", lambda run: units.number(run.resources.cpu_cores if run.resources else None), 5),
    RunColumn("memory", "", lambda run: units.size(run.resources.memory_bytes if run.resources else None), 5),
    RunColumn("client", "cores", lambda run: units.number(run.generator.cpu_cores if run.generator else None), 8),
    RunColumn(
        "quality", "", lambda run: f"{run.quality.metric} {units.number(run.quality.value)}" if run.quality else units.NONE, 2
    ),
    RunColumn("failed", "", lambda run: f"{run.failures:,}" if run.failures else units.NONE, 1),
)


def known_columns(runs: Sequence[Run]) -> list[RunColumn]:
    """Return the columns for which any run has a value."""
    several = any(run.inputs_per_request > 1 for run in runs)  # otherwise, requests are inputs
    columns = [column for column in COLUMNS if column.name != "requests" or several]
    return [column for column in columns if any(column.value(run) != units.NONE for run in runs)]


def render(report: Report, width: int = WIDTH) -> str:
    """Return lines of at most `width` characters, without a newline at the end."""
    parts = (
        _heading(report, width),
        _runs(report.runs, width) if report.runs else "",
        "\n".join(wrapped(remark, width, "! ", "  ") for remark in summary.remarks(report)),
    )
    return "\n\n".join(filter(None, parts))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the first column to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> str:
    """Wrap a paragraph, with indents for the first and the other lines."""
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _heading(report: Report, width: int) -> str:
    scenario = ": ".join(filter(None, (report.scenario, summary.SCENARIOS.get(report.scenario, ""))))
    figures = "   ".join(f"{label} {value}" for label, value in summary.headline(report))
    lines = (summary.title(report), figures, scenario, summary.subject(report))
    return "\n".join(wrapped(line, width, rest="  ") for line in lines if line)


def _runs(runs: Sequence[Run], width: int) -> str:
    """Format the table with as many columns as fit."""
    columns = known_columns(runs)
    while len(columns) > 1 and max(map(len, _lines(columns, runs))) > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    return "\n".join(_lines(columns, runs))


def _lines(columns: Sequence[RunColumn], runs: Sequence[Run]) -> list[str]:
    names, unit_names = [column.name for column in columns], [column.unit for column in columns]
    table = aligned([names, unit_names, *([column.value(run) for column in columns] for run in runs)])
    return [*table[:2], "-" * max(map(len, table)), *table[2:]]
