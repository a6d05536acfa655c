"""PO files as entries with their spans (GNU gettext manual, "The Format of PO Files")."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.po.text import unescaped
from triptych_documents.formats.shared.text_document import LineIndex, Span

_CHARSET = re.compile(rb'"Content-Type:[^"\n]*?charset=([A-Za-z0-9._:-]+)')
_STRING = re.compile(r'(?:(msgctxt|msgid_plural|msgid|msgstr(?:\[\d\])?)\s*)?"((?:[^"\\]|\\.)*+)"')
_EXPECTED = "not a PO file: expected a comment, or a keyword such as msgid with a text in quotation marks"


@dataclass(frozen=True, slots=True)
class Entry:
    """A message."""

    line: int  # line of its msgid, from 1
    context: str | None
    message: str
    plural: str  # its msgid_plural, or ""
    strings: tuple[str, ...]  # its msgstr, or msgstr[0] and so on
    flags: frozenset[str]  # such as "fuzzy"
    span: Span  # of its msgstr lines, without the last line end
    start: int  # of the line that flags are written before: its msgctxt or msgid
    flag_lines: tuple[Span, ...]  # spans of its `#,` lines
    previous: tuple[Span, ...]  # spans of its `#|` lines with line ends

    @property
    def is_fuzzy(self) -> bool:
        return "fuzzy" in self.flags


@dataclass(frozen=True)
class Catalog:
    """A PO file."""

    text: str
    encoding: Encoding
    header: Entry | None  # entry with the empty message, if any
    entries: Sequence[Entry]  # all others without obsolete ones
    line_end: str
    width: int  # columns at which its strings are broken; 0: they are not

    @cached_property
    def fields(self) -> Mapping[str, str]:
        lines = self.header.strings[0].split("\n") if self.header else []
        return {name.strip(): value.strip() for name, sign, value in (line.partition(":") for line in lines) if sign}


def read_catalog(data: bytes, encoding: str, width: int) -> Catalog:
    """Parse a catalog. Raises DamagedDocumentError: it is not a PO file; and as `decode`."""
    found = _CHARSET.search(data)
    declared = found[1].decode() if found else ""
    text, known = decode(data, encoding, "" if declared.upper() == "CHARSET" else declared)
    every = list(_entries(text))
    header = next((entry for entry in every if not entry.message and entry.context is None), None)
    others = [entry for entry in every if entry.message]
    wraps = not any(_is_long(line, width) for line in text.splitlines())
    end = re.search(r"\r\n|\n|\r", text)
    return Catalog(text, known, header, others, end[0] if end else "\n", width if wraps else 0)


def _is_long(line: str, width: int) -> bool:
    """Return whether gettext's tools would have broken this line."""
    return len(line) > width + 1 and line.endswith('"') and not line.startswith("#") and " " in line[width // 2 : -2].strip()


class _Line(NamedTuple):
    """A line that is not blank."""

    keyword: str  # such as msgid, also of the lines that continue its string; of a comment its first two characters
    begins: bool  # has the keyword, or is a comment
    string: str  # as written, or the comment
    number: int  # from 1
    start: int
    end: int  # without the line end
    after: int


def _lines(text: str) -> Iterator[_Line]:
    last = ""
    for number, (start, after) in enumerate(pairwise([*LineIndex(text).starts, len(text)]), 1):
        whole = text[start:after]
        line, place = whole.strip(), (number, start, start + len(whole.rstrip("\r\n")), after)
        if line.startswith("#"):
            yield _Line(line[:2], True, line, *place)
        elif (found := _STRING.fullmatch(line)) and (found[1] or last):
            last = found[1] or last
            yield _Line(last, found[1] is not None, found[2], *place)
        elif line:
            raise DamagedDocumentError(_EXPECTED, f"line {number}")


def _entries(text: str) -> Iterator[Entry]:
    lines: list[_Line] = []  # of an entry
    for line in _lines(text):
        is_obsolete = line.keyword == "#~"
        is_next = lines and lines[-1].keyword.startswith("msgstr") and not line.keyword.startswith("msgstr")
        if is_next or (is_obsolete and _has_strings(lines)):
            yield _entry(lines)
            lines = []
        if is_obsolete:
            lines = []
        else:
            lines.append(line)
    if _has_strings(lines):
        yield _entry(lines)


def _has_strings(lines: Sequence[_Line]) -> bool:
    return any(not line.keyword.startswith("#") for line in lines)


def _entry(lines: Sequence[_Line]) -> Entry:
    named = [line for line in lines if not line.keyword.startswith("#")]
    first = next((line for line in named if line.keyword == "msgid"), named[0])
    parts: dict[str, list[str]] = {}
    for line in named:
        parts.setdefault(line.keyword, []).append(line.string)
    forms = sorted(keyword for keyword in parts if keyword.startswith("msgstr"))
    if "msgid" not in parts or not forms or sum(line.begins for line in named) > len(parts):
        raise DamagedDocumentError("a message has no msgstr", f"line {first.number}")
    texts = {keyword: unescaped("".join(strings)) for keyword, strings in parts.items()}
    flags = [line for line in lines if line.keyword == "#,"]
    return Entry(
        first.number,
        texts.get("msgctxt"),
        texts["msgid"],
        texts.get("msgid_plural", ""),
        tuple(texts[form] for form in forms),
        frozenset(flag.strip() for line in flags for flag in line.string[2:].split(",")),
        (next(line.start for line in named if line.keyword.startswith("msgstr")), named[-1].end),
        named[0].start,
        tuple((line.start, line.end) for line in flags),
        tuple((line.start, line.after) for line in lines if line.keyword == "#|"),
    )
