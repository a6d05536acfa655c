"""The frame of a chart: where things are, grid lines, labels of ticks and axes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from triptych_bench.reports.charts.scale import Scale
from triptych_bench.reports.charts.svg import element

Shown = Callable[[float], str]


@dataclass(frozen=True, kw_only=True)
class Frame:
    """Pixels of the plotting area, in the picture's own units."""

    left: float
    top: float
    right: float
    bottom: float

    def x(self, part: float) -> float:
        """0 is left, 1 is right."""
        return self.left + part * (self.right - self.left)

    def y(self, part: float) -> float:
        """0 is at the bottom, 1 at the top."""
        return self.bottom - part * (self.bottom - self.top)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A scale, and what stands at it."""

    scale: Scale
    label: str
    shown: Shown  # of a tick
    grid: bool = True


def bottom(frame: Frame, axis: Axis, titled: bool = True, ticks: bool = True) -> Markup:
    """The x axis; one below another chart's may leave its texts to that."""
    marks = [
        _x_tick(frame, frame.x(axis.scale(tick)), axis.shown(tick) if ticks else "", axis.grid) for tick in axis.scale.ticks
    ]
    line = element("line", class_="axis", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom)
    middle = (frame.left + frame.right) / 2
    title = element("text", axis.label, class_="label", x=middle, y=frame.bottom + 36, text_anchor="middle") if titled else ""
    return element("g", marks, line, title)


def left(frame: Frame, axis: Axis) -> Markup:
    """The y axis; its label stands above it, where it can be read without turning one's head."""
    marks = [_y_tick(frame, frame.y(axis.scale(tick)), axis.shown(tick), axis.grid) for tick in axis.scale.ticks]
    title = element("text", axis.label, class_="label", x=frame.left - 46, y=frame.top - 12)
    return element("g", marks, title)


def _x_tick(frame: Frame, x: float, text: str, grid: bool) -> Iterator[Markup]:
    top = frame.top if grid else frame.bottom
    yield element("line", class_="grid", x1=x, x2=x, y1=top, y2=frame.bottom + 4)
    yield element("text", text, class_="tick", x=x, y=frame.bottom + 17, text_anchor="middle")


def _y_tick(frame: Frame, y: float, text: str, grid: bool) -> Iterator[Markup]:
    if grid:
        yield element("line", class_="grid", x1=frame.left, x2=frame.right, y1=y, y2=y)
    yield element("text", text, class_="tick", x=frame.left - 8, y=y + 4, text_anchor="end")
