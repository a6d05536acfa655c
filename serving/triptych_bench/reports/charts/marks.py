"""What carries values: lines, points, bars. A `hit` has the text that is shown above it when the pointer is near."""

from collections.abc import Sequence

from markupsafe import Markup

from triptych_bench.reports.charts.svg import element, path

Place = tuple[float, float]


def line(points: Sequence[Place], style: str) -> Markup:
    """Straight from point to point, in the colour of the class `style`."""
    return element("path", class_=f"line {style}", d=path(points)) if len(points) > 1 else Markup("")


def area(points: Sequence[Place], base: float, style: str) -> Markup:
    """What lies between a line and the axis at `base`."""
    if len(points) < 2:
        return Markup("")
    closed = [(points[0][0], base), *points, (points[-1][0], base)]
    return element("path", class_=f"area {style}", d=path(closed) + "Z")


def point(at: Place, style: str, shape: str = "circle", hollow: bool = False) -> Markup:
    """A small `circle`, `square`, `triangle` or `diamond`: series differ in more than colour."""
    x, y = at
    classes = f"point {style}{' hollow' if hollow else ''}"
    if shape == "circle":
        return element("circle", class_=classes, cx=x, cy=y, r=4)
    corners = {
        "square": [(x - 3.6, y - 3.6), (x + 3.6, y - 3.6), (x + 3.6, y + 3.6), (x - 3.6, y + 3.6)],
        "triangle": [(x, y - 4.8), (x + 4.6, y + 3.6), (x - 4.6, y + 3.6)],
        "diamond": [(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)],
    }
    return element("path", class_=classes, d=path(corners[shape]) + "Z")


def hit(at: Place, text: str) -> Markup:
    """Where the pointer finds a value."""
    return element("circle", element("title", text), class_="hit", cx=at[0], cy=at[1], r=8)


def bar(left: float, top: float, width: float, height: float, style: str, text: str = "") -> Markup:
    """A rectangle; with a text, it is a hit."""
    said = element("title", text) if text else ""
    classes = f"bar {style}{' hit' if text else ''}"
    return element("rect", said, class_=classes, x=left, y=top, width=max(width, 0.0), height=height)
