"""A chart with all that belongs to it."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from triptych_bench.reports.charts.svg import Content, element


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    label: str
    style: str  # the class that has its colour
    shape: str = "circle"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """As the page shows it."""

    name: str  # of the file's anchors
    title: str
    text: str  # what it shows, in words: under the picture, and for those who cannot see it
    picture: Markup
    keys: Sequence[Key] = ()
    head: Sequence[str] = ()  # of the table of its values
    rows: Sequence[Sequence[str]] = ()
    wide: bool = False


def picture(width: float, height: float, label: str, hover: str, *content: Content) -> Markup:
    """The SVG.

    Args:
        label: what it is, for screen readers.
        hover: "xy" takes the value nearest to the pointer, "x" that above or below it.
    """
    return element(
        "svg", *content, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label, data_hover=hover, class_="chart"
    )
