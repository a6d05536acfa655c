"""Charts of latency: against throughput, and by percentile; of one report or of several."""

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from triptych_bench.measure.distribution import PERCENTS
from triptych_bench.reports import summary, svg, units
from triptych_bench.reports.scale import LogScale, TailScale, fitting, from_zero
from triptych_bench.reports.svg import Axis, Figure, Frame, LegendEntry, Point
from triptych_bench.results import Distribution, Run

FRAME = Frame(left=56, top=38, right=536, bottom=316)
SIZE = (556, 364)
SERIES = (("50", "p50", "circle"), ("90", "p90", "square"), ("99", "p99", "triangle"))
MOST_CURVES = 8  # that can be distinguished
PERCENTILE_HEAD = (*(f"p{name} (ms)" for name in PERCENTS), "slowest (ms)", "requests")


def latency_axis(seconds: Sequence[float]) -> Axis:
    """Return an axis for durations, with a suitable unit."""
    factor, unit = units.unit_of(max(seconds))
    scale = fitting([one * factor for one in seconds])
    label = f"latency ({unit}, logarithmic)" if isinstance(scale, LogScale) else f"latency ({unit})"
    return Axis(scale=scale, label=label, factor=factor)


def _throughput_axis(runs: Sequence[Run]) -> Axis:
    return Axis(scale=from_zero([run.throughput for run in runs]), label="throughput (inputs/s)", grid=False)


def tradeoff(runs: Sequence[Run]) -> Figure | None:
    """Plot latencies against throughput; None for fewer than two loads."""
    runs = sorted((run for run in runs if run.latency.count and run.latency.percentiles), key=summary.load_of)
    if len(runs) < 2:
        return None
    return Figure(
        name="tradeoff",
        title="Latency against throughput",
        text=_tradeoff_text(runs),
        picture=_tradeoff_picture(runs),
        keys=[LegendEntry(name, name, "box" if shape == "square" else shape) for _, name, shape in SERIES],
        head=("load", "inputs/s", *(f"{name} (ms)" for _, name, _ in SERIES)),
        rows=[
            (run.name, units.number(run.throughput), *(units.millis(run.latency.percentiles.get(one)) for one, _, _ in SERIES))
            for run in runs
        ],
    )


def _tradeoff_picture(runs: Sequence[Run]) -> Markup:
    latencies = [run.latency.percentiles[one] for run in runs for one, _, _ in SERIES if one in run.latency.percentiles]
    limit = _limit(runs, max(latencies))
    x, y = _throughput_axis(runs), latency_axis([*latencies, *([limit] if limit else [])])
    curves = [_run_curve(runs, percentile, name, name, shape, x, y) for percentile, name, shape in SERIES]
    return svg.picture(
        *SIZE,
        "Latency against throughput",
        "xy",
        svg.y_axis(FRAME, y),
        svg.x_axis(FRAME, x),
        _limit_line(limit, y) if limit else "",
        curves,
        _load_labels(runs, x, y),
    )


def _places(runs: Sequence[Run], percentile: str, x: Axis, y: Axis) -> list[tuple[Run, float, Point]]:
    """Return the runs that have the percentile, with its value and position."""
    known = [(run, run.latency.percentiles[percentile]) for run in runs if percentile in run.latency.percentiles]
    return [(run, value, (FRAME.x(x(run.throughput)), FRAME.y(y(value)))) for run, value in known]


def _run_curve(runs: Sequence[Run], percentile: str, label: str, style: str, shape: str, x: Axis, y: Axis) -> Iterator[Markup]:
    """Draw one percentile of runs against their throughput; hollow marks are runs that may not be quoted."""
    places = _places(runs, percentile, x, y)
    yield svg.line([place for _, _, place in places], style)
    for run, seconds, place in places:
        yield svg.marker(place, style, shape, hollow=not run.trusted)
        head = f"{run.name}\n{label}" if label == f"p{percentile}" else f"{label}, {run.name}\np{percentile}"
        yield svg.tooltip(place, f"{head} {units.duration(seconds)}\n{units.number(run.throughput)} inputs/s")


def _load_labels(runs: Sequence[Run], x: Axis, y: Axis) -> Iterator[Markup]:
    """Write the loads to the left of the p99 curve, unless they would overlap."""
    taken: list[Point] = []
    for run, _, (px, py) in _places(runs, SERIES[-1][0], x, y):
        if any(abs(px - left) < 32 and abs(py - top) < 12 for left, top in taken):
            continue
        taken.append((px, py))
        text = f"{run.concurrency}" if run.concurrency is not None else units.number(run.offered_rate)
        left = px - 7 > FRAME.left + 34  # there is room next to the axis
        yield svg.element(
            "text", text, class_="note", x=px - 7 if left else px + 7, y=py - 7, text_anchor="end" if left else "start"
        )


def _limit(runs: Sequence[Run], highest: float) -> float | None:
    """Return the latency limit of all runs, unless it is far above all latencies."""
    limit = runs[0].latency_limit
    common = all(run.latency_limit == limit for run in runs)
    return limit if common and limit and limit <= 2 * highest else None


def _limit_line(limit: float, y: Axis) -> Markup:
    at = FRAME.y(y(limit))
    text, x = f"limit {units.duration(limit)}", FRAME.right - 4
    return svg.element(
        "g",
        svg.element("line", class_="limit", x1=FRAME.left, x2=FRAME.right, y1=at, y2=at),
        svg.element("text", text, class_="note limit-text", x=x, y=at - 5, text_anchor="end"),
    )


def _tradeoff_text(runs: Sequence[Run]) -> str:
    def described(run: Run) -> tuple[str, str, str]:
        return run.name, units.number(run.throughput), units.duration(run.latency.percentiles.get("99"))

    first, first_rate, first_p99 = described(runs[0])
    most, most_rate, most_p99 = described(max(runs, key=lambda run: run.throughput))
    text = (
        f"From {first} with {first_rate} inputs/s at a p99 of {first_p99} to {most} with {most_rate} inputs/s at {most_p99}. "
        "Small numbers are loads."
    )
    return text if all(run.trusted for run in runs) else f"{text} Hollow marks are runs that are not valid."


def tradeoff_of_reports(names: Sequence[str], runs: Sequence[Sequence[Run]], styles: Sequence[str]) -> Figure | None:
    """Plot the p99 of several reports against throughput; None if none has two loads."""
    drawn = [
        sorted((run for run in some if run.latency.count and "99" in run.latency.percentiles), key=summary.load_of)
        for some in runs
    ]
    series = [one for one in zip(names, drawn, styles, strict=True) if one[1]]
    if not any(len(some) > 1 for _, some, _ in series):
        return None
    every = [run for _, some, _ in series for run in some]
    x, y = _throughput_axis(every), latency_axis([run.latency.percentiles["99"] for run in every])
    curves = [_run_curve(some, "99", name, style, "circle", x, y) for name, some, style in series]
    return Figure(
        name="tradeoff",
        title="Latency against throughput",
        text="The p99 over the throughput that each load reached: lower and further to the right is better. "
        "Hollow marks are runs that are not valid.",
        picture=svg.picture(*SIZE, "Latency against throughput", "xy", svg.y_axis(FRAME, y), svg.x_axis(FRAME, x), curves),
        keys=[LegendEntry(name, style) for name, _, style in series],
        head=("report", "load", "inputs/s", "p99 (ms)"),
        rows=[
            (name, run.name, units.number(run.throughput), units.millis(run.latency.percentiles["99"]))
            for name, some, _ in series
            for run in some
        ],
    )


def percentiles(runs: Sequence[Run]) -> Figure | None:
    """Plot the latency percentiles of each load; None if no run has a curve."""
    runs = sorted((run for run in runs if len(curve(run.latency)) > 1), key=summary.load_of)
    drawn = spread(runs)
    if not drawn:
        return None
    left_out = f" {len(drawn)} of {len(runs)} loads are drawn." if len(drawn) < len(runs) else ""
    last = drawn[-1]
    half, slowest = units.duration(last.latency.percentiles.get("50")), units.duration(last.latency.maximum)
    text = (
        f"Share of requests that were no slower: under {last.name}, half took {half} or less, "
        f"and the slowest of {last.latency.count:,} took {slowest}.{left_out}"
    )
    series = [(run.name, run.latency, style) for run, style in zip(drawn, ramp(len(drawn)), strict=True)]
    return percentile_figure("Percentiles of latency", text, "load", series)


def percentile_figure(title: str, text: str, column: str, series: Sequence[tuple[str, Distribution, str]]) -> Figure:
    """Plot distributions by percentile, each with a name and a style."""
    rows = [
        (
            name,
            *(units.millis(distribution.percentiles.get(one)) for one in PERCENTS),
            units.millis(distribution.maximum),
            f"{distribution.count:,}",
        )
        for name, distribution, _ in series
    ]
    return Figure(
        name="percentiles",
        title=title,
        text=text,
        picture=_percentile_picture(series),
        keys=[LegendEntry(name, style, "line") for name, _, style in series],
        head=(column, *PERCENTILE_HEAD),
        rows=rows,
    )


def _percentile_picture(series: Sequence[tuple[str, Distribution, str]]) -> Markup:
    curves = [curve(distribution) for _, distribution, _ in series]
    highest = max(fraction for points in curves for fraction, _ in points)
    nines = min(max(-math.log10(max(1 - highest, 1e-6)), 1.0), 6.0)
    x = Axis(scale=TailScale(nines), label="percentile", shown=percentile_name)
    y = latency_axis([seconds for points in curves for _, seconds in points])
    places = [[(FRAME.x(x(one)), FRAME.y(y(seconds))) for one, seconds in points] for points in curves]
    lines = [svg.line(points, style) for points, (_, _, style) in zip(places, series, strict=True)]
    tooltips = [
        svg.tooltip(place, f"{name}\np{percentile_name(fraction)} {units.duration(seconds)}")
        for (name, _, _), points, line_places in zip(series, curves, places, strict=True)
        for (fraction, seconds), place in zip(points, line_places, strict=True)
    ]
    return svg.picture(*SIZE, "Percentiles of latency", "xy", svg.y_axis(FRAME, y), svg.x_axis(FRAME, x), lines, tooltips)


def curve(distribution: Distribution) -> Sequence[tuple[float, float]]:
    """Return fractions and seconds; the slowest of n requests, at fraction 1, is drawn at 1 - 1/2n."""
    if not distribution.count:
        return []
    points = distribution.curve or [(float(name) / 100, seconds) for name, seconds in distribution.percentiles.items()]
    last = 1 - 0.5 / distribution.count
    return sorted((min(fraction, last), seconds) for fraction, seconds in points)


def ramp(count: int) -> list[str]:
    """Return styles from light to dark."""
    return [f"step{round(index * (MOST_CURVES - 1) / max(count - 1, 1))}" for index in range(count)] if count > 1 else ["step1"]


def spread(runs: Sequence[Run]) -> list[Run]:
    """Choose at most MOST_CURVES runs, with the first and the last."""
    if len(runs) <= MOST_CURVES:
        return list(runs)
    return [runs[round(index * (len(runs) - 1) / (MOST_CURVES - 1))] for index in range(MOST_CURVES)]


def percentile_name(fraction: float) -> str:
    """Format 0.999 as `99.9`, with a digit for each nine."""
    decimals = math.ceil(-math.log10(max(1 - fraction, 1e-6)))
    text = f"{fraction * 100:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
