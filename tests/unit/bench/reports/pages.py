"""Parsed HTML pages."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "br", "hr", "img", "input", "link"}
LOADS = {"src", "href", "srcset", "action", "data", "poster"}


class Page(HTMLParser):
    """The elements of a page. Raises ValueError if they are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        if self._open:
            raise ValueError(f"not closed: {self._open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            raise ValueError(f"{tag} closed out of order")

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def count(self, tag: str, **attributes: str) -> int:
        return sum(tag == one and all(has.get(name) == value for name, value in attributes.items()) for one, has in self.tags)


def charts(text: str) -> list[ElementTree.Element]:
    """Return the charts of a page, as XML."""
    return [ElementTree.fromstring(found) for found in re.findall(r"<svg [^>]*class=\"chart\".*?</svg>", text, re.DOTALL)]


def hits(chart: ElementTree.Element) -> list[tuple[float, float, str]]:
    """Return position and text of each tooltip."""
    circles = chart.iter("circle")
    return [
        (float(one.attrib["cx"]), float(one.attrib["cy"]), one.findtext("title") or "")
        for one in circles
        if "hit" in one.attrib["class"].split()
    ]
