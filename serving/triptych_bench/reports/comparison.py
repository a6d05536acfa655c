"""Comparisons as plain text for a terminal, and as JSON for scripts."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from triptych_bench.comparison import ComparedValue, Comparison, MatchedLoad, MetricRow
from triptych_bench.reports import summary, units
from triptych_bench.reports.table import GAP, WIDTH, aligned, wrapped

MAIN = ("throughput", "p50 latency", "p99 latency", "output tokens", "goodput")  # all metrics are in the page and in the JSON
SHOWN = {"seconds": units.duration, "bytes": units.size, "rate": units.number, "number": units.number}


def render(comparison: Comparison, width: int = WIDTH) -> str:
    """Return lines of at most `width` characters, as far as names allow, without a newline at the end."""
    parts = [_heading(comparison, width)]
    for index, name in enumerate(comparison.names[1:]):
        parts += [_headline(comparison, index, name), *_tables(comparison, index, name, width)]
    if comparison.unmatched:
        unmatched = "; ".join(f"{report}, {run}" for report, run in comparison.unmatched)
        parts.append(wrapped(f"Without a counterpart: {unmatched}", width, rest="  "))
    parts.append("\n".join(wrapped(one, width, "! ", "  ") for one in comparison.warnings))
    return "\n\n".join(filter(None, parts))


def dumps(comparison: Comparison) -> str:
    """Return a JSON object: `names`, `headline`, `matches` with all metrics, `unmatched`, `differences`, `warnings`."""
    value: dict[str, Any] = {
        "format": "triptych-bench-comparison",
        "version": 1,
        "names": comparison.names,
        "headline": [dataclasses.asdict(line) for line in comparison.headline],
        "matches": [_match(match) for match in comparison.matches],
        "unmatched": [{"report": report, "run": run} for report, run in comparison.unmatched],
        "differences": [dataclasses.asdict(one) for one in comparison.differences],
        "warnings": comparison.warnings,
    }
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def shown(value: float | None, kind: str) -> str:
    return SHOWN[kind](value)


def _match(match: MatchedLoad) -> dict[str, Any]:
    load = ("name", "scenario", "concurrency", "offered_rate", "inputs_per_request")
    return {
        **{name: getattr(match.first, name) for name in load},
        "lines": [dataclasses.asdict(line) for line in match.lines],
    }


def _heading(comparison: Comparison, width: int) -> str:
    named = zip(comparison.names, comparison.reports, strict=True)
    lines = (f"{name}: {summary.title(report)}, {summary.subject(report)}" for name, report in named)
    return "\n".join(wrapped(line, width, rest="  ") for line in lines)


def _headline(comparison: Comparison, index: int, name: str) -> str:
    rows = [
        (units.named(line.name, 0.0)[0], *_cells(line, line.others[index]))
        for line in comparison.headline
        if line.others[index].value is not None
    ]
    return "\n".join(aligned([(f"{comparison.names[0]} and {name}", "", "", "", ""), *rows])) if rows else ""


def _tables(comparison: Comparison, index: int, name: str, width: int) -> Iterator[str]:
    """Yield a table for each scenario, with as many of the main metrics as fit."""
    matches = [match for match in comparison.matches if match.others[index]]
    for scenario, group in groupby(matches, attrgetter("first.scenario")):
        found = list(group)
        metrics = [metric for metric in MAIN if any(line.name == metric for match in found for line in match.lines)]
        title = f"{scenario}: {comparison.names[0]} → {name}"
        while len(metrics) > 1 and len(max(_rows(found, index, metrics, title), key=len)) > width:
            metrics.pop()
        yield "\n".join(_rows(found, index, metrics, title))


def _rows(matches: Sequence[MatchedLoad], index: int, metrics: Sequence[str], title: str) -> list[str]:
    columns = [_column(metric, [_line(match, metric) for match in matches], index) for metric in metrics]
    names = _padded(["", *(match.first.name for match in matches)])
    return [title, *(GAP.join(row).rstrip() for row in zip(names, *columns, strict=True))]


def _line(match: MatchedLoad, metric: str) -> MetricRow | None:
    return next((line for line in match.lines if line.name == metric), None)


def _column(name: str, lines: Sequence[MetricRow | None], index: int) -> list[str]:
    """Format cells as `55.9 → 72.7 1.30x better`, below the name."""
    cells = [_cells(line, line.others[index]) if line else ("", "", "", "") for line in lines]
    firsts, _, seconds, verdicts = zip(*cells, strict=True)
    before, after = _padded(firsts, str.rjust), _padded(seconds, str.rjust)
    together = [f"{one} → {two} {word}" if one.strip() else "" for one, two, word in zip(before, after, verdicts, strict=True)]
    return _padded([name, *together])


def _padded(texts: Sequence[str], pad: Callable[[str, int], str] = str.ljust) -> list[str]:
    return [pad(text, max(map(len, texts))) for text in texts]


def _cells(line: MetricRow, cell: ComparedValue) -> tuple[str, str, str, str]:
    verdict = f"{cell.ratio:.2f}x {cell.verdict}".rstrip() if cell.ratio is not None else ""
    return shown(line.first, line.kind), "→", shown(cell.value, line.kind), verdict
