"""CSV (RFC 4180): cells. Quotes, line ends, ragged records, delimiters and the cells of other columns stay.

The standard library's reader says what the fields are; where they stand is found beside it and checked against it.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import Literal

from triptych_documents.encoding import Encoding, decode
from triptych_documents.errors import DamagedDocumentError, OptionError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.spans import Lines, Span
from triptych_documents.formats.shared.text_document import Bound, TextDocument
from triptych_documents.unit import Piece, Unit

_DELIMITERS = ",;\t"
_UNWRITABLE = re.compile(r"[\t\r\n]+")  # without quotation marks
_SNIFFED = 100  # records
MAX_CELLS = 100_000  # of a record
_HINT = re.compile(r"sep=([^\r\n])(?:\r\n|\n|\r)", re.IGNORECASE)  # Excel's


@dataclass(frozen=True, slots=True)
class Dialect:
    """How cells are told apart.

    Args:
        delimiter: one character.
        quoted: cells can be in quotation marks; otherwise these are characters like others.
    """

    delimiter: str
    quoted: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """A field of a record; its place is with the quotes around it."""

    text: str
    span: Span
    quotes: bool


@dataclass(frozen=True, slots=True)
class _Place:
    span: Span
    dialect: Dialect
    quotes: bool

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        text = "".join(piece if isinstance(piece, str) else piece.raw for piece in pieces)
        if not self.dialect.quoted:
            return _UNWRITABLE.sub(" ", text)
        if self.quotes or any(character in text for character in (self.dialect.delimiter, '"', "\n", "\r")):
            return '"' + text.replace('"', '""') + '"'
        return text


class Csv:
    """Reads .csv, of commas, semicolons or tabs."""

    name = "csv"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        Bound(options).check_marks(data)
        text, encoding = decode(data, options.encoding)
        hint = _HINT.match(text)
        dialect = Dialect(hint[1] if hint else sniffed(text))
        return table(text, encoding, options, dialect, hint.end() if hint else 0)


CSV = Csv()


def table(text: str, encoding: Encoding, options: ReadOptions, dialect: Dialect, start: int = 0) -> TextDocument:
    """The document of these records.

    Args:
        text: of the document.
        encoding: of its bytes.
        options: which columns.
        dialect: of the records.
        start: of the first one.

    Raises:
        DamagedDocumentError: quotes do not fit together.
        OptionError: there is no such column.
    """
    lines, bound = Lines(text), Bound(options)
    records = _records(text, dialect, lines, start)
    first = next(records, None)
    columns = Columns(options, [cell.text for cell in first or ()])
    units: list[Unit] = []
    places: list[_Place] = []
    for record in records if first is None or columns.header else chain((first,), records):
        columns.count(len(record))
        for number, cell in enumerate(record, 1):
            if columns.takes(number) and cell.text.strip():
                where = f"{lines.where(cell.span[0])}, column {columns.name(number)}"
                units.append(Unit((cell.text,), where, keeps_space=True))
                places.append(_Place(cell.span, dialect, cell.quotes))
                bound.check(units)
    columns.check()
    return TextDocument(text, encoding, units, places)


def sniffed(text: str) -> str:
    """The delimiter that makes records of an equal number of fields, most of them; the comma where none does."""

    def share(delimiter: str) -> float:
        counts = Counter(map(len, _fields(text, delimiter)))
        fields, records = max(counts.items(), key=lambda item: item[1], default=(0, 0))
        return records / counts.total() if fields > 1 and records > counts.total() / 2 else 0.0

    return max(_DELIMITERS, key=share)


def _fields(text: str, delimiter: str) -> list[list[str]]:
    reader = csv.reader(text[: 1 << 18].splitlines(keepends=True), delimiter=delimiter)
    try:
        return [fields for fields in islice(reader, _SNIFFED) if fields]
    except csv.Error:
        return []


def is_quoted(text: str, delimiter: str) -> bool:
    """Whether fields are in quotation marks: some begin with one, and each of these has one at its end."""
    if not re.search(rf'(?:^|[\r\n{delimiter}])"', text):
        return False
    lines = Lines(text)
    try:
        rows = _Rows(text, pairwise(chain(lines.starts, (len(text),))), delimiter)
        for _ in csv.reader(rows, delimiter=delimiter, strict=True):
            rows.cells = 0
    except csv.Error:
        return False
    return True


class _Rows:
    """Lines for a reader that says when it has a record of them. It would make cells of them, however many there are.

    Raises:
        DamagedDocumentError: there are too many in a record.
    """

    def __init__(self, text: str, spans: Iterable[Span], delimiter: str) -> None:
        self._text, self._spans, self._delimiter = text, iter(spans), delimiter
        self.cells = 0  # of the record, at most
        self._line = 0

    def __iter__(self) -> "_Rows":
        return self

    def __next__(self) -> str:
        row = self._text[slice(*next(self._spans))]
        self._line += 1
        self.cells += row.count(self._delimiter)
        if self.cells > MAX_CELLS:
            raise DamagedDocumentError(f"a record has more than {MAX_CELLS:,} cells", f"line {self._line}")
        return row


def _records(text: str, dialect: Dialect, lines: Lines, start: int) -> Iterator[list[Cell]]:
    spans = [(at, end) for at, end in pairwise([*lines.starts, len(text)]) if at >= start and end > at]
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE
    rows = _Rows(text, spans, dialect.delimiter)
    reader = csv.reader(rows, delimiter=dialect.delimiter, strict=True, quoting=quoting)
    done = 0
    try:
        for fields in reader:
            cells = list(_cells(text, spans[done][0], spans[reader.line_num - 1][1], dialect))
            if fields and [cell.text for cell in cells] != fields:
                raise DamagedDocumentError("its quotation marks do not fit together", lines.where(spans[done][0]))
            done = reader.line_num
            rows.cells = 0
            yield cells
    except csv.Error as error:
        raise DamagedDocumentError(f"it is not CSV: {error}", lines.where(spans[min(done, len(spans) - 1)][0])) from None


def _cells(text: str, start: int, end: int, dialect: Dialect) -> Iterator[Cell]:
    end = start + len(text[start:end].rstrip("\r\n"))
    while True:
        quotes = dialect.quoted and text.startswith('"', start, end)
        if quotes:
            after = _closing(text, start + 1, end)
            yield Cell(text[start + 1 : after - 1].replace('""', '"'), (start, after), quotes)
        else:
            found = text.find(dialect.delimiter, start, end)
            after = end if found < 0 else found
            yield Cell(text[start:after], (start, after), quotes)
        if after >= end:
            return
        start = after + 1


def _closing(text: str, start: int, end: int) -> int:
    """After the quotation mark that closes: the first that is not doubled."""
    at = text.find('"', start, end)
    while at >= 0 and text.startswith('"', at + 1, end):
        at = text.find('"', at + 2, end)
    return at + 1 if at >= 0 else end


class Tsv:
    """Reads .tsv."""

    name = "tsv"

    def read(self, data: bytes, options: ReadOptions) -> TextDocument:
        """As Format says."""
        Bound(options).check_marks(data)
        text, encoding = decode(data, options.encoding)
        return table(text, encoding, options, Dialect("\t", is_quoted(text, "\t")))


TSV = Tsv()


MAX_SHOWN = 100  # characters of a name, which every cell of its column would have


class Columns:
    """What `columns` and `header` say of a table.

    Args:
        options: with both. Numbers count from 1; without any columns all are translated.
        first: record of the table.

    Raises:
        OptionError: the table has no column of such a name, or no header to look for one in.
    """

    def __init__(self, options: ReadOptions, first: Sequence[str]) -> None:
        names = [column for column in options.columns if not column.isdecimal()]
        self.header = bool(names) if options.header is None else options.header
        self._names = [name.strip() for name in first] if self.header else []
        if names and not self.header:
            raise OptionError("columns", f"{names[0]!r} is a name, and the table is said to have no header")
        self._all = not options.columns
        self._count = len(first)  # of columns, as far as the table is known
        self._chosen = {number: column for column in options.columns for number in self._numbers(column)}

    def count(self, cells: int) -> None:
        """A record has so many."""
        self._count = max(self._count, cells)

    def check(self) -> None:
        """At the table's end.

        Raises:
            OptionError: it has no column of such a number.
        """
        for number, column in self._chosen.items():
            if not 1 <= number <= self._count:
                raise OptionError("columns", f"there is no column {column[:MAX_SHOWN]}; the table has {self._count}")

    def _numbers(self, column: str) -> list[int]:
        if column.isdecimal():
            return [int(column[:MAX_SHOWN])]  # Python refuses to read numbers of thousands of digits
        found = [number for number, name in enumerate(self._names, 1) if name == column.strip()]
        if not found:
            raise OptionError("columns", f"there is no column {column!r}; the header has {', '.join(self._names) or 'none'}")
        return found

    def takes(self, number: int) -> bool:
        """Whether this column, from 1, is translated."""
        return self._all or number in self._chosen

    def name(self, number: int) -> str:
        """For people: as the header has it, or its number."""
        name = self._names[number - 1] if number <= len(self._names) else ""
        return name[:MAX_SHOWN] or str(number)
