"""Elements of SVG, escaped."""

from collections.abc import Iterable

from markupsafe import Markup, escape

Content = str | Markup | Iterable["Content"]


def element(tag: str, *content: Content, **attributes: str | float | None) -> Markup:
    """`<tag ...>content</tag>`.

    Args:
        content: text, which is escaped, elements, or iterables of them.
        attributes: `class_` and `stroke_width` as Python can say them; None leaves one out.
    """
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{said}>{_joined(content)}</{tag}>")


def path(points: Iterable[tuple[float, float]]) -> str:
    """The `d` of straight lines through points."""
    return "M" + "L".join(f"{_value(x)},{_value(y)}" for x, y in points)


def _joined(content: Content) -> str:
    if isinstance(content, str):  # markup, too
        return str(escape(content))
    return "".join(map(_joined, content))


def _value(value: str | float) -> str:
    """Hundredths of a pixel are enough."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
