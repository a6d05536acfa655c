"""Comparisons as one HTML page that needs nothing but itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from triptych_bench.comparison import Comparison, Line, Match
from triptych_bench.reports import facts, files, units
from triptych_bench.reports.charts.figure import Figure, Key
from triptych_bench.reports.comparison import shown
from triptych_bench.reports.page import filled
from triptych_bench.reports.plots.overlay import overlay
from triptych_bench.reports.plots.percentiles import SHOWN, chart, curve
from triptych_bench.results import Run

STYLES = ("report0", "report1", "report2", "report3", "report4", "report5", "report6", "report7")

TABLES = {
    "throughput": "Throughput (inputs/s)",
    "goodput": "Goodput (requests/s within the latency limit)",
    "p50 latency": "Latency, p50",
    "p99 latency": "Latency, p99",
}


def render(comparison: Comparison) -> str:
    """The page's text."""
    return filled("comparison.html", values(comparison))


def write(comparison: Comparison, path: Path) -> None:
    """UTF-8, over what is there."""
    files.write(path, render(comparison))


def values(comparison: Comparison) -> dict[str, Any]:
    """What the template shows."""
    styles = [STYLES[index % len(STYLES)] for index in range(len(comparison.names))]
    figures = [
        overlay(comparison.names, [report.runs for report in comparison.reports], styles),
        _percentiles(comparison, styles),
    ]
    return {
        "title": "Comparison of " + ", ".join(comparison.names),
        "names": comparison.names,
        "styles": styles,
        "reports": [(facts.title(report), facts.subject(report), report.scenario) for report in comparison.reports],
        "headline": [(units.named(line.name, 0.0)[0], line) for line in comparison.headline],
        "figures": [figure for figure in figures if figure],
        "tables": [(title, rows) for name, title in TABLES.items() if (rows := _loads(comparison.matches, name))],
        "matches": [
            {"name": match.name, "scenario": match.scenario, "named": [(line.name, line) for line in match.lines]}
            for match in comparison.matches
        ],
        "unmatched": comparison.unmatched,
        "differences": comparison.differences,
        "warnings": comparison.warnings,
        "shown": shown,
        "tool": comparison.reports[0].tool,
    }


def _loads(matches: Sequence[Match], metric: str) -> list[tuple[str, Line]]:
    """One metric under all loads."""
    return [(match.name, line) for match in matches for line in match.lines if line.name == metric]


def _percentiles(comparison: Comparison, styles: Sequence[str]) -> Figure | None:
    """Of the heaviest load that most reports have."""
    match = max(comparison.matches, key=lambda match: (sum(map(bool, match.others)), facts.load(match.first)), default=None)
    if match is None:
        return None
    runs = list(zip(comparison.names, (match.first, *match.others), styles, strict=True))
    drawn = [(name, run, style) for name, run, style in runs if run and len(curve(run.latency)) > 1]
    return _curves(match, drawn) if drawn else None


def _curves(match: Match, drawn: Sequence[tuple[str, Run, str]]) -> Figure:
    picture: Markup = chart([(name, run.latency) for name, run, _ in drawn], [style for _, _, style in drawn])
    return Figure(
        name="percentiles",
        title=f"Percentiles of latency, {match.name}",
        text=f"Share of requests that were no slower, under the heaviest common load: {match.name}, {match.scenario}.",
        picture=picture,
        keys=[Key(name, style, "line") for name, _, style in drawn],
        head=("report", *(f"p{name} (ms)" for name in SHOWN), "slowest (ms)", "requests"),
        rows=[_row(name, run) for name, run, _ in drawn],
    )


def _row(name: str, run: Run) -> tuple[str, ...]:
    percentiles = (units.millis(run.latency.percentiles.get(one)) for one in SHOWN)
    return (name, *percentiles, units.millis(run.latency.maximum), f"{run.latency.count:,}")
