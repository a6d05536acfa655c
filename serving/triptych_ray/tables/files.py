"""Formats of tables: how files are divided into chunks, read and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from triptych_documents.errors import DamagedDocumentError, UnknownFormatError
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.storage import Storage

CellTexts = Sequence[str | None]  # None: nothing to translate


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one file that are translated together."""

    path: str  # of the file
    number: int  # index of the chunk in its file
    start: int  # position of its first row: a byte in a file of lines, a row in a Parquet file
    rows: int  # number of rows


class ChunkRows(NamedTuple):
    """The rows of a chunk: their texts, and a function that writes them with translations to the stream of a part file."""

    texts: CellTexts
    write: Callable[[CellTexts, Any], None]


class LineFormat:
    """Plain text, one text per line."""

    def chunks(self, file: Storage, options: TableOptions) -> list[Chunk]:
        """Divide a whole file, in order; an empty file has one empty chunk. Raises DocumentError: it cannot be read."""
        found: list[Chunk] = []
        start = 0
        with file.files.open_input_stream(file.path) as stream:
            lines = _lines(stream)
            while sizes := [len(line) for line in islice(lines, options.rows)]:
                found.append(Chunk(file.place, len(found), start, len(sizes)))
                start += sum(sizes)
        return found or [Chunk(file.place, 0, 0, 0)]

    def read(self, chunk: Chunk, options: TableOptions) -> ChunkRows:
        """Read a chunk. Raises DocumentError: a row cannot be read."""
        lines = [line for _, line in self._read(chunk)]
        return ChunkRows([line.rstrip("\r\n") for line in lines], partial(_write_lines, lines))

    def join(self, parts: Sequence[Storage], stream: Any) -> None:
        """Write one file from its parts."""
        for part in parts:
            with part.files.open_input_stream(part.path) as source:
                while block := source.read(1 << 20):
                    stream.write(block)

    def _read(self, chunk: Chunk) -> Iterator[tuple[str, str]]:
        """Yield the position of each line, and the line."""
        file = Storage(chunk.path)
        with file.files.open_input_file(file.path) as stream:
            stream.seek(chunk.start)
            for number, line in enumerate(islice(_lines(stream), chunk.rows), 1):
                where = f"{chunk.path}: line {number} of chunk {chunk.number}, which starts at byte {chunk.start}"
                try:
                    yield where, line.decode("utf-8-sig" if chunk.start == 0 and number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    raise DamagedDocumentError(f"not UTF-8 at byte {error.start} of the line", where) from error


class JsonLinesFormat(LineFormat):
    """JSON lines."""

    def read(self, chunk: Chunk, options: TableOptions) -> ChunkRows:
        objects = [_object(line, options.column, where) for where, line in self._read(chunk)]
        texts = [None if one is None else one.get(options.column) for one in objects]
        return ChunkRows(texts, partial(_write_objects, objects, options.output_column))


class ParquetFormat:
    """Parquet; see LineFormat."""

    def chunks(self, file: Storage, options: TableOptions) -> list[Chunk]:
        with file.files.open_input_file(file.path) as stream, _open(stream, file.place) as source:
            schema = source.schema_arrow
            kind = schema.field(options.column).type if options.column in schema.names else None
            if kind is None or not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                has = ", ".join(f"{field.name} ({field.type})" for field in schema)
                raise DamagedDocumentError(f"no column {options.column!r} of strings; it has: {has}", file.place)
            total = source.metadata.num_rows
        starts = range(0, total, options.rows) or (0,)
        return [Chunk(file.place, number, start, min(options.rows, total - start)) for number, start in enumerate(starts)]

    def read(self, chunk: Chunk, options: TableOptions) -> ChunkRows:
        file = Storage(chunk.path)
        with file.files.open_input_file(file.path) as stream, _open(stream, file.place) as source:
            table = _slice(source, chunk)
        return ChunkRows(table.column(options.column).to_pylist(), partial(_write_table, table, options.output_column))

    def join(self, parts: Sequence[Storage], stream: Any) -> None:
        writer = None
        for part in parts:
            table = pq.read_table(part.path, filesystem=part.files)
            writer = writer or pq.ParquetWriter(stream, table.schema)
            writer.write_table(table)
        assert writer is not None, "every file has at least one chunk"
        writer.close()


def _write_lines(lines: Sequence[str], translations: CellTexts, stream: Any) -> None:
    for line, translation in zip(lines, translations, strict=True):
        end = line[len(line.rstrip("\r\n")) :]
        text = "" if translation is None else " ".join(translation.splitlines())  # one line in, one line out
        stream.write((text + end).encode())


def _write_objects(objects: Sequence[dict[str, Any] | None], name: str, translations: CellTexts, stream: Any) -> None:
    for one, translation in zip(objects, translations, strict=True):  # None: a blank line
        line = "" if one is None else json.dumps({**one, name: translation}, ensure_ascii=False)
        stream.write((line + "\n").encode(errors="backslashreplace"))  # half a surrogate pair becomes an escape


def _write_table(table: pa.Table, name: str, translations: CellTexts, stream: Any) -> None:
    column = pa.array(translations, pa.string())
    known = table.schema.get_field_index(name)
    pq.write_table(table.append_column(name, column) if known < 0 else table.set_column(known, name, column), stream)


def _lines(stream: Any) -> Iterator[bytes]:
    """Yield lines with their line breaks; only a line feed ends one."""
    rest = b""
    while block := stream.read(1 << 20):
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def _object(line: str, column: str, where: str) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        value = json.loads(line)
    except ValueError as error:
        raise DamagedDocumentError(f"not JSON: {error}", where) from error
    if not isinstance(value, dict):
        raise DamagedDocumentError("not a JSON object", where)
    text = value.get(column)
    if text is not None and not isinstance(text, str):
        raise DamagedDocumentError(f"{column!r} is {type(text).__name__}, must be a string or null", where)
    return value


def _open(stream: Any, place: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(stream)
    except pa.ArrowInvalid as error:
        raise DamagedDocumentError(f"not a Parquet file: {error}", place) from error


def _slice(source: pq.ParquetFile, chunk: Chunk) -> pa.Table:
    """Return the rows of a chunk; read only the row groups that overlap it."""
    groups: list[int] = []
    before = first = 0
    for group in range(source.num_row_groups):
        rows = source.metadata.row_group(group).num_rows
        if before < chunk.start + max(1, chunk.rows) and before + rows > chunk.start:
            first = first if groups else before
            groups.append(group)
        before += rows
    table = source.read_row_groups(groups) if groups else source.schema_arrow.empty_table()
    return table.slice(chunk.start - first, chunk.rows)


TableFormat = LineFormat | ParquetFormat
FORMATS: dict[tuple[str, ...], TableFormat] = {
    (".parquet",): ParquetFormat(),
    (".jsonl", ".ndjson"): JsonLinesFormat(),
    (".txt", ".text"): LineFormat(),
}
ENDINGS = tuple(ending for endings in FORMATS for ending in endings)


def table_format(file: Storage) -> TableFormat:
    """Find the format by the ending of the name. Raises UnknownFormatError."""
    for endings, found in FORMATS.items():
        if file.name.lower().endswith(endings):
            return found
    raise UnknownFormatError(f"{file.place}: not a table of texts; known endings: {', '.join(ENDINGS)}")
