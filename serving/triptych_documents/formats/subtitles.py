"""Subtitles: the text of a cue as units, and written into lines again.

What SRT and WebVTT have in common. A cue is one unit; where lines begin with dashes each speaker's part is one. Line ends are
soft: a changed text is broken into two lines of the usual width, or the cue's own where that is more.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.inline_codes import SPACE, Part, Tag, core, pieces_of, soft
from triptych_documents.formats.shared.spans import Lines, Span
from triptych_documents.formats.shared.text_document import Bound, TextDocument
from triptych_documents.formats.shared.wrapping import balanced, words_of
from triptych_documents.unit import Piece, Role, Unit

WIDTH = 42  # characters of a line: what broadcasters and streaming services ask for
JOINER = "\u2060"  # WORD JOINER: nobody sees it
_DASH = re.compile(r"(?:[ \t]|<[^<>]*>|\{\\[^{}]*\})*[-‐‑–—]+[ \t]*")
_LINE_END = re.compile(r"\r\n|\n|\r")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_ELEMENT = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)[^<>]*>")


@dataclass(frozen=True)
class Markup:
    """How a format writes text within cues.

    Args:
        tags: finds tags.
        read: what a text that it has is to readers.
        write: the other way round.
    """

    tags: re.Pattern[str]
    read: Callable[[str], str]
    write: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Cue:
    """What is shown at a time.

    Args:
        name: its number or identifier.
        spans: of its text: mostly one; lines without text lie between more.
    """

    name: str
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class _Place:
    span: Span
    width: int
    line_end: str
    markup: Markup

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        words = words_of(soft(pieces), self.markup.write)
        if words and (_DASH.match(words[0]) or words[0].startswith(JOINER)):
            words[0] = JOINER + words[0]
        return self.line_end.join(balanced(words, self.width, may_begin=lambda word: not _DASH.match(word)))


def document(text: str, encoding: Encoding, cues: Sequence[Cue], markup: Markup) -> TextDocument:
    """Of these cues."""
    units: list[Unit] = []
    places: list[_Place] = []
    line_end = _LINE_END.search(text)
    for cue in cues:
        for span in (part for whole in cue.spans for part in _parts(text, whole)):
            found = core(_scanned(text, span, markup))
            if found:
                place = _Place((found[0].start, found[-1].end), _width(text, span), line_end[0] if line_end else "\n", markup)
                units.append(Unit(pieces_of(_unjoined(found)), f"cue {cue.name}"))
                places.append(place)
    return TextDocument(text, encoding, units, places)


def _unjoined(parts: Sequence[Part]) -> Sequence[Part]:
    """Without the mark that says that what follows is no speaker's dash."""
    first = parts[0]
    if isinstance(first.content, str) and first.content.startswith(JOINER):
        return [Part(first.content[1:], first.start, first.end), *parts[1:]]
    return parts


def _parts(text: str, span: Span) -> Iterator[Span]:
    """What one speaker says: lines from a dash to the next; the dash itself is of no unit."""
    lines = [found.span() for found in _LINE.finditer(text, *span) if found.end() > found.start()]
    start = 0
    dashes = [_DASH.match(text, *line) for line in lines]
    for number in [*range(1, len(lines)), len(lines)]:
        if number == len(lines) or dashes[number]:
            dash = dashes[start]
            yield dash.end() if dash else lines[start][0], lines[number - 1][1]
            start = number


def _scanned(text: str, span: Span, markup: Markup) -> list[Part]:
    parts: list[Part] = []
    at, end = span
    for found in markup.tags.finditer(text, at, end):
        parts += _texts(text, at, found.start(), markup)
        parts.append(Part(_tag(found[0]), found.start(), found.end()))
        at = found.end()
    return [*parts, *_texts(text, at, end, markup)]


def _texts(text: str, start: int, end: int, markup: Markup) -> Iterator[Part]:
    """White space by itself at both ends, so that its place is known where entities have another length than what they mean."""
    raw = text[start:end]
    left, right = len(raw) - len(raw.lstrip(SPACE)), len(raw.rstrip(SPACE))
    for first, after in ((0, left), (left, max(left, right)), (max(left, right), len(raw))):
        if first < after:
            yield Part(markup.read(raw[first:after]), start + first, start + after)


def _tag(raw: str) -> Tag:
    element = _ELEMENT.fullmatch(raw)
    name = element[1].lower() if element else ""
    if name == "br" or raw.startswith("\\"):
        return Tag(raw, Role.ALONE, shown="\n", fixed=True)
    if element is None or raw.endswith("/>"):
        return Tag(raw, Role.ALONE)
    return Tag(raw, Role.CLOSE if raw.startswith("</") else Role.OPEN, name)


def _width(text: str, span: Span) -> int:
    return max(WIDTH, *map(len, _LINE_END.split(text[slice(*span)])))


_TIME = r"[0-9]{1,3}:[0-9]{1,2}:[0-9]{1,2}(?:[,.:][0-9]{1,3})?"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_NUMBER = re.compile(r"[ \t]*[0-9]+[ \t]*")
_TAGS = re.compile(r"</?[A-Za-z][^<>\r\n]*>|\{\\[^{}\r\n]*\}|\\[Nh]")
_JOINED = re.compile(rf"([<{{\\-]){JOINER}")
_TO_JOIN = re.compile(rf"(<(?=/?[A-Za-z][^<>]*>)|\{{(?=\\)|\\(?=[Nh])|-(?=->)|[<{{\\-](?={JOINER}))")

_SRT_MARKUP = Markup(_TAGS, lambda raw: _JOINED.sub(r"\1", raw), lambda text: _TO_JOIN.sub(rf"\1{JOINER}", text))


class SubRip:
    """Reads .srt."""

    name = "srt"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        Bound(options).check_marks(data, b"<", b"{", b"\\")
        text, encoding = decode(data, options.encoding)
        cues = list(_srt_cues(text))
        if not cues and text.strip():
            raise DamagedDocumentError("it is not SubRip: no line has times as 00:00:01,000 --> 00:00:02,000 has", "line 1")
        return document(text, encoding, cues, _SRT_MARKUP)


SRT = SubRip()


def _srt_cues(text: str) -> Iterator[Cue]:
    lines = Lines(text)
    bodies = [text[slice(*lines.span(line, line + 1))].rstrip("\r\n") for line in range(len(lines.starts))]
    times = [line for line, body in enumerate(bodies) if _TIMES.match(body)]
    numbered = [time > 0 and _NUMBER.fullmatch(bodies[time - 1]) is not None for time in times]
    ends = [time - number for time, number in zip(times[1:], numbered[1:], strict=True)]
    for count, (time, end) in enumerate(zip(times, [*ends, len(bodies)], strict=False)):
        name = bodies[time - 1].strip() if numbered[count] else str(count + 1)
        yield Cue(name, list(_spans(lines, bodies, time + 1, end)))


def _spans(lines: Lines, bodies: list[str], first: int, after: int) -> Iterator[Span]:
    """Of lines with text that follow each other."""
    start = first
    for line in range(first, after + 1):
        if line == after or not bodies[line].strip():
            if start < line:
                yield lines.span(start, line)
            start = line + 1


_HEADER = re.compile(r"WEBVTT(?![^ \t\r\n])")
_VTT_MARKUP = Markup(re.compile(r"<[^<>]*>"), html.unescape, lambda text: html.escape(text, quote=False))


class WebVtt:
    """Reads .vtt."""

    name = "vtt"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        Bound(options).check_marks(data, b"<")
        text, encoding = decode(data, options.encoding)
        if not _HEADER.match(text):
            raise DamagedDocumentError("it is not WebVTT: it does not begin with the word WEBVTT", "line 1")
        return document(text, encoding, list(_vtt_cues(text)), _VTT_MARKUP)


VTT = WebVtt()


def _vtt_cues(text: str) -> Iterator[Cue]:
    lines = Lines(text)
    bodies = [text[slice(*lines.span(line, line + 1))].rstrip("\r\n") for line in range(len(lines.starts))]
    times = [line for line, body in enumerate(bodies) if "-->" in body]
    for count, time in enumerate(times):
        end = next(line for line in range(time + 1, len(bodies) + 1) if line == len(bodies) or _ends(bodies[line]))
        named = time > 0 and bodies[time - 1] and (time == 1 or not bodies[time - 2])
        if time + 1 < end:
            yield Cue(bodies[time - 1] if named else str(count + 1), [lines.span(time + 1, end)])


def _ends(line: str) -> bool:
    return not line or "-->" in line
