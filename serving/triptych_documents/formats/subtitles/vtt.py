"""WebVTT (W3C): the text of cues. Times, settings, identifiers, comments, styles, regions and the header stay.

Tags and time stamps within the text are codes; character references are read and `&`, `<` and `>` written as such.
"""

import html
import re
from collections.abc import Iterator

from triptych_documents.encoding import decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.limits import Bound
from triptych_documents.formats.shared.spans import Lines
from triptych_documents.formats.shared.text_document import TextDocument
from triptych_documents.formats.subtitles.cues import Cue, Markup, document

_HEADER = re.compile(r"WEBVTT(?![^ \t\r\n])")
_MARKUP = Markup(re.compile(r"<[^<>]*>"), html.unescape, lambda text: html.escape(text, quote=False))


class WebVtt:
    """Reads .vtt."""

    name = "vtt"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        Bound(options).check_marks(data, b"<")
        text, encoding = decode(data, options.encoding)
        if not _HEADER.match(text):
            raise DamagedDocumentError("it is not WebVTT: it does not begin with the word WEBVTT", "line 1")
        return document(text, encoding, list(_cues(text)), _MARKUP)


FORMAT = WebVtt()


def _cues(text: str) -> Iterator[Cue]:
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
