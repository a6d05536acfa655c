"""Links to headings of the same document, whose anchors are made of the headings' texts and change with them.

The rules are those of GitHub and most site generators: lower case, no punctuation, hyphens for spaces, numbers for repetitions.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import unquote

from triptych_documents.encoding import Encoding, reference
from triptych_documents.formats.markdown.blocks import MarkdownBlocks, TextBlock
from triptych_documents.formats.shared.inline_codes import ScannedTag
from triptych_documents.formats.shared.text_document import LineIndex, Span, replaced

LINK = re.compile(r"""(?:\]\(<?|\]:\s*<?|\bhref=["']?)#([^\s()<>"']+)""")
_OWN = re.compile(r"\{[^{}]*#([^{}\s]+)[^{}]*\}")  # an attribute list with an anchor
_REMOVED = re.compile(r"[^\w\- ]")


def relinked(text: str, before: MarkdownBlocks, after: MarkdownBlocks, encoding: Encoding) -> str:
    """Return the translated `text`, whose blocks are `after`, with links to the headings' new anchors."""
    old, new = list(_anchors(before.contents)), list(_anchors(after.contents))
    if old == new or len(old) != len(new):
        return text
    changes = _changes(text, dict(zip(reversed(old), reversed(new), strict=True)), after, encoding)
    return replaced(text, dict(changes).items())  # once each


def _changes(text: str, anchors: Mapping[str, str], blocks: MarkdownBlocks, encoding: Encoding) -> Iterator[tuple[Span, str]]:
    lines = LineIndex(text)
    spans = [*blocks.html, *(lines.span(*one["map"]) for one in blocks.references.get("references", {}).values())]
    for block in blocks.contents:
        for part in block.parts or ():
            if isinstance(part.content, ScannedTag) and part.content.raw.startswith(("](", "<a")):
                spans.append((block.offsets[part.start], block.offsets[part.end - 1] + 1))
    for span in spans:
        for link in LINK.finditer(text, *span):
            if (anchor := unquote(link[1])) in anchors:
                yield link.span(1), encoding.escaped(anchors[anchor], reference)


def _anchors(blocks: Sequence[TextBlock]) -> Iterator[str]:
    """Yield the anchor of each heading."""
    taken: Counter[str] = Counter()
    for block in blocks:
        if block.kind != "heading_open":
            continue
        contents = [part.content for part in block.parts or ()]
        shown = "".join(one.shown if isinstance(one, ScannedTag) else one for one in contents)
        own = next((found[1] for one in contents if isinstance(one, ScannedTag) and (found := _OWN.fullmatch(one.raw))), "")
        anchor = plain = own or _REMOVED.sub("", shown.strip().lower()).replace(" ", "-")
        while anchor in taken:
            anchor = f"{plain}-{taken[plain]}"
            taken[plain] += 1
        taken[anchor] += 1
        yield anchor
