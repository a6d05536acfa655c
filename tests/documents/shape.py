"""What of a document must be as it was when its text is another: read by parsers of their own, not by those that wrote it."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polib
from markdown_it import MarkdownIt

INLINE = {"a", "b", "i", "em", "strong", "code", "span", "br", "kbd", "small", "sub", "sup", "img"}
NAMED = re.compile(r"\{\w+\}|%\(\w+\)s|%s|https?://\S+|\S+@\S+|</?\w[^>]*>")
XLIFF = "{urn:oasis:names:tc:xliff:document:1.2}"
Shape = list[Any]


def shape_of(path: Path) -> Shape:
    """Equal for a document and its translation."""
    return SHAPES[path.suffix](path.read_text("utf-8"))


def html_shape(text: str) -> Shape:
    """Block tags in order, each with the inline tags that follow it."""
    parser = _Blocks()
    parser.feed(text)
    parser.close()
    return [(name, *sorted(inline.items())) for name, inline in parser.blocks]


class _Blocks(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[tuple[str, Counter[str]]] = [("", Counter())]

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        told = f"{tag} {sorted(item for item in attributes if item[0] not in ('lang', 'title', 'alt'))}"
        self._add(tag, told)

    def handle_endtag(self, tag: str) -> None:
        self._add(tag, f"/{tag}")

    def _add(self, tag: str, told: str) -> None:
        if tag in INLINE:
            self.blocks[-1][1][told] += 1
        else:
            self.blocks.append((told, Counter()))


def markdown_shape(text: str) -> Shape:
    """Block tokens in order; of each inline one its markup, links and code."""
    found: Shape = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "inline":
            kinds = [
                (t.type, t.markup, t.attrGet("href"), t.content if t.type == "code_inline" else "")
                for t in token.children or ()
            ]
            found.append(sorted(kind for kind in Counter(kinds).items() if kind[0][0] not in ("text", "softbreak")))
        else:
            found.append((token.type, token.tag, token.markup, token.content if token.type == "fence" else ""))
    return found


def po_shape(text: str) -> Shape:
    """Messages, with what stands in them and in their translations that must not change."""
    found: Shape = []
    for entry in polib.pofile(text):
        kept = sorted(NAMED.findall(entry.msgid))
        found.append((entry.msgid, entry.msgid_plural, entry.occurrences, entry.msgctxt))
        translations = entry.msgstr_plural.values() if entry.msgid_plural else (entry.msgstr,)
        assert all(sorted(NAMED.findall(one)) == kept for one in translations if one), entry
    return found


def xliff_shape(text: str) -> Shape:
    """Units in order, with the inline elements of their sources, which their targets must have."""
    found: Shape = []
    for unit in ElementTree.fromstring(text).iter(f"{XLIFF}trans-unit"):
        source, target = (unit.find(f"{XLIFF}{name}") for name in ("source", "target"))
        assert source is not None
        found.append((unit.get("id"), _inside(source)))
        assert target is None or _inside(target) == _inside(source)
    return found


def _inside(side: ElementTree.Element) -> list[tuple[str, str, str]]:
    """Names, ids, and what stands in those that are not for translators."""
    parts = (part for part in side.iter() if part is not side)
    return sorted((part.tag, part.get("id", ""), part.text or "" if part.tag == f"{XLIFF}ph" else "") for part in parts)


SHAPES = {".html": html_shape, ".md": markdown_shape, ".po": po_shape, ".xlf": xliff_shape}
