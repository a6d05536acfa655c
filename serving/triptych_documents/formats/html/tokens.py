"""What HTML's elements and attributes are to a translator (HTML Living Standard, sections 3.2.6.3, 4 and 15.3)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from html.parser import HTMLParser

from triptych_documents.formats.shared.spans import Span


def _names(names: str) -> frozenset[str]:
    return frozenset(names.split())


VOID = _names("area base br col embed frame hr img input link meta param source track wbr")  # have no end

# Elements that text does not run across: blocks, cells, items, and controls with a text of their own.
BLOCKS = _names(
    "address article aside blockquote body button caption center col colgroup dd details dialog dir div dl dt fieldset"
    " figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html label legend li main"
    " menu menuitem nav noframes noscript ol optgroup option p pre search section select summary table tbody td"
    " template textarea tfoot th thead title tr track ul"
)
KEPT = _names("code kbd samp tt var pre textarea")  # content that is not language, unless translate="yes"
OPAQUE = _names("iframe math noembed object plaintext script style svg xmp")  # nothing inside is looked at
UNSEEN = _names("iframe noembed script style svg")  # of these: what shows no text

# What an element's start ends that has no end tag (section 13.1.2.4).
_TEXTS = frozenset({"p"})
ENDS: dict[str, frozenset[str]] = {
    "li": frozenset({"li", "p"}),
    "dt": frozenset({"dt", "dd", "p"}),
    "dd": frozenset({"dt", "dd", "p"}),
    "option": frozenset({"option"}),
    "optgroup": frozenset({"option", "optgroup"}),
    "td": frozenset({"td", "th", "p"}),
    "th": frozenset({"td", "th", "p"}),
    "tr": frozenset({"td", "th", "tr", "p"}),
    "tbody": frozenset({"td", "th", "tr", "thead", "tbody", "p"}),
    "tfoot": frozenset({"td", "th", "tr", "thead", "tbody", "p"}),
    **dict.fromkeys(
        _names(
            "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form h1 h2 h3"
            " h4 h5 h6 header hgroup hr main menu nav ol p pre search section table ul"
        ),
        _TEXTS,
    ),
}

TEXTS = _names("alt aria-description aria-label aria-placeholder aria-roledescription aria-valuetext placeholder title")
BUTTONS = frozenset({"button", "reset", "submit"})  # types of <input> whose value is shown
META = _names(
    "application-name apple-mobile-web-app-title description keywords og:description og:image:alt og:site_name og:title"
    " subject twitter:description twitter:image:alt twitter:title"
)


def is_text(element: str, attribute: str, others: dict[str, str]) -> bool:
    """Whether people read the value of this attribute of an element with these attributes."""
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
_LONGEST = 1_000  # characters between braces; others are no templating
_HIDDEN = "\ue000"  # a character that is only text to a parser
_ATTRIBUTE = re.compile(r"""([^\s/>=][^\s/>=]*)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"']?[^\s>]*))?""")
_BROKEN = re.compile(r"</?[a-zA-Z]")  # a tag that never ends, which the parser gives up as text
_NAME = re.compile(r"<[a-zA-Z][^\s/>]*")


class Kind(Enum):
    """What a token is."""

    START = "start"
    END = "end"
    ALONE = "alone"  # a void element, or one that is closed where it starts
    TEXT = "text"  # characters and references
    OTHER = "other"  # comments, declarations, instructions, what is no HTML


@dataclass(slots=True)
class Token:
    """A part of a document.

    Args:
        start: first character of its span of the document's text.
        end: behind its last character.
        name: of an element, in lower case.
        attributes: of START and ALONE: values by names in lower case; "" where it has none.
        closing: of START: the index of its END, or of the token before which it ends, or None at the document's end.
    """

    kind: Kind
    start: int
    end: int = 0
    name: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    closing: int | None = None


def templates(text: str) -> list[Span]:
    """Where templating stands. One look at each character: what never ends is looked for once."""
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


def tokens(text: str) -> list[Token]:
    """The tokens of a document whose templating is masked, in order and without gaps."""
    found = _Scanner(text).scan()
    _close(found)
    return found


def masked(text: str, hidden: Sequence[Span]) -> str:
    """The text, of the same length, with other characters in these spans."""
    parts, at = list[str](), 0
    for start, end in hidden:
        parts += (text[at:start], _HIDDEN * (end - start))
        at = end
    return "".join((*parts, text[at:]))


class _Scanner(HTMLParser):
    """html.parser's events as tokens. What it looks for again and again to the document's end is looked for once here."""

    def __init__(self, text: str) -> None:
        super().__init__()  # which resolves references: left to itself, the parser stops at the second `&#` that is none
        self._text = text
        self._found: list[Token] = []
        self._line, self._begin = 1, 0  # of the text, and where it begins
        self._unclosed = False  # a comment reaches to the end

    def scan(self) -> list[Token]:
        end = self._text.rfind(">") + 1  # behind it no tag can end
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
        if self.rawdata.startswith("<!--", i):
            return self.parse_comment(i)
        self.handle_decl("")
        return self.rawdata.find(">", i) + 1  # there is one: what is behind the last is not parsed

    def _rest(self, end: int) -> None:
        """What is behind the last tag: text, and a tag that never ends."""
        tag = None if self._unclosed else re.compile(r"<[a-zA-Z/!?]").search(self._text, end)
        text_end = end if self._unclosed else tag.start() if tag else len(self._text)
        if end < text_end:
            self._add(Kind.TEXT, end)
        if text_end < len(self._text):
            self._add(Kind.OTHER, text_end)

    def _place(self) -> int:
        line, column = self.getpos()
        while self._line < line:
            self._begin = self._text.index("\n", self._begin) + 1
            self._line += 1
        return self._begin + column

    def _add(self, kind: Kind, place: int) -> None:
        last = self._found[-1] if self._found else None
        if last is None or last.kind is not kind or kind not in (Kind.TEXT, Kind.OTHER):
            self._found.append(Token(kind, place))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._start(Kind.ALONE if tag in VOID else Kind.START, tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._start(Kind.ALONE, tag, attrs)

    def _start(self, kind: Kind, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in reversed(attrs)}  # the first of two counts
        place = self._place()
        self._found.append(Token(kind, place, place + len(self.get_starttag_text() or ""), tag, named))

    def handle_endtag(self, tag: str) -> None:
        self._found.append(Token(Kind.END, self._place(), name=tag))

    def handle_data(self, data: str) -> None:
        place = self._place()
        broken = self.cdata_elem is None and _BROKEN.match(self._text, place)
        self._add(Kind.OTHER if broken else Kind.TEXT, place)

    def handle_comment(self, data: str) -> None:
        self._add(Kind.OTHER, self._place())

    def handle_decl(self, decl: str) -> None:
        self._add(Kind.OTHER, self._place())

    def handle_pi(self, data: str) -> None:
        self._add(Kind.OTHER, self._place())

    def unknown_decl(self, data: str) -> None:
        self._add(Kind.OTHER, self._place())


def _contiguous(found: Sequence[Token], text: str) -> Iterator[Token]:
    """Each ends where the next begins; a start tag ends by itself, and a text before a tag that the parser passed over."""
    for token, after in zip(found, [*(token.start for token in found[1:]), len(text)], strict=False):
        broken = _BROKEN.search(text, token.start, after) if token.kind is Kind.TEXT else None
        token.end = broken.start() if broken else min(token.end, after) or after
        yield token
        if token.end < after:
            yield Token(Kind.OTHER, token.end, after)


def _close(found: Sequence[Token]) -> None:
    """Says of every element where it ends; each is looked at once when it opens and once when it closes."""
    opened: list[Token] = []
    counts: dict[str, int] = {}
    for at, token in enumerate(found):
        if token.kind is Kind.START:
            while opened and opened[-1].name in ENDS.get(token.name, ()):
                _pop(opened, counts, at)
            opened.append(token)
            counts[token.name] = counts.get(token.name, 0) + 1
        elif token.kind is Kind.END and counts.get(token.name):
            while opened[-1].name != token.name:
                _pop(opened, counts, at)
            _pop(opened, counts, at)


def _pop(opened: list[Token], counts: dict[str, int], at: int) -> None:
    token = opened.pop()
    counts[token.name] -= 1
    token.closing = at


@dataclass(frozen=True, slots=True)
class Value:
    """An attribute's value in a start tag.

    Args:
        span: of it, with its quotes.
        quote: `"`, `'` or nothing.
    """

    span: Span
    quote: str


def values(tag: str) -> dict[str, Value]:
    """Of a start tag's attributes, by their names in lower case; the first of two, as browsers read it."""
    name = _NAME.match(tag)
    found: dict[str, Value] = {}
    for attribute in _ATTRIBUTE.finditer(tag, name.end() if name else 1):
        value = attribute[2]
        if value is not None:
            quote = value[0] if value[:1] in ("'", '"') else ""
            found.setdefault(attribute[1].lower(), Value(attribute.span(2), quote))
        else:
            found.setdefault(attribute[1].lower(), Value((attribute.end(), attribute.end()), ""))
    return found
