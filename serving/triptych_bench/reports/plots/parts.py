"""Where the time of a request goes: the client's parts, the network's, and the server's as the server says."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from triptych_bench.reports import facts, units
from triptych_bench.reports.charts import axes, marks, scale
from triptych_bench.reports.charts.figure import Figure, Key, picture
from triptych_bench.reports.charts.svg import element
from triptych_bench.results import Run

PARTS = (
    ("client_send", "client send"),
    ("network", "network"),
    ("server_queue", "server queue"),
    ("server_preprocess", "server preprocess"),
    ("server_compute", "server compute"),
    ("server_postprocess", "server postprocess"),
    ("client_receive", "client receive"),
)
ROW, BAR = 34.0, 20.0
WIDTH, LEFT, RIGHT, TOP = 1116.0, 172.0, 1030.0, 12.0


def parts(runs: Sequence[Run]) -> Figure | None:
    """None where no run was taken apart."""
    runs = sorted((run for run in runs if total(run)), key=facts.load)
    if not runs:
        return None
    known = [(name, label) for name, label in PARTS if any(getattr(run.parts, name) is not None for run in runs)]
    return Figure(
        name="parts",
        title="Where the time goes",
        text=_text(runs),
        picture=_picture(runs),
        keys=[Key(label, name.replace("_", "-"), "square") for name, label in known],
        head=("load", *(f"{label} (ms)" for _, label in known), "together (ms)"),
        rows=[
            (run.name, *(units.millis(getattr(run.parts, name)) for name, _ in known), units.millis(total(run))) for run in runs
        ],
        wide=True,
    )


def total(run: Run) -> float:
    """Seconds of all known parts together."""
    return sum(getattr(run.parts, name) or 0.0 for name, _ in PARTS)


def _picture(runs: Sequence[Run]) -> Markup:
    factor, unit = units.unit_of(max(map(total, runs)))
    made = scale.from_zero([total(run) * factor for run in runs], 10)
    x = axes.Axis(scale=made, label=f"mean time of a request ({unit})", shown=lambda tick: f"{tick:,.6g}")
    frame = axes.Frame(left=LEFT, top=TOP, right=RIGHT, bottom=TOP + ROW * len(runs))
    rows = [_row(run, index, frame, x, factor) for index, run in enumerate(runs)]
    return picture(WIDTH, frame.bottom + 48, "Where the time goes", "element", axes.bottom(frame, x), rows)


def _row(run: Run, index: int, frame: axes.Frame, x: axes.Axis, factor: float) -> Iterator[Markup]:
    top, at = frame.top + ROW * index + (ROW - BAR) / 2, 0.0
    yield element("text", run.name, class_="tick strong", x=frame.left - 10, y=top + BAR / 2 + 4, text_anchor="end")
    for name, label in PARTS:
        seconds = getattr(run.parts, name) or 0.0
        left, at = frame.x(x.scale(at * factor)), at + seconds
        said = f"{run.name}\n{label} {units.duration(seconds)}\n{units.percent(seconds / total(run))} of the time"
        if seconds > 0:
            yield marks.bar(left, top, frame.x(x.scale(at * factor)) - left, BAR, name.replace("_", "-"), said)
    yield element("text", units.duration(at), class_="tick", x=frame.x(x.scale(at * factor)) + 8, y=top + BAR / 2 + 4)


def _text(runs: Sequence[Run]) -> str:
    last = runs[-1]
    name, label = max(PARTS, key=lambda part: getattr(last.parts, part[0]) or 0.0)
    share = units.percent((getattr(last.parts, name) or 0.0) / total(last))
    return f"Means over all requests that count. Under {last.name}, {share} of the time is {label}."
