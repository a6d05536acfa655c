"""Reports as JSON and CSV files."""

import csv
import io
import json
import math
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triptych_bench.reports import csvfile, jsonfile, write
from triptych_bench.reports.jsonfile import ReportError
from triptych_bench.results import Report, Run, TimeBreakdown

from .sample import closed, full, opened, report, unanswered

HEADER = (
    "Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,"
    "Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency"
)


def changed(**members: Any) -> str:
    return json.dumps({**json.loads(jsonfile.dumps(report())), **members})


def run_with(**members: Any) -> str:
    value = json.loads(jsonfile.dumps(report()))
    value["runs"][1].update(members)
    return json.dumps(value)


@pytest.mark.parametrize(
    "one",
    [
        report(),
        report(opened(50.0, 0.1), opened(60.0, 0.09), notes=("ended early: gone",)),
        report(command="bench --input 'caf\xe9 \U0001f600\udcff'"),
        Report(),
    ],
    ids=["sweep", "server", "odd text", "empty"],
)
def test_a_report_is_read_as_it_was_written(one: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write(path, jsonfile.dumps(one))
    assert jsonfile.read(path) == one
    assert (json.loads(path.read_text())["format"], json.loads(path.read_text())["version"]) == ("triptych-bench", 1)


def test_members_with_defaults_may_be_missing() -> None:
    value = json.loads(run_with(throughput=7))
    for name in ("moments", "parts", "quality", "valid", "problem"):
        del value["runs"][1][name]
    run = jsonfile.loads(json.dumps(value)).runs[1]
    assert (run.valid, run.moments, run.throughput) == (True, (), 7.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: not JSON: "),
        ("{]", "line 1, column 2: not JSON: "),
        ("[" * 100_000, "unreadable JSON: "),
        ("7", 'not a report of `triptych bench`: there is no "format": "triptych-bench"'),
        ('{"format": "other"}', "not a report of `triptych bench`"),
        (changed(version=2), "version: the report has version 2, this program reads version 1"),
        (changed(version=True), "version: True is not an integer"),
        (changed(more=1), "unknown member 'more'"),
        (changed(task=None), "task: None is not a string"),
        (changed(headline={"a": "b"}), "headline.a: 'b' is not a number"),
        (changed(runs={}), "runs: {} is not a list"),
        (run_with(latency=[]), "runs[1].latency: [] is not an object"),
        (run_with(steady=1), "runs[1].steady: 1 is not true or false"),
        (run_with(completed=1.5), "runs[1].completed: 1.5 is not an integer"),
        (run_with(completed=True), "runs[1].completed: True is not an integer"),
        (run_with(throughput=10**400), "runs[1].throughput: 1000"),
        (run_with(quality={"metric": "BLEU"}), "runs[1].quality: the member 'value' is missing"),
        (run_with(moments=[7]), "runs[1].moments[0]: 7 is not an object"),
        (
            run_with(latency={**json.loads(run_with())["runs"][1]["latency"], "curve": [[0.5]]}),
            "runs[1].latency.curve[0]: the list has 1 elements, it must have 2",
        ),
        (jsonfile.dumps(report()).replace("400.5", "NaN"), "unreadable JSON: NaN is not JSON"),
    ],
)
def test_other_files_are_rejected(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ReportError) as error:
        jsonfile.read(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"none\.json: No such file or directory"):
        jsonfile.read(tmp_path / "none.json")
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"{\xff")
    with pytest.raises(ReportError, match=r"binary\.json: not UTF-8 at byte 1"):
        jsonfile.read(binary)


def test_files_are_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path, other = tmp_path / "report.json", tmp_path / "other"
    path.write_text("kept")
    with pytest.raises(ValueError, match="JSON"):
        write(path, jsonfile.dumps(report(replace(closed(1, 1.0, 0.1), throughput=math.nan))))
    assert path.read_text() == "kept"
    write(path, jsonfile.dumps(report()))
    assert jsonfile.read(path) == report()
    assert list(tmp_path.iterdir()) == [path]
    other.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    write(Path("/dev/null"), jsonfile.dumps(report()))
    assert Path("/dev/null").is_char_device()
    with pytest.raises(FileNotFoundError) as error:
        write(tmp_path / "none" / "report.csv", csvfile.dumps(report()))
    assert error.value.filename == str(tmp_path / "none" / "report.csv")


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_is_written_to_and_not_replaced(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(Path(name), "text")
    assert capsys.readouterr().out == "text"


def rows(*runs: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csvfile.dumps(report(*runs)))))


def test_the_first_columns_are_those_of_perf_analyzer(tmp_path: Path) -> None:
    write(tmp_path / "report.csv", csvfile.dumps(report(full())))
    text = (tmp_path / "report.csv").read_bytes().decode()
    assert text.startswith(f"Concurrency,{HEADER},")
    assert text.splitlines()[1].startswith("8,400.5,123,500,5000,200,10000,300,100,20000,30000,35000,60000,")
    assert text.endswith("\n")
    assert "\r" not in text
    assert csvfile.dumps(report(opened(50.0, 0.05))).startswith(f"Request Rate,{HEADER},")


def test_rows_are_sorted_and_have_further_columns() -> None:
    found = rows(closed(4, 300.0, 0.01), closed(8, 299.5, 0.02), closed(1, 100.0, 0.01))
    assert [row["Concurrency"] for row in found] == ["1", "8", "4"]
    [row] = rows(replace(closed(1, 10.0, 0.1), parts=TimeBreakdown()))
    assert row["Server Queue"] == row["Quality"] == row["p50 time to first token"] == ""
    [row] = rows(unanswered(1))
    assert row["p50 latency"] == row["p99 latency"] == row["p99.9 latency"] == row["Avg latency"] == row["Max latency"] == ""
    [row] = rows(full())
    assert (row["p99.9 latency"], row["p50 time to first token"], row["Output Tokens/Second"]) == ("90000", "5000", "9000")
    assert (row["Failed Requests"], row["Server Memory Bytes"]) == ("2", str(300 << 20))
    assert (row["Quality Metric"], row["Quality"]) == ("BLEU", "33.25")
    found = rows(opened(50.0, 0.05), opened(80.0, 0.5, problem='over the limit, "far"'))
    assert [row["Valid"] for row in found] == ["true", "false"]
    assert found[1]["Problem"] == 'over the limit, "far"'
