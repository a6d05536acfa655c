"""Tables translated on a local cluster, with workers and drivers killed in the middle."""

import json
import random
from pathlib import Path

import pytest

from ...fixtures.toy import MODELS, SOURCES, TARGETS

pytest.importorskip("ray")

import pyarrow as pa
import pyarrow.parquet as pq

from triptych_documents.errors import DamagedDocumentError, DocumentError, UnknownFormatError
from triptych_ray.tables.files import kind_of
from triptych_ray.tables.job import run
from triptych_ray.tables.options import TableOptions
from triptych_ray.tables.parts import FOLDER, Parts
from triptych_ray.tables.storage import Storage

from .tables import TableJob

pytestmark = pytest.mark.full
ROWS = 3_000
EXPECTED = dict(zip(SOURCES, TARGETS, strict=True))


def write_tables(folder: Path) -> list[str]:
    """The same texts three times; row 7 is null, or blank where there is no such thing."""
    drawn = random.Random(1)
    texts = [drawn.choice(SOURCES) for _ in range(ROWS)]
    rows: list[str | None] = [*texts[:7], None, *texts[8:]]
    lines = folder / "a.txt"
    lines.write_text("".join(f"{text or ''}\n" for text in rows), encoding="utf-8")
    objects = folder / "b.jsonl"
    objects.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(rows)), encoding="utf-8")
    table = folder / "c.parquet"
    pq.write_table(pa.table({"id": range(ROWS), "text": rows}), table, row_group_size=700)
    return [str(lines), str(objects), str(table)]


def read_tables(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Each output's sources and translations, in order."""
    objects = [json.loads(line) for line in (folder / "b.jsonl").read_text(encoding="utf-8").splitlines()]
    table = pq.read_table(folder / "c.parquet").to_pylist()
    return {name: [(row["text"], row["translation"]) for row in rows] for name, rows in (("b", objects), ("c", table))}


def assert_translated(out: Path, paths: list[str]) -> None:
    """Every row of every file, once and in order."""
    sources = Path(paths[0]).read_text(encoding="utf-8").splitlines()
    expected = [EXPECTED[text] if text else None for text in sources]
    assert (out / "a.txt").read_text(encoding="utf-8").splitlines() == [text or "" for text in expected]
    for rows in read_tables(out).values():
        assert [translation for _, translation in rows] == expected
        assert [source or "" for source, _ in rows] == sources
    assert [json.loads(line)["id"] for line in (out / "b.jsonl").read_text(encoding="utf-8").splitlines()] == list(range(ROWS))
    assert sorted(path.name for path in out.iterdir()) == [FOLDER, "a.txt", "b.jsonl", "c.parquet"]
    assert all(path.suffix == ".done" for path in (out / FOLDER).iterdir())


def named(*paths: str) -> tuple[tuple[str, str], ...]:
    """Outputs have the names of their inputs."""
    return tuple((path, Path(path).name) for path in paths)


def options(paths: list[str], out: Path, **others: object) -> dict[str, object]:
    return {"paths": paths, "out": str(out), "models": str(MODELS), "rows": 200, "cpus": 1, "workers": 1, **others}


def test_killed_workers_and_drivers_leave_no_trace(tmp_path: Path) -> None:
    """A worker dies and Ray makes another; then the whole cluster dies, and the job goes on where it was."""
    paths, out = write_tables(tmp_path), tmp_path / "out"
    first = TableJob(options(paths, out), tmp_path / "first.log")
    first.wait_until(lambda: first.chunks >= 5)
    [worker] = first.workers()
    worker.kill()
    seen = first.chunks
    first.wait_until(lambda: first.chunks >= seen + 8)
    first.kill()
    kept = [path for path in (out / FOLDER).rglob("*") if path.is_file() and path.suffix not in (".findings", ".tmp")]
    second = TableJob(options(paths, out), tmp_path / "second.log")
    report = second.report()
    assert isinstance(report["rows"], int)
    assert 0 < report["rows"] <= 3 * ROWS - 13 * 200
    assert kept
    assert len(report["files"]) + len(report["skipped"]) == 3  # type: ignore[arg-type]
    assert report["failed"] == {}
    assert_translated(out, paths)
    third = TableJob(options(paths, out), tmp_path / "third.log").report()
    assert (third["skipped"], third["rows"]) == (paths, 0)


def test_a_damaged_file_fails_alone(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / "bad.jsonl"
    good.write_text(f"{SOURCES[0]}\n", encoding="utf-8")
    bad.write_text('{"text": "a"}\n{"text": 3}\n', encoding="utf-8")
    report = TableJob(options([str(good), str(bad)], tmp_path / "out"), tmp_path / "log").report()
    assert report["files"] == {str(good): str(tmp_path / "out" / "good.txt")}
    [problem] = report["failed"][str(bad)]  # type: ignore[index]
    assert "line 2 of chunk 0" in problem
    assert "'text' is int, must be a string or null" in problem
    assert not (tmp_path / "out" / "bad.jsonl").exists()


def test_what_has_changed_is_made_anew(tmp_path: Path) -> None:
    paths = write_tables(tmp_path)
    before = Parts(TableOptions(files=named(*paths), out=str(tmp_path / "out")), paths[0])
    before.write(0, lambda stream: stream.write(b"part"), [])
    before.finish(1)
    assert before.is_done
    other = TableOptions(files=named(*paths), out=str(tmp_path / "out"), rows=7)
    assert not Parts(other, paths[0]).is_done
    Path(paths[0]).write_text("something else\n", encoding="utf-8")
    assert not Parts(TableOptions(files=named(*paths), out=str(tmp_path / "out")), paths[0]).is_done


@pytest.mark.parametrize("rows", [1, 200, 701, ROWS])
def test_chunks_are_the_file(tmp_path: Path, rows: int) -> None:
    paths = write_tables(tmp_path)
    told = TableOptions(files=named(*paths), out=str(tmp_path), rows=rows)
    sources = Path(paths[0]).read_text(encoding="utf-8").splitlines()
    for path in paths:
        file = Storage(path)
        chunks = kind_of(file).chunks(file, told)
        if rows == 1:
            chunks = chunks[:20]
        found = [text for chunk in chunks for text in kind_of(file).read(chunk, told).texts]
        assert [text or "" for text in found] == sources[: len(found)]
        assert rows == 1 or len(found) == ROWS


@pytest.mark.parametrize("content", [b"", b"\n", b"a", b"a\r\nb\n\n", b"\xef\xbb\xbfa\n"])
def test_lines_keep_their_endings(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    told = TableOptions(files=named(str(path)), out=str(tmp_path / "out"))
    file, kind = Storage(str(path)), kind_of(Storage(str(path)))
    [chunk] = kind.chunks(file, told)
    rows = kind.read(chunk, told)
    written = tmp_path / "b.txt"
    with written.open("wb") as stream:
        rows.write(rows.texts, stream)
    assert written.read_bytes() == content.removeprefix(b"\xef\xbb\xbf")


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match=r"a\.docx: not a table of texts; known endings: .parquet"):
        kind_of(Storage(str(tmp_path / "a.docx")))
    damaged = tmp_path / "a.parquet"
    damaged.write_bytes(b"PAR1 not really")
    told = TableOptions(files=named(str(damaged)), out=str(tmp_path / "out"))
    with pytest.raises(DamagedDocumentError, match="not a Parquet file"):
        kind_of(Storage(str(damaged))).chunks(Storage(str(damaged)), told)
    pq.write_table(pa.table({"id": [1]}), damaged)
    with pytest.raises(DamagedDocumentError, match=r"no column 'text' of strings; it has: id \(int64\)"):
        kind_of(Storage(str(damaged))).chunks(Storage(str(damaged)), told)
    (tmp_path / "sub").mkdir()
    with pytest.raises(DocumentError, match=r"would both be written to a\.parquet"):
        run(TableOptions(files=named(str(damaged), str(tmp_path / "sub" / "a.parquet")), out=str(tmp_path / "out")))
    with pytest.raises(ValueError, match="rows is 0, must be 1 or more"):
        TableOptions(files=(), out="x", rows=0)
