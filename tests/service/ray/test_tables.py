"""Tables translated on a local cluster whose workers and drivers are killed."""

import json
from pathlib import Path

import pytest

pytest.importorskip("ray")

import pyarrow.parquet as pq

from triptych_ray.tables.parts import FOLDER

from ...fixtures.toy import MODELS, SOURCES, TARGETS
from ...unit.ray.test_table_files import ROWS, write_tables
from .tables import TableJob

pytestmark = pytest.mark.full
EXPECTED = dict(zip(SOURCES, TARGETS, strict=True))


def assert_translated(out: Path, paths: list[str]) -> None:
    """Check that every row of every file is translated, once and in order."""
    sources = Path(paths[0]).read_text(encoding="utf-8").splitlines()
    expected = [EXPECTED[text] if text else None for text in sources]
    assert (out / "a.txt").read_text(encoding="utf-8").splitlines() == [text or "" for text in expected]
    objects = [json.loads(line) for line in (out / "b.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["id"] for row in objects] == list(range(ROWS))
    for rows in (objects, pq.read_table(out / "c.parquet").to_pylist()):
        assert [row["translation"] for row in rows] == expected
        assert [row["text"] or "" for row in rows] == sources
    assert sorted(path.name for path in out.iterdir()) == [FOLDER, "a.txt", "b.jsonl", "c.parquet"]
    assert all(path.suffix == ".done" for path in (out / FOLDER).iterdir())


def options(paths: list[str], out: Path) -> dict[str, object]:
    return {"paths": paths, "out": str(out), "models": str(MODELS), "rows": 200, "cpus": 1, "workers": 1}


def test_killed_workers_and_drivers_leave_no_trace(tmp_path: Path) -> None:
    """A worker dies and Ray starts another; then the whole cluster dies, and the next job continues."""
    paths, out = write_tables(tmp_path), tmp_path / "out"
    first = TableJob(options(paths, out), tmp_path / "first.log")
    first.wait_until(lambda: first.chunks >= 5)
    [worker] = first.workers()
    worker.kill()
    seen = first.chunks
    first.wait_until(lambda: first.chunks >= seen + 8)
    first.kill()
    kept = [path for path in (out / FOLDER).rglob("*") if path.is_file() and path.suffix not in (".findings", ".tmp")]
    report = TableJob(options(paths, out), tmp_path / "second.log").report()
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
