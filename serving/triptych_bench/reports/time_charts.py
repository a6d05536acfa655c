"""Charts of time: the stages of a request, and a run second by second."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from triptych_bench.reports import summary, svg, units
from triptych_bench.reports.latency_charts import latency_axis
from triptych_bench.reports.scale import ending, from_zero
from triptych_bench.reports.svg import Axis, Figure, Frame, LegendEntry
from triptych_bench.results import Run, TimelineEntry

PARTS = {
    "client_send": "client send",
    "network": "network",
    "server_queue": "server queue",
    "server_preprocess": "server preprocess",
    "server_compute": "server compute",
    "server_postprocess": "server postprocess",
    "client_receive": "client receive",
}
ROW, BAR = 34.0, 20.0
WIDTH, LEFT, RIGHT, TOP = 1116.0, 172.0, 1030.0, 12.0

UPPER = Frame(left=56, top=38, right=1096, bottom=150)
LOWER = Frame(left=56, top=194, right=1096, bottom=316)
TIMELINE_SIZE = (1116, 364)
SERIES = ("p50", "p99")
TIMELINE_KEYS = (
    LegendEntry("completed, counts", "done", "square"),
    LegendEntry("completed, does not count", "early", "square"),
    LegendEntry("failed", "failed", "square"),
    *(LegendEntry(name, name, "line") for name in SERIES),
)


def breakdown(runs: Sequence[Run]) -> Figure | None:
    """Draw the mean time of each stage of a request; None if no run has any."""
    runs = sorted((run for run in runs if total_time(run)), key=summary.load_of)
    if not runs:
        return None
    known = [(name, label) for name, label in PARTS.items() if any(getattr(run.parts, name) is not None for run in runs)]
    last = runs[-1]
    longest = max(PARTS, key=lambda name: getattr(last.parts, name) or 0.0)
    share = units.percent((getattr(last.parts, longest) or 0.0) / total_time(last))
    return Figure(
        name="parts",
        title="Where the time goes",
        text=f"Means over all requests that count. Under {last.name}, {share} of the time is {PARTS[longest]}.",
        picture=_breakdown_picture(runs),
        keys=[LegendEntry(label, name.replace("_", "-"), "square") for name, label in known],
        head=("load", *(f"{label} (ms)" for _, label in known), "together (ms)"),
        rows=[
            (run.name, *(units.millis(getattr(run.parts, name)) for name, _ in known), units.millis(total_time(run)))
            for run in runs
        ],
        wide=True,
    )


def total_time(run: Run) -> float:
    return sum(getattr(run.parts, name) or 0.0 for name in PARTS)


def _breakdown_picture(runs: Sequence[Run]) -> Markup:
    factor, unit = units.unit_of(max(map(total_time, runs)))
    scale = from_zero([total_time(run) * factor for run in runs], 10)
    x = Axis(scale=scale, label=f"mean time of a request ({unit})", factor=factor)
    frame = Frame(left=LEFT, top=TOP, right=RIGHT, bottom=TOP + ROW * len(runs))
    rows = [_breakdown_row(run, index, frame, x) for index, run in enumerate(runs)]
    return svg.picture(WIDTH, frame.bottom + 48, "Where the time goes", "element", svg.x_axis(frame, x), rows)


def _breakdown_row(run: Run, index: int, frame: Frame, x: Axis) -> Iterator[Markup]:
    top, at = frame.top + ROW * index + (ROW - BAR) / 2, 0.0
    yield svg.element("text", run.name, class_="tick strong", x=frame.left - 10, y=top + BAR / 2 + 4, text_anchor="end")
    for name, label in PARTS.items():
        seconds = getattr(run.parts, name) or 0.0
        left, at = frame.x(x(at)), at + seconds
        text = f"{run.name}\n{label} {units.duration(seconds)}\n{units.percent(seconds / total_time(run))} of the time"
        if seconds > 0:
            yield svg.bar(left, top, frame.x(x(at)) - left, BAR, name.replace("_", "-"), text)
    yield svg.element("text", units.duration(at), class_="tick", x=frame.x(x(at)) + 8, y=top + BAR / 2 + 4)


def timeline(run: Run, name: str = "timeline") -> Figure | None:
    """Draw a run second by second; None without a timeline."""
    if not run.moments:
        return None
    counted = sum(moment.steady for moment in run.moments)
    return Figure(
        name=name,
        title=f"Time line of {run.name}",
        text=f"{counted} of {len(run.moments)} seconds count, those with a shaded background; before them is the warm-up.",
        picture=_timeline_picture(run.moments),
        keys=TIMELINE_KEYS,
        head=("second", "completed", "failed", "p50 (ms)", "p99 (ms)", "counts"),
        rows=[
            (
                f"{moment.start:g}",
                f"{moment.completed:,}",
                f"{moment.failed:,}",
                units.millis(moment.p50),
                units.millis(moment.p99),
                "yes" if moment.steady else "no",
            )
            for moment in run.moments
        ],
        wide=True,
    )


def _timeline_picture(moments: Sequence[TimelineEntry]) -> Markup:
    end = max(moment.start for moment in moments) + 1
    x = Axis(scale=ending(end, 15), label="seconds", grid=False)
    counts = from_zero([float(moment.completed + moment.failed) for moment in moments], 4)
    upper = Axis(scale=counts, label="requests completed each second")
    lower = latency_axis([one for moment in moments for one in (moment.p50, moment.p99) if one is not None] or [1e-3])
    return svg.picture(
        *TIMELINE_SIZE,
        "Time line",
        "x",
        [_steady_background(frame, moments, x) for frame in (UPPER, LOWER)],
        (svg.y_axis(UPPER, upper), svg.x_axis(UPPER, x, texts=False), [_bars(one, x, upper) for one in moments]),
        (
            svg.y_axis(LOWER, lower),
            svg.x_axis(LOWER, x),
            [_latency_line(moments, series, x, lower) for series in SERIES],
        ),
        svg.element("line", class_="cursor", x1=0, x2=0, y1=UPPER.top, y2=LOWER.bottom),
        [svg.tooltip((UPPER.x(x(one.start + 0.5)), UPPER.bottom), _tooltip_text(one)) for one in moments],
    )


def _steady_background(frame: Frame, moments: Sequence[TimelineEntry], x: Axis) -> Iterator[Markup]:
    for first, last in _stretches([moment.steady for moment in moments]):
        left, right = (frame.x(x(at)) for at in (moments[first].start, moments[last].start + 1))
        yield svg.bar(left, frame.top, right - left, frame.bottom - frame.top, "steady")


def _bars(moment: TimelineEntry, x: Axis, y: Axis) -> Iterator[Markup]:
    left, right = (UPPER.x(x(at)) for at in (moment.start, moment.start + 1))
    gap = 1.0 if right - left > 5 else 0.0
    middle, top = UPPER.y(y(moment.completed)), UPPER.y(y(moment.completed + moment.failed))
    yield svg.bar(left + gap / 2, middle, right - left - gap, UPPER.bottom - middle, "done" if moment.steady else "early")
    if moment.failed:
        yield svg.bar(left + gap / 2, top, right - left - gap, middle - top, "failed")


def _latency_line(moments: Sequence[TimelineEntry], series: str, x: Axis, y: Axis) -> Iterator[Markup]:
    """Draw a line, with gaps at seconds without a completed request."""
    values = [moment.p50 if series == "p50" else moment.p99 for moment in moments]
    for first, last in _stretches([value is not None for value in values]):
        places = [
            (LOWER.x(x(moments[index].start + 0.5)), LOWER.y(y(values[index] or 0.0))) for index in range(first, last + 1)
        ]
        yield svg.line(places, series) if len(places) > 1 else svg.marker(places[0], series)


def _stretches(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield first and last index of each series of true flags."""
    first = None
    for index, flag in enumerate([*flags, False]):
        if flag and first is None:
            first = index
        elif not flag and first is not None:
            yield first, index - 1
            first = None


def _tooltip_text(moment: TimelineEntry) -> str:
    failed = f", {moment.failed:,} failed" if moment.failed else ""
    counts = "" if moment.steady else "\ndoes not count"
    latencies = f"p50 {units.duration(moment.p50)}, p99 {units.duration(moment.p99)}"
    return f"second {moment.start:g}\n{moment.completed:,} completed{failed}\n{latencies}{counts}"
