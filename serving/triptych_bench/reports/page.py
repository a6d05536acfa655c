"""Reports and comparisons as one HTML page without external resources: it can be mailed, archived and printed."""

from collections.abc import Sequence
from typing import Any

import jinja2

from triptych_bench.comparison import Comparison, MatchedLoad, MetricRow
from triptych_bench.reports import summary, units
from triptych_bench.reports.comparison import shown
from triptych_bench.reports.latency_charts import curve, percentile_figure, percentiles, tradeoff, tradeoff_of_reports
from triptych_bench.reports.svg import Figure
from triptych_bench.reports.table import known_columns
from triptych_bench.reports.time_charts import breakdown, timeline
from triptych_bench.results import Report, ServerCounts

SECTIONS = (("Target", "target"), ("Inputs", "inputs"), ("Settings", "settings"), ("Machine of the client", "machine"))
STYLES = 8  # of reports in the style sheet
TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("triptych_bench.reports"),
    undefined=jinja2.StrictUndefined,
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
COMPARED = {
    "throughput": "Throughput (inputs/s)",
    "goodput": "Goodput (requests/s within the latency limit)",
    "p50 latency": "Latency, p50",
    "p99 latency": "Latency, p99",
}


def render(content: Report | Comparison) -> str:
    if isinstance(content, Comparison):
        return TEMPLATES.get_template("comparison.html").render(comparison_values(content))
    return TEMPLATES.get_template("report.html").render(report_values(content))


def report_values(report: Report) -> dict[str, Any]:
    """Return the values of the template report.html."""
    runs, main, columns = report.runs, summary.best_run(report), known_columns(report.runs)
    return {
        "title": summary.title(report),
        "subject": summary.subject(report),
        "scenario": report.scenario,
        "scenario_text": summary.SCENARIOS.get(report.scenario, ""),
        "headline": summary.headline(report),
        "remarks": summary.remarks(report),
        "figures": _present(tradeoff(runs), percentiles(runs), timeline(main) if main else None, breakdown(runs)),
        "more": _present(*(timeline(run, f"timeline-{index}") for index, run in enumerate(runs) if run is not main)),
        "heads": [(column.name, column.unit) for column in columns],
        "rows": [(run.trusted, [column.value(run) for column in columns]) for run in runs],
        "quality": quality_rows(report),
        "counted": [counts_row(run.name, run.counted) for run in runs if run.counted],
        "sections": [(name, getattr(report, member)) for name, member in SECTIONS if getattr(report, member)],
        "resources": sorted({run.resources.source for run in runs if run.resources}),
        "command": report.command,
        "tool": report.tool,
    }


def quality_rows(report: Report) -> list[tuple[str, str, str]]:
    """Return metric, range of values, and signature over all runs."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in report.runs:
        if run.quality:
            found.setdefault((run.quality.metric, run.quality.signature), []).append(run.quality.value)
    return [(metric, _range(numbers), signature) for (metric, signature), numbers in found.items()]


def counts_row(name: str, counted: ServerCounts) -> tuple[str, ...]:
    """Return load, source, and the requests and mean times as server and client counted them."""
    counts = f"{counted.requests:,}", f"{counted.expected:,}"
    means = units.duration(counted.mean_seconds), units.duration(counted.expected_seconds)
    return (name, counted.source, *counts, *means)


def _range(numbers: Sequence[float]) -> str:
    low, high = units.number(min(numbers)), units.number(max(numbers))
    return low if low == high else f"{low} to {high}"


def _present(*figures: Figure | None) -> list[Figure]:
    return [figure for figure in figures if figure]


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """Return the values of the template comparison.html."""
    styles = [f"report{index % STYLES}" for index in range(len(comparison.names))]
    runs = [report.runs for report in comparison.reports]
    return {
        "title": "Comparison of " + ", ".join(comparison.names),
        "names": comparison.names,
        "styles": styles,
        "reports": [(summary.title(report), summary.subject(report), report.scenario) for report in comparison.reports],
        "headline": [(units.named(row.name, 0.0)[0], row) for row in comparison.headline],
        "figures": _present(tradeoff_of_reports(comparison.names, runs, styles), _percentiles(comparison, styles)),
        "tables": [(title, rows) for name, title in COMPARED.items() if (rows := _rows(comparison.matches, name))],
        "matches": [
            {"name": match.first.name, "scenario": match.first.scenario, "named": [(row.name, row) for row in match.lines]}
            for match in comparison.matches
        ],
        "unmatched": comparison.unmatched,
        "differences": comparison.differences,
        "warnings": comparison.warnings,
        "shown": shown,
        "tool": comparison.reports[0].tool,
    }


def _rows(matches: Sequence[MatchedLoad], metric: str) -> list[tuple[str, MetricRow]]:
    """Return one metric under all loads."""
    return [(match.first.name, row) for match in matches for row in match.lines if row.name == metric]


def _percentiles(comparison: Comparison, styles: Sequence[str]) -> Figure | None:
    """Plot the latency percentiles of the heaviest load that most reports have."""
    match = max(
        comparison.matches, key=lambda match: (sum(map(bool, match.others)), summary.load_of(match.first)), default=None
    )
    if match is None:
        return None
    runs = zip(comparison.names, (match.first, *match.others), styles, strict=True)
    drawn = [(name, run.latency, style) for name, run, style in runs if run and len(curve(run.latency)) > 1]
    title = f"Percentiles of latency, {match.first.name}"
    text = f"Share of requests that were no slower, under the heaviest common load: {match.first.name}, {match.first.scenario}."
    return percentile_figure(title, text, "report", drawn) if drawn else None
