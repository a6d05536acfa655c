"""HTML as tokens with their spans, and what its elements mean for translation (HTML Living Standard, 3.2.6.3, 4, 13 and 15.3).

html.parser parses. Templating ({{ }}, {% %}, {# #}, <% %>, <?php ?>) is hidden from it, so that no character in it looks like
a tag.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from html.parser import HTMLParser

from triptych_documents.formats.shared.text_document import Span
from triptych_documents.interruption import checkpoint


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


VOID = _names("area base br col embed frame hr img input link meta param source track wbr")  # without end tag

# Elements that separate text: blocks, cells, items, and controls with their own text.
BLOCKS = _names(
    "address article aside blockquote body button caption center col colgroup dd details dialog dir div dl dt fieldset"
    " figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html label legend li main"
    " menu menuitem nav noframes noscript ol optgroup option p pre search section select summary table tbody td"
    " template textarea tfoot th thead title tr track ul"
)
KEPT = _names("code kbd samp tt var pre textarea")  # not translated, unless translate="yes"
KEPT_CLASSES = _names("notranslate sig-object sig-param")  # classes of such elements; two of Sphinx, for signatures in code
OPAQUE = _names("iframe math noembed object plaintext script style svg xmp")  # content is ignored
UNSEEN = _names("iframe noembed script style svg")  # opaque elements without visible text

# Open elements that a start tag closes (section 13.1.2.4).
ENDS: dict[str, frozenset[str]] = {
    "li": _names("li p"),
    **dict.fromkeys(("dt", "dd"), _names("dt dd p")),
    "option": _names("option"),
    "optgroup": _names("option optgroup"),
    **dict.fromkeys(("td", "th"), _names("td th p")),
    "tr": _names("td th tr p"),
    **dict.fromkeys(("tbody", "tfoot"), _names("td th tr thead tbody p")),
    **dict.fromkeys(
        _names(
            "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form h1 h2 h3"
            " h4 h5 h6 header hgroup hr main menu nav ol p pre search section table ul"
        ),
        _names("p"),
    ),
}

TEXTS = _names("alt aria-description aria-label aria-placeholder aria-roledescription aria-valuetext placeholder title")
BUTTONS = frozenset({"button", "reset", "submit"})  # types of <input> with a visible value
META = _names(
    "application-name apple-mobile-web-app-title description keywords og:description og:image:alt og:site_name og:title"
    " subject twitter:description twitter:image:alt twitter:title"
)


def is_text(element: str, attribute: str, others: dict[str, str]) -> bool:
    """Return whether readers see the value of an attribute of an element with these attributes."""
    if attribute == "content":
        return element == "meta" and (others.get("name") or others.get("property", "")).strip().lower() in META
    if attribute == "value":
        return element == "input" and others.get("type", "").strip().lower() in BUTTONS
    if attribute == "label":
        return element in ("option", "optgroup", "track")
    if attribute == "summary":
        return element == "table"
    return attribute in TEXTS and not (attribute == "title" and element in ("link", "style"))


_TEMPLATES = {"{{": "}}", "{%": "%}", "{#": "#}", "<%": "%>", "<?": "?>"}
_TEMPLATE = re.compile(r"\{\{|\{%|\{#|<%|<\?")
_LONGEST = 1_000  # maximum characters between braces of templating
_HIDDEN = "\ue000"  # replaces templating; ordinary text for the parser
_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"']?[^\s>]*))?""")
_BROKEN = re.compile(r"</?[a-zA-Z]")  # an unclosed tag, which the parser reports as text
_NAME = re.compile(r"<[a-zA-Z][^\s/>]*")


class HtmlTokenKind(Enum):
    START = "start"
    END = "end"
    ALONE = "alone"  # a void or self-closed element
    TEXT = "text"  # characters and references
    OTHER = "other"  # comments, declarations, instructions, invalid HTML


@dataclass(slots=True)
class HtmlToken:
    """A stretch of a document."""

    kind: HtmlTokenKind  # kind of the token
    start: int  # offset of its first character
    end: int = 0  # offset after its last character
    name: str = ""  # name of the element in lower case
    attributes: dict[str, str] = field(default_factory=dict)
    """Of START and ALONE: values by names in lower case; "" without value."""
    closing: int | None = None  # of START: index of its END, or of the token before which it ends; None: end of document


def templates(text: str) -> list[Span]:
    """Return the spans of templating in linear time: unclosed delimiters are searched once."""
    found: list[Span] = []
    never: set[str] = set()
    at = 0
    while (begin := _TEMPLATE.search(text, at)) is not None:
        sign, at = begin[0], begin.end()
        if sign in never:
            continue
        end = text.find(_TEMPLATES[sign], at) if sign[0] == "<" else text.find(_TEMPLATES[sign], at, at + _LONGEST)
        if end < 0:
            never |= {sign} if sign[0] == "<" else set()
            continue
        at = end + 2
        while sign == "{{" and text.startswith("}", at):  # {{{three braces}}}
            at += 1
        found.append((begin.start(), at))
    return found


def tokens(text: str) -> list[HtmlToken]:
    """Tokenize a document with masked templating, in order and without gaps."""
    found = _Scanner(text).scan()
    _set_closings(found)
    return found


def masked(text: str, hidden: Sequence[Span]) -> str:
    """Replace these spans by other characters of the same length."""
    parts, at = list[str](), 0
    for start, end in hidden:
        parts += (text[at:start], _HIDDEN * (end - start))
        at = end
    return "".join((*parts, text[at:]))


class _Scanner(HTMLParser):
    """Converts html.parser's events to tokens. Avoids its quadratic searches for the end of comments and declarations."""

    def __init__(self, text: str) -> None:
        super().__init__()  # with convert_charrefs, because otherwise the parser stops at the second invalid `&#`
        self._text = text
        self._found: list[HtmlToken] = []
        self._line, self._begin = 1, 0  # current line and its offset
        self._unclosed = False  # a comment extends to the end

    def scan(self) -> list[HtmlToken]:
        end = self._text.rfind(">") + 1  # no tag ends after this
        self.feed(self._text[:end])
        self.close()
        self._rest(end)
        return list(_contiguous(self._found, self._text))

    def parse_comment(self, i: int, report: bool = True) -> int:
        text = self.rawdata
        end = next((i + len(empty) for empty in ("<!-->", "<!--->") if text.startswith(empty, i)), 0)
        if not end and not self._unclosed:
            found = text.find("-->", i + 4)
            self._unclosed = found < 0
            end = found + 3
        self.handle_comment("")
        return len(text) if self._unclosed else end

    def parse_html_declaration(self, i: int) -> int:
        self.handle_decl("")
        return self.rawdata.find(">", i) + 1  # always found: only text up to the last one is parsed

    def _rest(self, end: int) -> None:
        tag = None if self._unclosed else re.compile(r"<[a-zA-Z/!?]").search(self._text, end)
        text_end = end if self._unclosed else tag.start() if tag else len(self._text)
        if end < text_end:
            self._add(HtmlTokenKind.TEXT, end)
        if text_end < len(self._text):
            self._add(HtmlTokenKind.OTHER, text_end)

    def _place(self) -> int:
        checkpoint()
        line, column = self.getpos()
        while self._line < line:
            self._begin = self._text.index("\n", self._begin) + 1
            self._line += 1
        return self._begin + column

    def _add(self, kind: HtmlTokenKind, place: int) -> None:
        last = self._found[-1] if self._found else None
        if last is None or last.kind is not kind or kind not in (HtmlTokenKind.TEXT, HtmlTokenKind.OTHER):
            self._found.append(HtmlToken(kind, place))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._start(HtmlTokenKind.ALONE if tag in VOID else HtmlTokenKind.START, tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._start(HtmlTokenKind.ALONE, tag, attrs)

    def _start(self, kind: HtmlTokenKind, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in reversed(attrs)}  # the first of duplicates wins
        place = self._place()
        self._found.append(HtmlToken(kind, place, place + len(self.get_starttag_text() or ""), tag, named))

    def handle_endtag(self, tag: str) -> None:
        self._found.append(HtmlToken(HtmlTokenKind.END, self._place(), name=tag))

    def handle_data(self, data: str) -> None:
        place = self._place()
        broken = self.cdata_elem is None and _BROKEN.match(self._text, place)
        self._add(HtmlTokenKind.OTHER if broken else HtmlTokenKind.TEXT, place)

    def _other(self, data: str) -> None:
        self._add(HtmlTokenKind.OTHER, self._place())

    handle_comment = handle_decl = handle_pi = unknown_decl = _other  # type: ignore[assignment]


def _contiguous(found: Sequence[HtmlToken], text: str) -> Iterator[HtmlToken]:
    """Close gaps: a token ends where the next starts, but start tags and texts before a skipped tag end by themselves."""
    for token, after in zip(found, [*(token.start for token in found[1:]), len(text)], strict=False):
        broken = _BROKEN.search(text, token.start, after) if token.kind is HtmlTokenKind.TEXT else None
        token.end = broken.start() if broken else min(token.end, after) or after
        yield token
        if token.end < after:
            yield HtmlToken(HtmlTokenKind.OTHER, token.end, after)


def _set_closings(found: Sequence[HtmlToken]) -> None:
    """Find the end of every element in linear time."""
    opened: list[HtmlToken] = []
    counts = Counter[str]()

    def close(at: int) -> str:
        last = opened.pop()
        counts[last.name] -= 1
        last.closing = at
        return last.name

    for at, token in enumerate(found):
        if token.kind is HtmlTokenKind.START:
            while opened and opened[-1].name in ENDS.get(token.name, ()):
                close(at)
            opened.append(token)
            counts[token.name] += 1
        elif token.kind is HtmlTokenKind.END and counts[token.name]:
            while close(at) != token.name:
                pass


def values(tag: str) -> dict[str, tuple[Span, str]]:
    """Return span, with quotes, and quote of the values of a start tag, by name in lower case; the first of duplicates."""
    name = _NAME.match(tag)
    found: dict[str, tuple[Span, str]] = {}
    for attribute in _ATTRIBUTE.finditer(tag, name.end() if name else 1):
        value = attribute[2] or ""
        span = attribute.span(2) if attribute[2] is not None else (attribute.end(), attribute.end())
        found.setdefault(attribute[1].lower(), (span, value[:1] if value[:1] in ("'", '"') else ""))
    return found
