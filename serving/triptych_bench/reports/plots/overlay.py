"""Latency against throughput of several reports in one picture."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from triptych_bench.reports import facts, units
from triptych_bench.reports.charts import axes, marks, scale
from triptych_bench.reports.charts.figure import Figure, Key, picture
from triptych_bench.reports.plots.tradeoff import FRAME, SIZE, latency_axis
from triptych_bench.reports.remarks import trusted
from triptych_bench.results import Run

PERCENTILE = "99"


def overlay(names: Sequence[str], runs: Sequence[Sequence[Run]], styles: Sequence[str]) -> Figure | None:
    """A curve a report; None where none has two loads."""
    sorted_runs = [sorted(filter(_drawn, some), key=facts.load) for some in runs]
    series = [one for one in zip(names, sorted_runs, styles, strict=True) if one[1]]
    if not any(len(some) > 1 for _, some, _ in series):
        return None
    return Figure(
        name="tradeoff",
        title="Latency against throughput",
        text="The p99 over the throughput that each load reached: lower and further to the right is better. "
        "Hollow marks are runs that are not valid.",
        picture=_picture(series),
        keys=[Key(name, style) for name, _, style in series],
        head=("report", "load", "inputs/s", "p99 (ms)"),
        rows=[
            (name, run.name, units.number(run.throughput), units.millis(run.latency.percentiles[PERCENTILE]))
            for name, some, _ in series
            for run in some
        ],
    )


def _drawn(run: Run) -> bool:
    """Whether anything was answered."""
    return run.latency.count > 0 and PERCENTILE in run.latency.percentiles


def _picture(series: Sequence[tuple[str, Sequence[Run], str]]) -> Markup:
    runs = [run for _, some, _ in series for run in some]
    made = scale.from_zero([run.throughput for run in runs])
    x = axes.Axis(scale=made, label="throughput (inputs/s)", shown=lambda tick: f"{tick:,.6g}", grid=False)
    y, factor = latency_axis([run.latency.percentiles[PERCENTILE] for run in runs])
    drawn = [list(_series(*one, x, y, factor)) for one in series]
    return picture(*SIZE, "Latency against throughput", "xy", axes.left(FRAME, y), axes.bottom(FRAME, x), drawn)


def _series(name: str, runs: Sequence[Run], style: str, x: axes.Axis, y: axes.Axis, factor: float) -> Iterator[Markup]:
    latencies = [run.latency.percentiles[PERCENTILE] for run in runs]
    places = [
        (FRAME.x(x.scale(run.throughput)), FRAME.y(y.scale(seconds * factor)))
        for run, seconds in zip(runs, latencies, strict=True)
    ]
    yield marks.line(places, style)
    for run, seconds, place in zip(runs, latencies, places, strict=True):
        yield marks.point(place, style, hollow=not trusted(run))
        said = f"{name}, {run.name}\np99 {units.duration(seconds)}\n{units.number(run.throughput)} inputs/s"
        yield marks.hit(place, said)
