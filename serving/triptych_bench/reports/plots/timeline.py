"""A run second by second: whether it was steady where it counts."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from triptych_bench.reports import units
from triptych_bench.reports.charts import axes, marks, scale
from triptych_bench.reports.charts.figure import Figure, Key, picture
from triptych_bench.reports.charts.svg import element
from triptych_bench.reports.plots.tradeoff import latency_axis
from triptych_bench.results import Moment, Run

UPPER = axes.Frame(left=56, top=38, right=1096, bottom=150)
LOWER = axes.Frame(left=56, top=194, right=1096, bottom=316)
SIZE = (1116, 364)
SERIES = ("p50", "p99")
KEYS = (
    Key("completed, counts", "done", "square"),
    Key("completed, does not count", "early", "square"),
    Key("failed", "failed", "square"),
    *(Key(name, name, "line") for name in SERIES),
)


def timeline(run: Run, name: str = "timeline") -> Figure | None:
    """None where the run was not followed."""
    if not run.moments:
        return None
    return Figure(
        name=name,
        title=f"Time line of {run.name}",
        text=_text(run),
        picture=_picture(run.moments),
        keys=KEYS,
        head=("second", "completed", "failed", "p50 (ms)", "p99 (ms)", "counts"),
        rows=[_row(moment) for moment in run.moments],
        wide=True,
    )


def _picture(moments: Sequence[Moment]) -> Markup:
    end = max(moment.start for moment in moments) + 1
    x = axes.Axis(scale=scale.ending(end, 15), label="seconds", shown=lambda tick: f"{tick:,.6g}", grid=False)
    counts = scale.from_zero([float(moment.completed + moment.failed) for moment in moments], 4)
    upper = axes.Axis(scale=counts, label="requests completed each second", shown=lambda tick: f"{tick:,.6g}")
    lower, factor = latency_axis([one for moment in moments for one in (moment.p50, moment.p99) if one is not None] or [1e-3])
    return picture(
        *SIZE,
        "Time line",
        "x",
        [_steady(frame, moments, x) for frame in (UPPER, LOWER)],
        (axes.left(UPPER, upper), axes.bottom(UPPER, x, titled=False, ticks=False), [_bars(one, x, upper) for one in moments]),
        (axes.left(LOWER, lower), axes.bottom(LOWER, x), [_line(moments, series, x, lower, factor) for series in SERIES]),
        element("line", class_="cursor", x1=0, x2=0, y1=UPPER.top, y2=LOWER.bottom),
        [marks.hit((UPPER.x(x.scale(one.start + 0.5)), UPPER.bottom), _said(one)) for one in moments],
    )


def _steady(frame: axes.Frame, moments: Sequence[Moment], x: axes.Axis) -> Iterator[Markup]:
    """What counts, as a band behind it."""
    for first, last in _stretches([moment.steady for moment in moments]):
        left, right = (frame.x(x.scale(at)) for at in (moments[first].start, moments[last].start + 1))
        yield marks.bar(left, frame.top, right - left, frame.bottom - frame.top, "steady")


def _bars(moment: Moment, x: axes.Axis, y: axes.Axis) -> Iterator[Markup]:
    left, right = (UPPER.x(x.scale(at)) for at in (moment.start, moment.start + 1))
    gap = 1.0 if right - left > 5 else 0.0
    middle, top = UPPER.y(y.scale(moment.completed)), UPPER.y(y.scale(moment.completed + moment.failed))
    yield marks.bar(left + gap / 2, middle, right - left - gap, UPPER.bottom - middle, "done" if moment.steady else "early")
    if moment.failed:
        yield marks.bar(left + gap / 2, top, right - left - gap, middle - top, "failed")


def _line(moments: Sequence[Moment], series: str, x: axes.Axis, y: axes.Axis, factor: float) -> Iterator[Markup]:
    """Interrupted where nothing was completed."""
    values = [moment.p50 if series == "p50" else moment.p99 for moment in moments]
    for first, last in _stretches([value is not None for value in values]):
        places = [
            (LOWER.x(x.scale(moments[index].start + 0.5)), LOWER.y(y.scale((values[index] or 0.0) * factor)))
            for index in range(first, last + 1)
        ]
        yield marks.line(places, series) if len(places) > 1 else marks.point(places[0], series)


def _stretches(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """First and last index of each series of true ones."""
    first = None
    for index, flag in enumerate([*flags, False]):
        if flag and first is None:
            first = index
        elif not flag and first is not None:
            yield first, index - 1
            first = None


def _said(moment: Moment) -> str:
    failed = f", {moment.failed:,} failed" if moment.failed else ""
    counts = "" if moment.steady else "\ndoes not count"
    latencies = f"p50 {units.duration(moment.p50)}, p99 {units.duration(moment.p99)}"
    return f"second {moment.start:g}\n{moment.completed:,} completed{failed}\n{latencies}{counts}"


def _row(moment: Moment) -> tuple[str, ...]:
    counts = "yes" if moment.steady else "no"
    return (
        f"{moment.start:g}",
        f"{moment.completed:,}",
        f"{moment.failed:,}",
        units.millis(moment.p50),
        units.millis(moment.p99),
        counts,
    )


def _text(run: Run) -> str:
    counted = sum(moment.steady for moment in run.moments)
    return f"{counted} of {len(run.moments)} seconds count, those on shaded ground; before them it warms up and settles."
