"""JSON: what was written comes back, and nothing else does."""

import json
import math
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triptych_bench.reports import jsonfile
from triptych_bench.reports.jsonfile import ReportError
from triptych_bench.results import Report

from .sample import closed, opened, report


def changed(**members: Any) -> str:
    return json.dumps({**json.loads(jsonfile.dumps(report())), **members})


def run_with(**members: Any) -> str:
    value = json.loads(jsonfile.dumps(report()))
    value["runs"][1].update(members)
    return json.dumps(value)


@pytest.mark.parametrize(
    "one",
    [report(), report(opened(50.0, 0.1), opened(60.0, 0.09), notes=("it ended early: gone",)), Report()],
    ids=["sweep", "server", "empty"],
)
def test_a_report_comes_back(one: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    jsonfile.write(one, path)
    assert jsonfile.read(path) == one


def test_texts_of_all_kinds_come_back() -> None:
    odd = report(command="bench --input 'caf\xe9 \U0001f600\udcff'")
    assert jsonfile.loads(jsonfile.dumps(odd)) == odd


def test_the_file_says_what_it_is() -> None:
    value = json.loads(jsonfile.dumps(report()))
    assert (value["format"], value["version"]) == ("triptych-bench", 1)
    assert value["runs"][2]["latency"]["percentiles"]["99"] == pytest.approx(0.06)


def test_members_with_defaults_may_be_missing() -> None:
    value = json.loads(jsonfile.dumps(report(closed(1, 10.0, 0.1))))
    for name in ("moments", "parts", "quality", "valid", "problem"):
        del value["runs"][0][name]
    [run] = jsonfile.loads(json.dumps(value)).runs
    assert run.valid
    assert run.moments == ()


def test_whole_numbers_are_numbers() -> None:
    assert jsonfile.loads(run_with(throughput=7)).runs[1].throughput == 7.0


@pytest.mark.parametrize(
    ("text", "said"),
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
        (jsonfile.dumps(report()).replace("400.5", "NaN"), "unreadable JSON: NaN is not JSON"),
    ],
)
def test_what_is_no_report_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ReportError) as error:
        jsonfile.read(path)
    assert str(error.value).startswith(f"{path}: {said}")


def test_points_of_a_curve_are_pairs() -> None:
    value = json.loads(jsonfile.dumps(report()))
    value["runs"][0]["latency"]["curve"][3] = [0.5]
    with pytest.raises(ReportError, match=r"runs\[0\]\.latency\.curve\[3\]: the list has 1 elements, it must have 2"):
        jsonfile.loads(json.dumps(value))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"none\.json: No such file or directory"):
        jsonfile.read(tmp_path / "none.json")
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"{\xff")
    with pytest.raises(ReportError, match=r"binary\.json: not UTF-8 at byte 1"):
        jsonfile.read(binary)


def test_numbers_that_json_does_not_have_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("kept")
    with pytest.raises(ValueError, match="JSON"):
        jsonfile.write(report(replace(closed(1, 1.0, 0.1), throughput=math.nan)), path)
    assert path.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [path]


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("x" * 1_000_000)
    jsonfile.write(report(), path)
    assert jsonfile.read(path) == report()
    assert list(tmp_path.iterdir()) == [path]
    other = tmp_path / "other"
    other.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    jsonfile.write(report(), Path("/dev/null"))
    assert Path("/dev/null").is_char_device()
    with pytest.raises(FileNotFoundError):
        jsonfile.write(report(), tmp_path / "none" / "report.json")
