"""`triptych translate-docs --engine ray`: the options of the job, and its report."""

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from triptych_cli.documents import tables
from triptych_ray.tables import job
from triptych_ray.tables.job import TableReport
from triptych_ray.tables.options import TableOptions

from ....fixtures.toy import MODELS
from ..conftest import Run


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[TableOptions]:
    """Options of the jobs that would run."""
    ran: list[TableOptions] = []

    def run_job(options: TableOptions, on_progress: object) -> TableReport:
        ran.append(options)
        [(path, _)] = options.files
        return TableReport(failed={path: ["half \ud800"]})

    monkeypatch.setattr(tables, "needs", lambda *_: None)
    monkeypatch.setattr(job, "run", run_job)
    return ran


@pytest.mark.parametrize("flags", [(), ("--overwrite",)])
def test_options_of_the_job(run: Run, tmp_path: Path, jobs: list[TableOptions], flags: tuple[str, ...]) -> None:
    table, report = tmp_path / "a.jsonl", tmp_path / "report.json"
    table.write_text("{}\n", encoding="utf-8")
    arguments = (table, "--out", tmp_path / "out", "--engine", "ray", "--models", MODELS, "--report", report, *flags)
    result = run("translate-docs", *arguments)
    assert result.code == 1
    [options] = jobs
    assert options.overwrite is bool(flags)
    assert options.files == ((str(table), "a.jsonl"),)
    assert json.loads(report.read_text(encoding="utf-8"))["failed"] == {str(table): ["half \ud800"]}


def test_flags_without_effect_are_errors(run: Run, tmp_path: Path, jobs: list[TableOptions]) -> None:
    table = tmp_path / "a.jsonl"
    table.write_text("{}\n", encoding="utf-8")
    result = run("translate-docs", table, "--out", tmp_path / "out", "--engine", "ray", "--bilingual", "tsv")
    assert result.code == 2
    assert "--bilingual has no effect with --engine ray" in result.err
    assert jobs == []
