r"""SubRip (.srt) and WebVTT (.vtt) subtitles: the text of cues. Numbers, times, settings and comments stay.

A cue is one unit; where lines start with dashes, `>>`, voices or labels (`JOHN:`, `[door opens]`), each speaker is one. Line
ends are soft: a changed text is broken into two lines of the usual width, or of the cue's own width if that is larger. Tags
are codes, and in SubRip also overrides in braces (`{\an8}`) and `\N`. SubRip has no escapes: text that would be read as one
of these, or as a speaker's dash, is written with a WORD JOINER in it, which reading removes. Unreadable times stay and are
reported, as is text of WebVTT outside of cues.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.findings import Finding, FindingKind, Severity
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.inline_codes import SPACE, ScannedPart, ScannedTag, core, pieces_of, soft
from triptych_documents.formats.shared.text_document import LineIndex, Span, TextDocument, collected, decoded_text
from triptych_documents.formats.shared.wrapping import balanced, words_of
from triptych_documents.unit import Code, Piece, Role, Unit

WIDTH = 42  # characters per line: usual limit of broadcasters and streaming services
JOINER = "\u2060"  # WORD JOINER: invisible
_DASH = re.compile(
    r"(?:[ \t]|<[^<>]*>|\{\\[^{}]*\})*(?:[-‐‑–—]+|>{2,}|(?:&gt;){2,})[ \t]*"
)  # of a new speaker, in captions of American television `>>`
_LABEL = re.compile(
    r"(?:<[^<>v][^<>]*>)*<v[. \t]|(?:<[^<>]*>|\{\\[^{}]*\})*(?:\[|[A-Z][A-Z0-9 .'’#-]*:(?:\s|$))"
)  # of a speaker or sound: `<v John>`, `JOHN: `, `[door opens]`
_LINE_END = re.compile(r"\r\n|\n|\r")
_SHOWN_END = re.compile(r"\r\n|\n|\r|\\N")  # of a line on the screen
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_ELEMENT = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)[^<>]*>")


@dataclass(frozen=True)
class Markup:
    """Markup inside the cues of a format."""

    tags: re.Pattern[str]  # matches tags
    read: Callable[[str], str]  # converts text as written to text as shown
    write: Callable[[str], str]  # the reverse

    def width(self, text: str) -> int:
        """Return the number of characters on the screen."""
        return len(self.read(self.tags.sub("", text)))


@dataclass(frozen=True, slots=True)
class Cue:
    """Text that is shown at one time."""

    name: str  # its number or identifier
    spans: Sequence[Span]  # of its text; several if blank lines interrupt it


@dataclass(frozen=True, slots=True)
class _Slot:
    span: Span
    width: int
    line_end: str
    markup: Markup

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        parts: list[list[Piece]] = [[]]  # each is broken into lines of its own
        for piece in soft(pieces):
            parts[-1].append(piece)
            if isinstance(piece, Code) and piece.raw == "\\N":
                parts.append([])
        return "".join(self._lines(part, is_first=place == 0) for place, part in enumerate(parts))

    def _lines(self, part: Sequence[Piece], is_first: bool) -> str:
        words = words_of(part, self.markup.write)
        if is_first and words and (_DASH.match(words[0]) or words[0].startswith(JOINER)):
            words[0] = JOINER + words[0]
        lines = balanced(words, self.width, _may_begin, self.markup.width)
        lead = " " if part and isinstance(part[0], str) and part[0].startswith(" ") else ""
        return lead + self.line_end.join(lines)


def _may_begin(word: str) -> bool:
    return not (_DASH.match(word) or _LABEL.match(word))


def _units(text: str, cues: Sequence[Cue], markup: Markup) -> Iterator[tuple[Unit, _Slot]]:
    line_end = _LINE_END.search(text)
    for cue in cues:
        for span in (part for whole in cue.spans for part in _parts(text, whole)):
            found = core(_scanned(text, span, markup))
            if found:
                width = max(WIDTH, *map(markup.width, _SHOWN_END.split(text[slice(*span)])))
                place = _Slot((found[0].start, found[-1].end), width, line_end[0] if line_end else "\n", markup)
                yield Unit(pieces_of(_unjoined(found)), f"cue {cue.name}"), place


def _unjoined(parts: Sequence[ScannedPart]) -> Sequence[ScannedPart]:
    """Remove the mark which says that the text does not start with a speaker's dash."""
    first = parts[0]
    if isinstance(first.content, str) and first.content.startswith(JOINER):
        return [ScannedPart(first.content[1:], first.start, first.end), *parts[1:]]
    return parts


def _parts(text: str, span: Span) -> Iterator[Span]:
    """Yield what each speaker says: lines from one dash or label to the next, without the dash."""
    lines = [found.span() for found in _LINE.finditer(text, *span) if found.end() > found.start()]
    start = 0
    dashes = [_DASH.match(text, *line) for line in lines]
    for number in [*range(1, len(lines)), len(lines)]:
        if number == len(lines) or dashes[number] or _LABEL.match(text, *lines[number]):
            dash = dashes[start]
            yield dash.end() if dash else lines[start][0], lines[number - 1][1]
            start = number


def _scanned(text: str, span: Span, markup: Markup) -> list[ScannedPart]:
    parts: list[ScannedPart] = []
    at, end = span
    for found in markup.tags.finditer(text, at, end):
        parts += _texts(text, at, found.start(), markup)
        parts.append(ScannedPart(_tag(found[0]), found.start(), found.end()))
        at = found.end()
    return [*parts, *_texts(text, at, end, markup)]


def _texts(text: str, start: int, end: int, markup: Markup) -> Iterator[ScannedPart]:
    """Yield white space at both ends separately, because entities have another length than their meaning."""
    raw = text[start:end]
    left, right = len(raw) - len(raw.lstrip(SPACE)), len(raw.rstrip(SPACE))
    for first, after in ((0, left), (left, max(left, right)), (max(left, right), len(raw))):
        if first < after:
            yield ScannedPart(markup.read(raw[first:after]), start + first, start + after)


def _tag(raw: str) -> ScannedTag:
    element = _ELEMENT.fullmatch(raw)
    name = element[1].lower() if element else ""
    if name == "br" or raw.startswith("\\"):
        return ScannedTag(raw, Role.ALONE, shown="\n", fixed=True)
    if element is None or raw.endswith("/>"):
        return ScannedTag(raw, Role.ALONE)
    return ScannedTag(raw, Role.CLOSE if raw.startswith("</") else Role.OPEN, name)


_TIME = r"[0-9]{1,3}:[0-9]{1,2}:[0-9]{1,2}(?:[,.:][0-9]{1,3})?(?![0-9])"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_UNREADABLE_TIMES = re.compile(r"[ \t]*[-+−]?[0-9]+[:.,][^>]*-->")
_UNREADABLE_BELOW_NUMBER = re.compile(r"[^>]*[0-9][^>]*->")
_NUMBER = re.compile(r"[ \t]*[0-9]+[ \t]*")
_TAGS = re.compile(r"</?[A-Za-z][^<>\r\n]*>|\{\\[^{}\r\n]*\}|\\[Nh]")
_JOINED = re.compile(rf"([<{{\\-]){JOINER}")
_TO_JOIN = re.compile(rf"(<(?=/?[A-Za-z][^<>]*>)|\{{(?=\\)|\\(?=[Nh])|-(?=->)|[<{{\\-](?={JOINER}))")

_SRT_MARKUP = Markup(_TAGS, lambda raw: _JOINED.sub(r"\1", raw), lambda text: _TO_JOIN.sub(rf"\1{JOINER}", text))


def read_srt(data: bytes, options: ReadOptions) -> TextDocument:
    """See FormatInfo.read."""
    text, encoding, bound = decoded_text(data, options, b"<", b"{", b"\\")
    findings: list[Finding] = []
    cues = list(_srt_cues(text, findings))
    if not cues and text.strip():
        raise DamagedDocumentError("not SubRip: no line with times like 00:00:01,000 --> 00:00:02,000", "line 1")
    return collected(text, encoding, _units(text, cues, _SRT_MARKUP), bound, findings)


def _srt_cues(text: str, findings: list[Finding]) -> Iterator[Cue]:
    """Yield all cues; add a finding for each whose times cannot be read."""
    lines, bodies = LineIndex(text), _LINE_END.split(text)
    below_number = [False, *(_NUMBER.fullmatch(body) is not None for body in bodies[:-1])]
    times = [line for line, body in enumerate(bodies) if "->" in body and _is_time_line(body, below_number[line])]
    numbered = [below_number[time] for time in times]
    ends = [time - number for time, number in zip(times[1:], numbered[1:], strict=True)]
    for count, (time, end) in enumerate(zip(times, [*ends, len(bodies)], strict=False)):
        name = bodies[time - 1].strip() if numbered[count] else str(count + 1)
        if not _TIMES.match(bodies[time]):
            findings.append(_unreadable(name, time, "00:00:01,000 --> 00:00:02,000", bodies[time]))
        yield Cue(name, list(_spans(lines, bodies, time + 1, end)))


def _unreadable(cue: str, line: int, usual: str, found: str) -> Finding:
    message = f"times not like {usual}, kept as they are: {found[:60]!r}"
    return Finding(FindingKind.FORMAT, Severity.WARNING, f"cue {cue}, line {line + 1}", message)


def _is_time_line(body: str, below_number: bool) -> bool:
    pattern = _UNREADABLE_BELOW_NUMBER if below_number else _UNREADABLE_TIMES
    return bool(_TIMES.match(body) or pattern.match(body))


def _spans(lines: LineIndex, bodies: list[str], first: int, after: int) -> Iterator[Span]:
    start = first
    for line in range(first, after + 1):
        if line == after or not bodies[line].strip():
            if start < line:
                yield lines.span(start, line)
            start = line + 1


_HEADER = re.compile(r"WEBVTT(?![^ \t\r\n])")
_BLOCKS = ("NOTE", "STYLE", "REGION")
_VTT_TIME = r"(?:[0-9]{2,}:)?[0-5][0-9]:[0-5][0-9]\.[0-9]{3}"
_VTT_TIMES = re.compile(rf"[ \t]*{_VTT_TIME}[ \t]*-->[ \t]*{_VTT_TIME}(?![^ \t])")
_LIKE_VTT_TIMES = re.compile(r"[ \t]*[-+−]?[0-9]+:[^>]*->[ \t]*[-+−]?[0-9]")
_VTT_MARKUP = Markup(re.compile(r"<[^<>]*>"), html.unescape, lambda text: html.escape(text, quote=False))


def read_vtt(data: bytes, options: ReadOptions) -> TextDocument:
    """See FormatInfo.read."""
    text, encoding, bound = decoded_text(data, options, b"<")
    if not _HEADER.match(text):
        raise DamagedDocumentError("not WebVTT: the file does not start with the word WEBVTT", "line 1")
    findings: list[Finding] = []
    cues = list(_vtt_cues(text, findings))
    return collected(text, encoding, _units(text, cues, _VTT_MARKUP), bound, findings)


def _vtt_cues(text: str, findings: list[Finding]) -> Iterator[Cue]:
    """Yield all cues; add a finding for each whose times cannot be read, and for each block of text without times."""
    lines, bodies = LineIndex(text), _LINE_END.split(text)
    edges = [-1, *(line for line, body in enumerate(bodies) if not body), len(bodies)]
    count = 0
    for start, end in ((before + 1, after) for before, after in pairwise(edges) if before + 1 < after):
        times = [line for line in range(start, end) if "-->" in bodies[line]]
        other = start == 0 or bodies[start].startswith(_BLOCKS)
        if not times and not other:
            times = [line for line in range(start, min(start + 2, end)) if _LIKE_VTT_TIMES.match(bodies[line])][:1]
            if not times:
                message = f"text outside of cues, which is not shown and not translated: {bodies[start][:60]!r}"
                findings.append(Finding(FindingKind.FORMAT, Severity.WARNING, f"line {start + 1}", message))
        for time, after in pairwise([*times, end]):
            count += 1
            name = bodies[start] if time == start + 1 else str(count)
            if not _VTT_TIMES.match(bodies[time]):
                findings.append(_unreadable(name, time, "00:01.000 --> 00:02.000", bodies[time]))
            if time + 1 < after:
                yield Cue(name, [lines.span(time + 1, after)])
