"""Formats of tables and part files, without Ray."""

import json
import random
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from triptych_documents.errors import DamagedDocumentError, DocumentError, UnknownFormatError
from triptych_ray.tables.files import table_format
from triptych_ray.tables.job import run
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.parts import FileParts
from triptych_ray.tables.storage import Storage

from ...fixtures.toy import SOURCES

ROWS = 3_000


def write_tables(folder: Path, count: int = ROWS) -> list[str]:
    """Write the same texts in three formats; row 7 is null, or blank in plain text."""
    drawn = random.Random(1)
    texts = [drawn.choice(SOURCES) for _ in range(count)]
    rows: list[str | None] = [*texts[:7], None, *texts[8:]]
    lines = folder / "a.txt"
    lines.write_text("".join(f"{text or ''}\n" for text in rows), encoding="utf-8")
    objects = folder / "b.jsonl"
    objects.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(rows)), encoding="utf-8")
    table = folder / "c.parquet"
    pq.write_table(pa.table({"id": range(count), "text": rows}), table, row_group_size=700)
    return [str(lines), str(objects), str(table)]


def named(*paths: str) -> tuple[tuple[str, str], ...]:
    """Return the paths with the names of their outputs, which are those of the inputs."""
    return tuple((path, Path(path).name) for path in paths)


def test_a_changed_file_or_option_makes_another_output(tmp_path: Path) -> None:
    paths = write_tables(tmp_path)
    options = TableOptions(files=named(*paths), out=str(tmp_path / "out"))
    parts = FileParts(options, paths[0])
    parts.write(0, lambda stream: stream.write(b"part"), [])
    parts.finish(1)
    assert parts.is_done
    assert not FileParts(TableOptions(files=named(*paths), out=str(tmp_path / "out"), rows=7), paths[0]).is_done
    Path(paths[0]).write_text("something else\n", encoding="utf-8")
    assert not FileParts(options, paths[0]).is_done


@pytest.mark.parametrize("rows", [1, 200, 701, ROWS])
def test_chunks_cover_the_file(tmp_path: Path, rows: int) -> None:
    paths = write_tables(tmp_path)
    options = TableOptions(files=named(*paths), out=str(tmp_path), rows=rows)
    sources = Path(paths[0]).read_text(encoding="utf-8").splitlines()
    for path in paths:
        file = Storage(path)
        chunks = table_format(file).chunks(file, options)
        if rows == 1:
            chunks = chunks[:20]
        found = [text for chunk in chunks for text in table_format(file).read(chunk, options).texts]
        assert [text or "" for text in found] == sources[: len(found)]
        assert rows == 1 or len(found) == ROWS


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\r\nb\n\n", b"\xef\xbb\xbfa\n"])
def test_lines_keep_their_line_breaks(tmp_path: Path, content: bytes) -> None:
    path, written = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_bytes(content)
    options = TableOptions(files=named(str(path)), out=str(tmp_path / "out"))
    file, lines = Storage(str(path)), table_format(Storage(str(path)))
    [chunk] = lines.chunks(file, options)
    rows = lines.read(chunk, options)
    with written.open("wb") as stream:
        rows.write(rows.texts, stream)
    assert written.read_bytes() == content.removeprefix(b"\xef\xbb\xbf")


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match=r"a\.docx: not a table of texts; known endings: .parquet"):
        table_format(Storage(str(tmp_path / "a.docx")))
    damaged = tmp_path / "a.parquet"
    damaged.write_bytes(b"PAR1 not really")
    file, options = Storage(str(damaged)), TableOptions(files=named(str(damaged)), out=str(tmp_path / "out"))
    with pytest.raises(DamagedDocumentError, match="not a Parquet file"):
        table_format(file).chunks(file, options)
    pq.write_table(pa.table({"id": [1]}), damaged)
    with pytest.raises(DamagedDocumentError, match=r"no column 'text' of strings; it has: id \(int64\)"):
        table_format(file).chunks(file, options)
    (tmp_path / "sub").mkdir()
    with pytest.raises(DocumentError, match=r"would both be written to a\.parquet"):
        run(TableOptions(files=named(str(damaged), str(tmp_path / "sub" / "a.parquet")), out=str(tmp_path / "out")))
    with pytest.raises(ValueError, match="rows is 0, must be 1 or more"):
        TableOptions(files=(), out="x", rows=0)
