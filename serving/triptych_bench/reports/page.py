"""Reports as one HTML page that needs nothing but itself: it can be sent by mail, kept beside a release, and printed."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from triptych_bench.reports import facts, files, units
from triptych_bench.reports.charts.figure import Figure
from triptych_bench.reports.plots.parts import parts
from triptych_bench.reports.plots.percentiles import percentiles
from triptych_bench.reports.plots.timeline import timeline
from triptych_bench.reports.plots.tradeoff import tradeoff
from triptych_bench.reports.remarks import remarks, trusted
from triptych_bench.reports.runtable import heads, rows
from triptych_bench.results import Counted, Report

SECTIONS = (("Target", "target"), ("Inputs", "inputs"), ("Settings", "settings"), ("Machine of the client", "machine"))


def render(report: Report) -> str:
    """The page's text."""
    return filled("report.html", values(report))


def write(report: Report, path: Path) -> None:
    """UTF-8, over what is there."""
    files.write(path, render(report))


def filled(template: str, values: Mapping[str, Any]) -> str:
    """A page of this package; all values are escaped."""
    return _templates().get_template(template).render(values)


@functools.cache
def _templates() -> jinja2.Environment:
    loader = jinja2.PackageLoader("triptych_bench.reports")
    settings: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    return jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **settings)


def values(report: Report) -> dict[str, Any]:
    """What the template shows."""
    main = facts.best(report)
    return {
        "title": facts.title(report),
        "subject": facts.subject(report),
        "scenario": report.scenario,
        "scenario_text": facts.SCENARIOS.get(report.scenario, ""),
        "headline": facts.headline(report),
        "remarks": remarks(report),
        "figures": _present(
            [tradeoff(report.runs), percentiles(report.runs), timeline(main) if main else None, parts(report.runs)]
        ),
        "more": _present([timeline(run, f"timeline-{index}") for index, run in enumerate(report.runs) if run is not main]),
        "heads": heads(report.runs),
        "rows": [(trusted(run), cells) for run, cells in zip(report.runs, rows(report.runs), strict=True)],
        "quality": quality(report),
        "counted": [checked(run.name, run.counted) for run in report.runs if run.counted],
        "sections": [(name, getattr(report, member)) for name, member in SECTIONS if getattr(report, member)],
        "resources": sorted({run.resources.source for run in report.runs if run.resources}),
        "command": report.command,
        "tool": report.tool,
    }


def quality(report: Report) -> list[tuple[str, str, str]]:
    """Metric, values from the lowest to the highest, and signature, of all runs."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in report.runs:
        if run.quality:
            found.setdefault((run.quality.metric, run.quality.signature), []).append(run.quality.value)
    return [(metric, _range(numbers), signature) for (metric, signature), numbers in found.items()]


def checked(name: str, counted: Counted) -> tuple[str, ...]:
    """Load, source, and what server and client say: requests and mean times."""
    counts = f"{counted.requests:,}", f"{counted.expected:,}"
    means = units.duration(counted.mean_seconds), units.duration(counted.expected_seconds)
    return (name, counted.source, *counts, *means)


def _range(numbers: Sequence[float]) -> str:
    low, high = units.number(min(numbers)), units.number(max(numbers))
    return low if low == high else f"{low} to {high}"


def _present(figures: Sequence[Figure | None]) -> list[Figure]:
    return [figure for figure in figures if figure]
