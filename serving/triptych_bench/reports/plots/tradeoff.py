"""Latency against throughput: what a load costs, and where more load no longer brings more."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from triptych_bench.reports import facts, units
from triptych_bench.reports.charts import axes, marks, scale
from triptych_bench.reports.charts.figure import Figure, Key, picture
from triptych_bench.reports.charts.svg import element
from triptych_bench.reports.remarks import trusted
from triptych_bench.results import Run

FRAME = axes.Frame(left=56, top=38, right=536, bottom=316)
SIZE = (556, 364)
SERIES = (("50", "p50", "circle"), ("90", "p90", "square"), ("99", "p99", "triangle"))


def tradeoff(runs: Sequence[Run]) -> Figure | None:
    """None where fewer than two loads were tried: there is nothing to trade."""
    runs = sorted((run for run in runs if run.latency.count and run.latency.percentiles), key=facts.load)
    if len(runs) < 2:
        return None
    return Figure(
        name="tradeoff",
        title="Latency against throughput",
        text=_text(runs),
        picture=_picture(runs),
        keys=[Key(name, name, "box" if shape == "square" else shape) for _, name, shape in SERIES],
        head=("load", "inputs/s", *(f"{name} (ms)" for _, name, _ in SERIES)),
        rows=[
            (run.name, units.number(run.throughput), *(units.millis(run.latency.percentiles.get(one)) for one, _, _ in SERIES))
            for run in runs
        ],
    )


def _picture(runs: Sequence[Run]) -> Markup:
    latencies = [run.latency.percentiles[one] for run in runs for one, _, _ in SERIES if one in run.latency.percentiles]
    limit = _limit(runs, max(latencies))
    x, (y, factor) = _x_axis(runs), latency_axis([*latencies, *([limit] if limit else [])])
    places = [[_place(run, one, x, y, factor) for run in runs if one in run.latency.percentiles] for one, _, _ in SERIES]
    return picture(
        *SIZE,
        "Latency against throughput",
        "xy",
        axes.left(FRAME, y),
        axes.bottom(FRAME, x),
        _limit_line(limit, y, factor) if limit else "",
        [marks.line(line, name) for line, (_, name, _) in zip(places, SERIES, strict=True)],
        [_points(runs, line, *series) for line, series in zip(places, SERIES, strict=True)],
        _loads(runs, places[-1]),
    )


def latency_axis(seconds: Sequence[float]) -> tuple[axes.Axis, float]:
    """An axis for durations, and the factor from seconds to its unit."""
    factor, unit = units.unit_of(max(seconds))
    made = scale.fitting([one * factor for one in seconds])
    label = f"latency ({unit}, logarithmic)" if isinstance(made, scale.Log) else f"latency ({unit})"
    return axes.Axis(scale=made, label=label, shown=lambda tick: f"{tick:,.6g}"), factor


def _x_axis(runs: Sequence[Run]) -> axes.Axis:
    made = scale.from_zero([run.throughput for run in runs])
    return axes.Axis(scale=made, label="throughput (inputs/s)", shown=lambda tick: f"{tick:,.6g}", grid=False)


def _place(run: Run, percentile: str, x: axes.Axis, y: axes.Axis, factor: float) -> marks.Place:
    return FRAME.x(x.scale(run.throughput)), FRAME.y(y.scale(run.latency.percentiles[percentile] * factor))


def _points(runs: Sequence[Run], line: Sequence[marks.Place], percentile: str, name: str, shape: str) -> Iterator[Markup]:
    runs = [run for run in runs if percentile in run.latency.percentiles]
    for run, place in zip(runs, line, strict=True):
        latency = units.duration(run.latency.percentiles[percentile])
        yield marks.point(place, name, shape, hollow=not trusted(run))
        yield marks.hit(place, f"{run.name}\n{name} {latency}\n{units.number(run.throughput)} inputs/s")


def _loads(runs: Sequence[Run], line: Sequence[marks.Place]) -> Iterator[Markup]:
    """Names of loads, to the left of where the curve comes from below."""
    runs, taken = [run for run in runs if SERIES[-1][0] in run.latency.percentiles], list[marks.Place]()
    for run, (x, y) in zip(runs, line, strict=True):
        if any(abs(x - left) < 32 and abs(y - top) < 12 for left, top in taken):
            continue  # one over the other could not be read
        taken.append((x, y))
        text = f"{run.concurrency}" if run.concurrency is not None else units.number(run.offered_rate)
        left = x - 7 > FRAME.left + 34  # where there is room for it beside the axis
        yield element("text", text, class_="note", x=x - 7 if left else x + 7, y=y - 7, text_anchor="end" if left else "start")


def _limit(runs: Sequence[Run], highest: float) -> float | None:
    """What all runs had to meet, unless it is far above everything."""
    limits = {run.latency_limit for run in runs}
    [limit] = limits if len(limits) == 1 else [None]
    return limit if limit and limit <= 2 * highest else None


def _limit_line(limit: float, y: axes.Axis, factor: float) -> Markup:
    at = FRAME.y(y.scale(limit * factor))
    line = element("line", class_="limit", x1=FRAME.left, x2=FRAME.right, y1=at, y2=at)
    return element(
        "g",
        line,
        element(
            "text", f"limit {units.duration(limit)}", class_="note limit-text", x=FRAME.right - 4, y=at - 5, text_anchor="end"
        ),
    )


def _text(runs: Sequence[Run]) -> str:
    least, most = runs[0], max(runs, key=lambda run: run.throughput)
    said = (
        f"From {least.name} with {units.number(least.throughput)} inputs/s at a p99 of {_p99(least)} "
        f"to {most.name} with {units.number(most.throughput)} inputs/s at {_p99(most)}. "
        "Small numbers are loads."
    )
    return said if all(map(trusted, runs)) else f"{said} Hollow marks are runs that are not valid."


def _p99(run: Run) -> str:
    return units.duration(run.latency.percentiles.get("99"))
