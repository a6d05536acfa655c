"""PO files as entries that know their lines. polib parses; the lines of each entry's strings are found by its line numbers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polib

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError
from triptych_documents.formats.shared.spans import Lines, Span

MAX_LINES = 5_000  # of one string or comment: the parser takes time by their square
MAX_STRING = 2**20  # characters of one string
_CHARSET = re.compile(rb'"Content-Type:[^"\n]*?charset=([A-Za-z0-9._:-]+)')
# The parser takes these for line ends as well; nobody else does.
_SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_HIDDEN = {ord(sign): 0xF8F0 + place for place, sign in enumerate(_SEPARATORS)}
_SHOWN = {hidden: sign for sign, hidden in _HIDDEN.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """A message.

    Args:
        line: of its msgid, from 1.
        plural: its msgid_plural, or nothing.
        strings: its msgstr, or its msgstr[0], ... .
        flags: such as "fuzzy".
        span: of its msgstr lines, without the last line end.
        start: of its line that flags are put before: its msgctxt or msgid.
        flag_lines: where its `#,` lines stand.
        previous: where its `#|` lines stand, with their line ends.
    """

    line: int
    context: str | None
    message: str
    plural: str
    strings: tuple[str, ...]
    flags: frozenset[str]
    span: Span
    start: int
    flag_lines: tuple[Span, ...]
    previous: tuple[Span, ...]

    @property
    def is_fuzzy(self) -> bool:
        return "fuzzy" in self.flags


class _Catalog(polib.POFile):
    """The header is an entry like others."""

    def find(self, *_: object, **__: object) -> None:
        return None


@dataclass(frozen=True)
class Catalog:
    """A PO file.

    Args:
        text: all of it.
        header: the entry whose message is empty, if it has one.
        entries: the others; without obsolete ones.
        line_end: as it writes them.
        width: columns at which its strings are broken; 0: they are not.
    """

    text: str
    encoding: Encoding
    header: Entry | None
    entries: Sequence[Entry]
    line_end: str
    width: int

    @property
    def fields(self) -> Mapping[str, str]:
        """Of the header."""
        lines = self.header.strings[0].split("\n") if self.header else []
        return {name.strip(): value.strip() for name, sign, value in (line.partition(":") for line in lines) if sign}


def read(data: bytes, encoding: str, width: int) -> Catalog:
    """The catalog in these bytes.

    Args:
        encoding: what the user says, or nothing.
        width: columns at which strings are broken where the file does not say otherwise.

    Raises:
        OptionError: there is no such encoding.
        DamagedDocumentError: it cannot be parsed.
    """
    found = _CHARSET.search(data)
    declared = found[1].decode() if found else ""
    text, known = decode(data, encoding, "" if declared.upper() == "CHARSET" else declared)
    lines = Lines(text)
    _check(text, lines)
    every = list(_entries(text, lines))
    header = next((entry for entry in every if not entry.message and entry.context is None), None)
    others = [entry for entry in every if entry.message]
    wraps = not any(_is_long(line, width) for line in text.splitlines())
    end = re.search(r"\r\n|\n|\r", text)
    return Catalog(text, known, header, others, end[0] if end else "\n", width if wraps else 0)


def _is_long(line: str, width: int) -> bool:
    """A string that gettext's tools would have broken."""
    return len(line) > width + 1 and line.endswith('"') and not line.startswith("#") and " " in line[width // 2 : -2].strip()


def _check(text: str, lines: Lines) -> None:
    """What the parser would not get through in time."""
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
        # A text with a line end is never taken for the name of a file. A comment ends the last entry, which gets lost where the
        # file ends in an empty one.
        return list(polib.pofile(text.translate(_HIDDEN) + "\n#\n", encoding="utf-8", klass=_Catalog))
    except (OSError, ValueError, IndexError) as error:
        found = re.search(r"\(line (\d+)\)(?:: (.*))?", str(error))
        where, problem = (f"line {found[1]}", found[2] or "") if found else ("", str(error))
        raise DamagedDocumentError(f"not a PO file{f': {problem}' if problem else ''}", where) from error


def _entries(text: str, lines: Lines) -> Iterator[Entry]:
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
    """Where the parts of an entry stand, of which polib only says the first line."""

    def __init__(self, text: str, lines: Lines, first: int, after: int) -> None:
        self.span: Span | None = None
        self.line, self.start = first + 1, lines.span(first, first)[0]
        self.flags: list[Span] = []
        self.previous: list[Span] = []
        self.messages = 0  # how many msgid there are
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
    """The value of Plural-Forms.

    Args:
        language: BCP 47; of one that is not known here: as in English.
    """
    wanted = language.lower().replace("_", "-")
    return _BY_LANGUAGE.get(wanted) or _BY_LANGUAGE.get(wanted.partition("-")[0], _TWO)


def count(plural_forms: str) -> int | None:
    """How many forms such a value says; None where it says nothing, as in a template."""
    found = _COUNT.match(plural_forms)
    return int(found[1]) if found else None
