"""Inline content of Markdown with spans: markdown-it's inline parser, which notes the offsets of each token.

The rules are the library's (CommonMark 0.31, GFM strikethrough, dollar math); one is added for footnote references and for site
generators' shortcodes, wiki links, attribute lists, alerts, tabs, task list boxes, MyST's targets and options.
"""

import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from triptych_documents.formats.html.text import template
from triptych_documents.formats.html.tokens import VOID
from triptych_documents.formats.shared.inline_codes import ScannedPart, ScannedTag
from triptych_documents.interruption import checkpoint
from triptych_documents.unit import Role

_PLACE = "place"  # in a token's meta
_INERT = re.compile(r"(?![=(:])[^\n\\`*_\[\]!<&~${]+")  # text without markup, the most frequent case
_SITE = re.compile(
    r"\{%[^\n]{0,1000}?%\}|\{\{[<%][^\n]{0,1000}?[>%]\}\}|\{[#.:][^{}\n]{0,1000}\}|\[\^[^\]\[\s]{1,200}\]"
    r"|\[\[[^\[\]\n]{1,300}\]\](?!\()"  # [[text]](address) is a link
)
_FIRST = re.compile(
    r"===[+!]?(?= +\")|\[[ xX]\](?=[ \t])|\[![A-Za-z]+\](?:\n|$)|\([\w.:-]{1,200}\)=(?:\n|$)"
    r"|(?::(?:align|alt|class|height|name|width):[^\n]*(?:\n|$))+"  # options of MyST
)
_ELEMENT = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*)[^>]*?(/?)>", re.DOTALL)
_KEPT = frozenset({"<code", "<kbd", "<samp", "<var", "<script", "<style"})  # HTML elements that are not translated
_LONGEST = 64  # maximum parts of such an element
_BADGE = ["link_open", "image", "link_close"]  # the text of such an image belongs to no sentence
_DEEPEST = 10  # brackets in brackets that are read as links


class PlacedInline(ParserInline):
    """Inline parser whose tokens have offsets."""

    def __init__(self, inline: ParserInline) -> None:
        super().__init__()
        self.ruler, self.ruler2 = inline.ruler, inline.ruler2
        self.ruler.before("text", "site", _site)

    def parse(self, src: str, md: MarkdownIt, env: MutableMapping[str, Any], outTokens: list[Token]) -> list[Token]:  # noqa: N803
        if not _INERT.fullmatch(src):
            return super().parse(src, md, env, outTokens)
        outTokens.append(Token("text", "", 0, content=src, meta={_PLACE: (0, len(src))}))
        return outTokens

    def skipToken(self, state: StateInline) -> None:  # noqa: N802
        """Go behind the next token without making it; behind all of them within too many brackets, as each level costs time."""
        checkpoint()
        if state.level < _DEEPEST or state.pos in state.cache:
            super().skipToken(state)
        else:
            state.cache[state.pos] = state.pos = state.posMax + 1

    def tokenize(self, state: StateInline) -> None:
        """Apply the rules between state.pos and state.posMax."""
        rules = self.ruler.getRules("")
        end, text_start = state.posMax, state.pos
        deepest: int = state.md.options["maxNesting"]
        while state.pos < end:
            checkpoint()
            start, before = state.pos, len(state.tokens)
            text_start = text_start if state.pending else start
            if state.level < deepest and any(rule(state, False) for rule in rules):
                _place(state.tokens[before:], text_start, start, state.pos)
            else:
                state.append_pending(state.src[start])
                state.pos = start + 1
        if state.pending:
            token = state.pushPending()
            token.meta[_PLACE] = text_start, text_start + len(token.content)


def _place(tokens: Sequence[Token], text_start: int, start: int, end: int) -> None:
    """Set the offsets of the tokens that one rule made; the first can be the text before it.

    The content of a link already has offsets.
    """
    made = [token for token in tokens if _PLACE not in token.meta]
    inner_end = max((token.meta[_PLACE][1] for token in tokens if token.meta.get(_PLACE)), default=start + 1)
    if text_start < start and made and made[0].type == "text":
        text_end = text_start + len(made[0].content)
        made.pop(0).meta[_PLACE] = text_start, text_end
        start = text_end  # white space before a line end is not text
    elif text_start < start:
        start = text_start
    if all(token.type == "text" for token in made):  # delimiters of emphasis and strikethrough, not yet paired
        for token in made:
            token.meta[_PLACE] = start, start + len(token.content)
            start += len(token.content)
    elif made[0].type == "link_open" and made[0].markup != "autolink":
        made[0].meta[_PLACE] = start, start + 1
        made[-1].meta[_PLACE] = inner_end, end
    else:
        for token in made:
            token.meta[_PLACE] = (start, end) if token is made[0] else None


def _site(state: StateInline, silent: bool) -> bool:
    found = None
    if state.src[state.pos] in "{[":
        found = _SITE.match(state.src, state.pos, state.posMax)
    if state.pos == 0 and found is None:
        found = _FIRST.match(state.src, 0, state.posMax)
    if found is None:
        return False
    if not silent:
        state.push("site", "", 0).content = found[0]
    state.pos = found.end()
    return True


def parts_of(content: str, tokens: Sequence[Token]) -> list[ScannedPart] | None:
    """Return the parts of a content; None if offsets are inconsistent, so that nothing may be written there."""
    parts = _merged(content, list(_parts(content, _whole(tokens), 0)))
    edges = [0, *(part.end for part in parts)]
    starts = [*(part.start for part in parts), len(content)]
    return parts if edges == starts else None


def _whole(tokens: Sequence[Token]) -> list[Token]:
    """Merge the two tokens of `**`, of which the outer one is empty."""
    kept: list[Token] = []
    for token in tokens:
        last = kept[-1] if kept else None
        if last and token.type == "strong_open" and last.type == "text" and not last.content:
            token.meta[_PLACE] = last.meta[_PLACE][0], token.meta[_PLACE][1]
            kept.pop()
        elif last and last.type == "strong_close" and token.type == "text" and not token.content:
            last.meta[_PLACE] = last.meta[_PLACE][0], token.meta[_PLACE][1]
            continue
        if token.meta.get(_PLACE):
            kept.append(token)
    return kept


def _parts(content: str, tokens: Sequence[Token], base: int) -> Iterator[ScannedPart]:
    opened: list[int] = []
    types = [token.type for token in tokens]
    apart = _images_apart(tokens) if "image" in types else ()
    for index, token in enumerate(tokens):
        start, end = (base + place for place in token.meta[_PLACE])
        raw = content[start:end]
        if token.type == "link_open":
            opened.append(end)
        if token.type == "image":
            yield from _image(content, token, start, end, fixed=index in apart)
        elif token.type in ("text", "text_special"):
            yield ScannedPart(token.content, start, end)
        elif token.type == "softbreak":
            yield ScannedPart(" ", start, end)
        elif token.type == "link_close":
            fixed = types[max(0, index - 2) : index + 1] == _BADGE
            yield ScannedPart(ScannedTag(_named(raw, content[opened.pop() : start]), Role.CLOSE, "a", fixed=fixed), start, end)
        else:
            fixed = types[index : index + 3] == _BADGE
            tag = _tag(token, raw)
            yield ScannedPart(replace(tag, fixed=True) if fixed else tag, start, end)


def _images_apart(tokens: Sequence[Token]) -> set[int]:
    """Return the images at the start of a line or beside another image: their texts belong to no sentence."""
    shown = [at for at, one in enumerate(tokens) if not (one.nesting or one.type == "softbreak" or one.content.isspace())]
    types = ["hardbreak", *(tokens[at].type for at in shown), ""]
    images = (place for place, at in enumerate(shown) if tokens[at].type == "image")
    return {shown[place] for place in images if types[place] in ("image", "hardbreak") or types[place + 2] == "image"}


def _image(content: str, token: Token, start: int, end: int, *, fixed: bool) -> Iterator[ScannedPart]:
    if not token.content:
        yield ScannedPart(ScannedTag(content[start:end], Role.ALONE), start, end)
        return
    inner = start + 2
    after = inner + len(token.content)
    yield ScannedPart(ScannedTag("![", Role.OPEN, "img", fixed=fixed), start, inner)
    yield from _parts(content, _whole(token.children or ()), inner)
    yield ScannedPart(ScannedTag(_named(content[after:end], token.content), Role.CLOSE, "img", fixed=fixed), after, end)


def _named(raw: str, text: str) -> str:
    """Return the end of a link or image; one that refers by its text gets that as a label, because the text will change."""
    return f"][{' '.join(text.split())}]" if raw in ("]", "][]") else raw


def _tag(token: Token, raw: str) -> ScannedTag:
    if token.type == "html_inline":
        return _html(raw)
    if token.type == "site" and raw.startswith("{%"):
        return template(raw)
    if token.type == "hardbreak":
        return ScannedTag(raw, Role.ALONE, shown="\n", fixed=True)
    if token.nesting and token.markup != "autolink":
        return ScannedTag(raw, Role.OPEN if token.nesting > 0 else Role.CLOSE, token.tag)
    shown = {"code_inline": token.content, "math_inline": token.content, "link_open": raw[1:-1]}
    return ScannedTag(raw, Role.ALONE, shown=shown.get(token.type, ""))


def _html(raw: str) -> ScannedTag:
    found = _ELEMENT.fullmatch(raw)
    name = found[2].lower() if found else ""
    if found is None or found[3] or name in VOID:
        return ScannedTag(raw, Role.ALONE, shown="\n" if name == "br" else "", fixed=name == "br")
    return ScannedTag(raw, Role.CLOSE if found[1] else Role.OPEN, f"<{name}")


def _merged(content: str, parts: list[ScannedPart]) -> list[ScannedPart]:
    """Merge <code> and similar elements into one part."""
    merged: list[ScannedPart] = []
    at = 0
    while at < len(parts):
        run = parts[at : _end(parts, at)]
        shown = "".join(part.content if isinstance(part.content, str) else part.content.shown for part in run)
        start, end = run[0].start, run[-1].end
        whole = ScannedPart(ScannedTag(content[start:end], Role.ALONE, shown=shown), start, end)
        merged.append(run[0] if len(run) == 1 else whole)
        at += len(run)
    return merged


def _end(parts: list[ScannedPart], at: int) -> int:
    """Return the end of the parts of an element that is not translated; else the end of this part."""
    first = parts[at].content
    if isinstance(first, ScannedTag) and first.role is Role.OPEN and first.name in _KEPT:
        for after in range(at + 1, min(at + _LONGEST, len(parts))):
            tag = parts[after].content
            if isinstance(tag, ScannedTag) and tag.role is Role.CLOSE and tag.name == first.name:
                return after + 1
    return at + 1
