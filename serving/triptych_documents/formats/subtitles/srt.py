r"""SubRip: the text of cues. Numbers, times, positions and blank lines stay.

Tags in angle brackets, overrides in braces (`{\an8}`) and `\N` are codes. SubRip has no escapes: a text that would be read as
one of these, or as a speaker's dash, is written with a WORD JOINER in it, and read without.
"""

import re
from collections.abc import Iterator

from triptych_documents.encoding import decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.limits import Bound
from triptych_documents.formats.shared.spans import Lines, Span
from triptych_documents.formats.shared.text_document import TextDocument
from triptych_documents.formats.subtitles.cues import JOINER, Cue, Markup, document

_TIME = r"[0-9]{1,3}:[0-9]{1,2}:[0-9]{1,2}(?:[,.:][0-9]{1,3})?"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
_NUMBER = re.compile(r"[ \t]*[0-9]+[ \t]*")
_TAGS = re.compile(r"</?[A-Za-z][^<>\r\n]*>|\{\\[^{}\r\n]*\}|\\[Nh]")
_JOINED = re.compile(rf"([<{{\\-]){JOINER}")
_TO_JOIN = re.compile(rf"(<(?=/?[A-Za-z][^<>]*>)|\{{(?=\\)|\\(?=[Nh])|-(?=->)|[<{{\\-](?={JOINER}))")

_MARKUP = Markup(_TAGS, lambda raw: _JOINED.sub(r"\1", raw), lambda text: _TO_JOIN.sub(rf"\1{JOINER}", text))


class SubRip:
    """Reads .srt."""

    name = "srt"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        Bound(options).check_marks(data, b"<", b"{", b"\\")
        text, encoding = decode(data, options.encoding)
        cues = list(_cues(text))
        if not cues and text.strip():
            raise DamagedDocumentError("it is not SubRip: no line has times as 00:00:01,000 --> 00:00:02,000 has", "line 1")
        return document(text, encoding, cues, _MARKUP)


FORMAT = SubRip()


def _cues(text: str) -> Iterator[Cue]:
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
