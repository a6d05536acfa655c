"""CSV (RFC 4180) and TSV: cells. Quotes, line ends, ragged records, delimiters and cells of other columns stay.

TSV with quotation marks is CSV with tabs, as spreadsheets write it; otherwise quotation marks are ordinary characters
(text/tab-separated-values of IANA), and a cell holds neither tabs nor line ends.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from triptych_documents.encoding import Encoding
from triptych_documents.errors import DamagedDocumentError, OptionError
from triptych_documents.format import ReadOptions
from triptych_documents.formats.shared.text_document import LineIndex, Span, TextDocument, collected, decoded_text
from triptych_documents.unit import Piece, Unit, raw_text

_DELIMITERS = ",;\t"
_UNWRITABLE = re.compile(r"[\t\r\n]+")  # in unquoted cells
_FORMULA = re.compile(r"=[-+(\"'$@A-Za-z0-9]")  # of a spreadsheet
_SNIFFED = 100  # records that are used to detect the delimiter
MAX_CELLS = 100_000  # per record
_HINT = re.compile(r"sep=([^\r\n])(?:\r\n|\n|\r)", re.IGNORECASE)  # written by Excel


@dataclass(frozen=True, slots=True)
class Dialect:
    """Delimiter and quoting of a table."""

    delimiter: str  # one character
    quoted: bool = True  # cells may be quoted; otherwise quotation marks are ordinary characters


@dataclass(frozen=True, slots=True)
class Cell:
    """A field of a record; its span includes the quotes."""

    text: str
    span: Span
    quotes: bool


@dataclass(frozen=True, slots=True)
class _Slot:
    span: Span
    dialect: Dialect
    quotes: bool

    def written(self, pieces: Sequence[Piece], encoding: Encoding) -> str:
        text = raw_text(pieces)
        if not self.dialect.quoted:
            return _UNWRITABLE.sub(" ", text)
        if self.quotes or any(character in text for character in (self.dialect.delimiter, '"', "\n", "\r")):
            return '"' + text.replace('"', '""') + '"'
        return text


def read_csv(data: bytes, options: ReadOptions) -> TextDocument:
    """See FormatInfo.read."""

    def dialect_of(text: str) -> tuple[Dialect, int]:
        hint = _HINT.match(text)
        return (Dialect(hint[1]), hint.end()) if hint else (Dialect(sniffed(text)), 0)

    return _table(data, options, dialect_of)


def read_tsv(data: bytes, options: ReadOptions) -> TextDocument:
    """See FormatInfo.read."""
    return _table(data, options, lambda text: (Dialect("\t", is_quoted(text)), 0))


def _table(data: bytes, options: ReadOptions, dialect_of: Callable[[str], tuple[Dialect, int]]) -> TextDocument:
    """Read a table, whose dialect and start `dialect_of` finds in its text.

    Raises:
        DamagedDocumentError: unbalanced quotation marks.
        OptionError: a selected column does not exist.
    """
    text, encoding, bound = decoded_text(data, options)
    dialect, start = dialect_of(text)
    lines, records = LineIndex(text), _records(text, dialect, start)
    first = next(records, None)
    columns = ColumnSelection(options, [cell.text for cell in first or ()])
    skips_first = columns.header and not options.translate_header

    def units() -> Iterator[tuple[Unit, _Slot]]:
        for record in records if first is None or skips_first else chain((first,), records):
            columns.count(len(record))
            for number, cell in enumerate(record, 1):
                if columns.takes(number) and cell.text.strip() and not _FORMULA.match(cell.text):
                    where = f"{lines.where(cell.span[0])}, column {columns.name(number)}"
                    yield Unit((cell.text,), where, keeps_space=True), _Slot(cell.span, dialect, cell.quotes)
        columns.check()

    return collected(text, encoding, units(), bound)


def sniffed(text: str) -> str:
    """Return the delimiter that gives most records the same number of fields; a comma if none does."""

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


def is_quoted(text: str) -> bool:
    """Return whether fields are quoted: some start with a quotation mark, and each of these also ends with one."""
    try:
        return '"' in text and sum(cell.quotes for record in _records(text, Dialect("\t")) for cell in record) > 0
    except DamagedDocumentError:
        return False


def _records(text: str, dialect: Dialect, start: int = 0) -> Iterator[list[Cell]]:
    """Yield the cells of each record. Raises DamagedDocumentError: unbalanced quotation marks, or too many cells."""
    mark, delimiter = '"' if dialect.quoted else "(?!)", re.escape(dialect.delimiter)
    quoted, plain = rf'{mark}(?P<quoted>[^"]*+(?:""[^"]*+)*+)"', rf"(?!{mark})(?P<plain>[^{delimiter}\r\n]*+)"
    field = re.compile(rf"(?:{quoted}|{plain})(?P<end>{delimiter}|\r\n|[\r\n]|\Z)")
    cells: list[Cell] = []
    at = start
    while at < len(text) or cells:
        found = field.match(text, at)
        if found is None or len(cells) == MAX_CELLS:
            where = LineIndex(text).where(cells[0].span[0] if cells else at)
            problem = f"a record has more than {MAX_CELLS:,} cells" if found else "unbalanced quotation marks"
            raise DamagedDocumentError(problem, where)
        quotes = found["quoted"] is not None
        content = found["quoted"].replace('""', '"') if quotes else found["plain"]
        cells.append(Cell(content, (at, found.start("end")), quotes))
        at = found.end()
        if found["end"] != dialect.delimiter:
            yield cells
            cells = []


MAX_SHOWN = 100  # characters of a column name, which is repeated for each of its cells


class ColumnSelection:
    """Columns selected by `columns` and `header`; all if there are no `columns`.

    Raises:
        OptionError: no column has such a name, or there is no header.
    """

    def __init__(self, options: ReadOptions, first: Sequence[str]) -> None:
        names = [column for column in options.columns if not column.isdecimal()]
        self.header = bool(names) if options.header is None else options.header
        self._names = [name.strip() for name in first] if self.header else []
        if names and not self.header:
            raise OptionError("columns", f"{names[0]!r} is a name, but `header` says that the table has no header")
        self._all = not options.columns
        self._count = len(first)  # columns seen so far
        self._chosen = {number: column for column in options.columns for number in self._numbers(column)}

    def count(self, cells: int) -> None:
        self._count = max(self._count, cells)

    def check(self) -> None:
        """Check the column numbers at the end of the table. Raises OptionError: a selected column does not exist."""
        for number, column in self._chosen.items():
            if not 1 <= number <= self._count:
                raise OptionError("columns", f"no column {column[:MAX_SHOWN]}; the table has {self._count}")

    def _numbers(self, column: str) -> list[int]:
        if column.isdecimal():
            return [int(column[:MAX_SHOWN])]  # Python rejects numbers with thousands of digits
        found = [number for number, name in enumerate(self._names, 1) if name == column.strip()]
        if not found:
            raise OptionError("columns", f"no column {column!r}; the header has {', '.join(self._names) or 'none'}")
        return found

    def takes(self, number: int) -> bool:
        return self._all or number in self._chosen

    def name(self, number: int) -> str:
        """Return the name of a column from the header, or its number."""
        name = self._names[number - 1] if number <= len(self._names) else ""
        return name[:MAX_SHOWN] or str(number)
