"""PO files as entries with their spans, and plural forms by language.

polib parses; the lines of each entry's strings are found by its line numbers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polib

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.shared.text_document import LineIndex, Span

MAX_LINES = 5_000  # per string or comment: the parser takes quadratic time
MAX_STRING = 2**20  # characters per string
_CHARSET = re.compile(rb'"Content-Type:[^"\n]*?charset=([A-Za-z0-9._:-]+)')
# Only polib takes these for line ends.
_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_HIDDEN = {ord(sign): 0xF8F0 + place for place, sign in enumerate(_SEPARATORS)}
_SHOWN = {hidden: sign for sign, hidden in _HIDDEN.items()}


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


class _Catalog(polib.POFile):
    """Treats the header as an ordinary entry."""

    def find(self, *_: object, **__: object) -> None:
        return None


@dataclass(frozen=True)
class Catalog:
    """A PO file."""

    text: str
    encoding: Encoding
    header: Entry | None  # entry with the empty message, if any
    entries: Sequence[Entry]  # all others without obsolete ones
    line_end: str
    width: int  # columns at which its strings are broken; 0: they are not

    @property
    def fields(self) -> Mapping[str, str]:
        lines = self.header.strings[0].split("\n") if self.header else []
        return {name.strip(): value.strip() for name, sign, value in (line.partition(":") for line in lines) if sign}


def read_catalog(data: bytes, encoding: str, width: int) -> Catalog:
    """Parse a catalog. Raises DamagedDocumentError: it is not a PO file; and as `decode`."""
    found = _CHARSET.search(data)
    declared = found[1].decode() if found else ""
    text, known = decode(data, encoding, "" if declared.upper() == "CHARSET" else declared)
    lines = LineIndex(text)
    _check(text, lines)
    every = list(_entries(text, lines))
    header = next((entry for entry in every if not entry.message and entry.context is None), None)
    others = [entry for entry in every if entry.message]
    wraps = not any(_is_long(line, width) for line in text.splitlines())
    end = re.search(r"\r\n|\n|\r", text)
    return Catalog(text, known, header, others, end[0] if end else "\n", width if wraps else 0)


def _is_long(line: str, width: int) -> bool:
    """Return whether gettext's tools would have broken this line."""
    return len(line) > width + 1 and line.endswith('"') and not line.startswith("#") and " " in line[width // 2 : -2].strip()


def _check(text: str, lines: LineIndex) -> None:
    """Reject what takes the parser too long."""
    starts = lines.starts
    run = length = 0
    kind = ""
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(text)], strict=True), 1):
        sign = text[start : start + 1]
        same = sign == kind and sign in ('"', "#") and not text.startswith("#~", start)
        run, length = (run + 1, length + end - start) if same else (0, end - start)
        kind = sign
        if run > MAX_LINES or length > MAX_STRING:
            raise DamagedDocumentError(
                f"a string or comment has more than {MAX_LINES} lines or {MAX_STRING} characters", f"line {number}"
            )


def _parsed(text: str) -> list[polib.POEntry]:
    try:
        # A text with a line end is never taken for a file name. The comment ends the last entry, which is lost if the file
        # ends with an empty comment.
        return list(polib.pofile(text.translate(_HIDDEN) + "\n#\n", encoding="utf-8", klass=_Catalog))
    except (OSError, ValueError, IndexError) as error:
        found = re.search(r"\(line (\d+)\)(?:: (.*))?", str(error))
        where, problem = (f"line {found[1]}", found[2] or "") if found else ("", str(error))
        raise DamagedDocumentError(f"not a PO file{f': {problem}' if problem else ''}", where) from error


def _entries(text: str, lines: LineIndex) -> Iterator[Entry]:
    parsed = _parsed(text)
    if not parsed and "msgid" in text:
        raise DamagedDocumentError("not a PO file: no message has a msgstr", "line 1")
    starts = [max((entry.linenum or 0) - 1, 0) for entry in parsed]
    ends = [*starts[1:], len(lines.starts)] if starts else []
    for entry, first, after in zip(parsed, starts, ends, strict=True):
        found = _Finder(text, lines, first, after)
        if found.messages != (not entry.obsolete) or (found.span is None and not entry.obsolete):
            raise DamagedDocumentError("a message has no msgstr", f"line {found.line}")
        if found.span is None:
            continue
        forms = [entry.msgstr_plural[form] for form in sorted(entry.msgstr_plural)] or [entry.msgstr]
        yield Entry(
            found.line,
            None if entry.msgctxt is None else entry.msgctxt.translate(_SHOWN),
            entry.msgid.translate(_SHOWN),
            entry.msgid_plural.translate(_SHOWN),
            tuple(form.translate(_SHOWN) for form in forms),
            frozenset(entry.flags),
            found.span,
            found.start,
            tuple(found.flags),
            tuple(found.previous),
        )


class _Finder:
    """Finds the lines of an entry, of which polib only provides the first."""

    def __init__(self, text: str, lines: LineIndex, first: int, after: int) -> None:
        self.span: Span | None = None
        self.line, self.start = first + 1, lines.span(first, first)[0]
        self.flags: list[Span] = []
        self.previous: list[Span] = []
        self.messages = 0  # number of msgid
        self._keyword = ""
        for number in range(first, after):
            span = lines.span(number, number + 1)
            self._look(number, span, text[span[0] : span[1]])

    def _look(self, number: int, span: Span, line: str) -> None:
        end = span[0] + len(line.rstrip("\r\n"))
        stripped = line.strip()
        if stripped.startswith("#,"):
            self.flags.append((span[0], end))
        elif stripped.startswith("#|"):
            self.previous.append(span)
        elif stripped.startswith("msg"):
            self._begin(number, span, end, stripped)
        elif stripped.startswith('"') and self._keyword == "msgstr" and self.span is not None:
            self.span = (self.span[0], end)

    def _begin(self, number: int, span: Span, end: int, line: str) -> None:
        before, self._keyword = self._keyword, "msgstr" if line.startswith("msgstr") else "msgid"
        if not before:
            self.start = span[0]
        if line.startswith("msgid") and not line.startswith("msgid_plural"):
            self.line = number + 1
            self.messages += 1
        if self._keyword == "msgstr":
            self.span = (span[0] if self.span is None else self.span[0], end)


_ONE = "nplurals=1; plural=0;"
_TWO = "nplurals=2; plural=(n != 1);"
_FRENCH = "nplurals=2; plural=(n > 1);"
_RUSSIAN = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);"
_CZECH = "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;"
_FORMS = {
    "id ja ko lo ms my th vi zh": _ONE,
    "ak am bn fa fr hi hy ln mg oc pa pt-br ti tr uz wa zu": _FRENCH,
    "be bs hr ru sr uk": _RUSSIAN,
    "cs sk": _CZECH,
    "ar": "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);",
    "cy": "nplurals=4; plural=(n==1) ? 0 : (n==2) ? 1 : (n != 8 && n != 11) ? 2 : 3;",
    "ga": "nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n<7 ? 2 : n<11 ? 3 : 4);",
    "is": "nplurals=2; plural=(n%10!=1 || n%100==11);",
    "lt": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);",
    "lv": "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);",
    "mk": "nplurals=2; plural=(n%10==1 && n%100!=11) ? 0 : 1;",
    "mt": "nplurals=4; plural=(n==1 ? 0 : n==0 || (n%100>1 && n%100<11) ? 1 : (n%100>10 && n%100<20) ? 2 : 3);",
    "pl": "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);",
    "ro": "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100 > 0 && n%100 < 20)) ? 1 : 2);",
    "sl": "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);",
}
_BY_LANGUAGE = {language: form for languages, form in _FORMS.items() for language in languages.split()}
_COUNT = re.compile(r"\s*nplurals\s*=\s*([1-9])\s*;\s*plural\s*=")


def plural_forms(language: str) -> str:
    """Return the Plural-Forms of a language (BCP 47); of an unknown one those of English."""
    wanted = language.lower().replace("_", "-")
    return _BY_LANGUAGE.get(wanted) or _BY_LANGUAGE.get(wanted.partition("-")[0], _TWO)


def count(plural_forms: str) -> int | None:
    """Return the number of plural forms that a value declares; None for a template."""
    found = _COUNT.match(plural_forms)
    return int(found[1]) if found else None
