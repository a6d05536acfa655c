"""The percentile curve: how slow the slowest are, each nine as wide as the one before, as HdrHistogram draws it."""

import math
from collections.abc import Sequence

from markupsafe import Markup

from triptych_bench.reports import facts, units
from triptych_bench.reports.charts import axes, marks
from triptych_bench.reports.charts.figure import Figure, Key, picture
from triptych_bench.reports.charts.scale import Tail
from triptych_bench.reports.plots.tradeoff import FRAME, SIZE, latency_axis
from triptych_bench.results import Distribution, Run

MOST = 8  # curves that can be told apart
SHOWN = ("50", "90", "95", "99", "99.9")
Curve = Sequence[tuple[float, float]]


def percentiles(runs: Sequence[Run]) -> Figure | None:
    """None where no run has a curve."""
    drawn = spread(sorted((run for run in runs if len(curve(run.latency)) > 1), key=facts.load))
    if not drawn:
        return None
    styles = ramp(len(drawn))
    return Figure(
        name="percentiles",
        title="Percentiles of latency",
        text=_text(runs, drawn),
        picture=chart([(run.name, run.latency) for run in drawn], styles),
        keys=[Key(run.name, style, "line") for run, style in zip(drawn, styles, strict=True)],
        head=("load", *(f"p{name} (ms)" for name in SHOWN), "slowest (ms)", "requests"),
        rows=[_row(run) for run in drawn],
    )


def chart(series: Sequence[tuple[str, Distribution]], styles: Sequence[str]) -> Markup:
    """A line for each distribution, by name."""
    curves = [curve(distribution) for _, distribution in series]
    x = _x_axis(max(fraction for points in curves for fraction, _ in points))
    y, factor = latency_axis([seconds for points in curves for _, seconds in points])
    places = [[(FRAME.x(x.scale(one)), FRAME.y(y.scale(seconds * factor))) for one, seconds in points] for points in curves]
    lines = [marks.line(line, style) for line, style in zip(places, styles, strict=True)]
    hits = [
        marks.hit(place, f"{name}\np{shown(fraction)} {units.duration(seconds)}")
        for (name, _), points, line in zip(series, curves, places, strict=True)
        for (fraction, seconds), place in zip(points, line, strict=True)
    ]
    return picture(*SIZE, "Percentiles of latency", "xy", axes.left(FRAME, y), axes.bottom(FRAME, x), lines, hits)


def curve(distribution: Distribution) -> Curve:
    """Its points; the slowest of n requests, at fraction 1, which no such axis reaches, stands at 1 - 1/2n. Of none, none."""
    if not distribution.count:
        return []
    points = distribution.curve or [(float(name) / 100, seconds) for name, seconds in distribution.percentiles.items()]
    last = 1 - 0.5 / max(distribution.count, 1)
    return sorted((min(fraction, last), seconds) for fraction, seconds in points)


def ramp(count: int) -> list[str]:
    """Styles from little to much."""
    return [f"step{round(index * (MOST - 1) / max(count - 1, 1))}" for index in range(count)] if count > 1 else ["step1"]


def spread(runs: Sequence[Run]) -> list[Run]:
    """At most MOST, with the first and the last."""
    if len(runs) <= MOST:
        return list(runs)
    return [runs[round(index * (len(runs) - 1) / (MOST - 1))] for index in range(MOST)]


def shown(fraction: float) -> str:
    """`99.9`: a fraction as percentiles are named, with a digit for each of its nines."""
    decimals = math.ceil(-math.log10(max(1 - fraction, 1e-6)))
    text = f"{fraction * 100:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _x_axis(highest: float) -> axes.Axis:
    nines = min(max(-math.log10(max(1 - highest, 1e-6)), 1.0), 6.0)
    return axes.Axis(scale=Tail(nines), label="percentile", shown=shown)


def _row(run: Run) -> tuple[str, ...]:
    values = (units.millis(run.latency.percentiles.get(name)) for name in SHOWN)
    return (run.name, *values, units.millis(run.latency.maximum), f"{run.latency.count:,}")


def _text(runs: Sequence[Run], drawn: Sequence[Run]) -> str:
    left_out = f" {len(drawn)} of {len(runs)} loads are drawn." if len(drawn) < len(runs) else ""
    last = drawn[-1]
    half = units.duration(last.latency.percentiles.get("50"))
    return (
        f"Share of requests that were no slower: under {last.name}, half took {half} or less, "
        f"and the slowest of {last.latency.count:,} took {units.duration(last.latency.maximum)}.{left_out}"
    )
