"""Charts as inline SVG: elements, axes, marks, and figures with a legend and a table of values.

Drawn without a library: a chart takes 4 to 7 KB. matplotlib's takes 21 to 33 KB and 0.9 s for the import, shows no values under
the pointer, and does not follow the page's light and dark colours.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from triptych_bench.reports.scale import Scale

Content = str | Markup | Iterable["Content"]
Point = tuple[float, float]


def element(tag: str, *content: Content, **attributes: str | float | None) -> Markup:
    """Make `<tag ...>content</tag>`.

    Args:
        attributes: With Python's spelling, such as `class_` and `stroke_width`; None leaves one out.
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{written}>{_joined(content)}</{tag}>")


def _joined(content: Content) -> str:
    if isinstance(content, str):  # Markup, too
        return str(escape(content))
    return "".join(map(_joined, content))


def _value(value: str | float) -> str:
    """Format a number with hundredths of a pixel."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def _path(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{_value(x)},{_value(y)}" for x, y in points)


@dataclass(frozen=True)
class LegendEntry:
    """An entry of a legend."""

    label: str
    style: str  # CSS class with its colour
    shape: str = "circle"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart as the page shows it."""

    name: str  # anchor on the page
    title: str
    text: str  # description, for the caption and for screen readers
    picture: Markup
    keys: Sequence[LegendEntry] = ()
    head: Sequence[str] = ()  # of the table of values
    rows: Sequence[Sequence[str]] = ()
    wide: bool = False


def picture(width: float, height: float, label: str, hover: str, *content: Content) -> Markup:
    """Make the SVG.

    Args:
        hover: "xy" selects the value nearest to the pointer, "x" the one above or below it.
    """
    return element(
        "svg", *content, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label, data_hover=hover, class_="chart"
    )


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The plotting area, in units of the picture."""

    left: float
    top: float
    right: float
    bottom: float

    def x(self, part: float) -> float:
        """Convert 0 (left) to 1 (right)."""
        return self.left + part * (self.right - self.left)

    def y(self, part: float) -> float:
        """Convert 0 (bottom) to 1 (top)."""
        return self.bottom - part * (self.bottom - self.top)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A scale with its labels."""

    scale: Scale
    label: str
    factor: float = 1.0  # from values to the unit of the scale
    shown: Callable[[float], str] = lambda tick: f"{tick:,.6g}"  # text of a tick
    grid: bool = True

    def __call__(self, value: float) -> float:
        return self.scale(value * self.factor)


def x_axis(frame: Frame, axis: Axis, texts: bool = True) -> Markup:
    """Draw the x axis; of two charts above each other, only the lower one needs the texts."""
    marks = [
        _x_tick(frame, frame.x(axis.scale(tick)), axis.shown(tick) if texts else "", axis.grid) for tick in axis.scale.ticks
    ]
    baseline = element("line", class_="axis", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom)
    middle = (frame.left + frame.right) / 2
    title = element("text", axis.label, class_="label", x=middle, y=frame.bottom + 36, text_anchor="middle") if texts else ""
    return element("g", marks, baseline, title)


def y_axis(frame: Frame, axis: Axis) -> Markup:
    """Draw the y axis, with a horizontal label above it."""
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


def line(points: Sequence[Point], style: str) -> Markup:
    """Draw a line through the points, in the colour of a CSS class."""
    return element("path", class_=f"line {style}", d=_path(points)) if len(points) > 1 else Markup("")


def marker(at: Point, style: str, shape: str = "circle", hollow: bool = False) -> Markup:
    """Draw a small `circle`, `square` or `triangle`: series differ in more than their colour."""
    x, y = at
    classes = f"point {style}{' hollow' if hollow else ''}"
    if shape == "circle":
        return element("circle", class_=classes, cx=x, cy=y, r=4)
    corners = {
        "square": [(x - 3.6, y - 3.6), (x + 3.6, y - 3.6), (x + 3.6, y + 3.6), (x - 3.6, y + 3.6)],
        "triangle": [(x, y - 4.8), (x + 4.6, y + 3.6), (x - 4.6, y + 3.6)],
    }
    return element("path", class_=classes, d=_path(corners[shape]) + "Z")


def tooltip(at: Point, text: str) -> Markup:
    """Add a text that is shown when the pointer is near."""
    return element("circle", element("title", text), class_="hit", cx=at[0], cy=at[1], r=8)


def bar(left: float, top: float, width: float, height: float, style: str, text: str = "") -> Markup:
    """Draw a rectangle, with an optional tooltip."""
    title = element("title", text) if text else ""
    classes = f"bar {style}{' hit' if text else ''}"
    return element("rect", title, class_=classes, x=left, y=top, width=max(width, 0.0), height=height)
