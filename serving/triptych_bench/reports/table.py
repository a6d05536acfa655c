"""Reports as plain text for a terminal: the headline first, a line a run, then what is wrong."""

import textwrap
from collections.abc import Sequence

from triptych_bench.reports import facts
from triptych_bench.reports.remarks import remarks
from triptych_bench.reports.runtable import Column, known
from triptych_bench.results import Report, Run

WIDTH = 120
GAP = "  "


def render(report: Report, width: int = WIDTH) -> str:
    """Lines of at most `width` characters, without a newline after the last."""
    parts = (_heading(report, width), _runs(report.runs, width), _remarks(report, width))
    return "\n\n".join(filter(None, parts))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns below each other: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(_cell(cell, width, index) for index, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]


def wrapped(text: str, width: int, first: str = "", rest: str = "") -> str:
    """Paragraph of at most `width` characters a line."""
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _cell(text: str, width: int, index: int) -> str:
    return text.rjust(width) if index else text.ljust(width)


def _heading(report: Report, width: int) -> str:
    scenario = ": ".join(filter(None, (report.scenario, facts.SCENARIOS.get(report.scenario, ""))))
    numbers = "   ".join(f"{label} {value}" for label, value in facts.headline(report))
    lines = (facts.title(report), numbers, scenario, facts.subject(report))
    return "\n".join(wrapped(line, width, rest="  ") for line in lines if line)


def _runs(runs: Sequence[Run], width: int) -> str:
    columns = _fitting(known(runs), runs, width)
    return "\n".join(_lines(columns, runs)) if runs else ""


def _fitting(columns: list[Column], runs: Sequence[Run], width: int) -> list[Column]:
    """Without those that matter least."""
    while len(columns) > 1 and max(map(len, _lines(columns, runs))) > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    return columns


def _lines(columns: Sequence[Column], runs: Sequence[Run]) -> list[str]:
    names, unit_names = [column.name for column in columns], [column.unit for column in columns]
    table = aligned([names, unit_names, *([column.value(run) for column in columns] for run in runs)])
    return [*table[:2], "-" * max(map(len, table)), *table[2:]]


def _remarks(report: Report, width: int) -> str:
    return "\n".join(wrapped(remark, width, "! ", "  ") for remark in remarks(report))
