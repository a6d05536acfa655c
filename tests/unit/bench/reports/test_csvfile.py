"""CSV: the columns of perf_analyzer, as it writes them."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from triptych_bench.reports import csvfile
from triptych_bench.results import Run, TimeBreakdown

from .sample import closed, full, opened, report, unanswered

HEADER = (
    "Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,"
    "Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency"
)


def rows(*runs: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csvfile.dumps(report(*runs)))))


def test_the_first_columns_are_perf_analyzers() -> None:
    closed_loop, open_loop = csvfile.dumps(report()), csvfile.dumps(report(opened(50.0, 0.05)))
    assert closed_loop.splitlines()[0].startswith(f"Concurrency,{HEADER},")
    assert open_loop.splitlines()[0].startswith(f"Request Rate,{HEADER},")


def test_latencies_are_whole_microseconds() -> None:
    line = csvfile.dumps(report(full())).splitlines()[1]
    assert line.startswith("8,400.5,123,500,5000,200,10000,300,100,20000,30000,35000,60000,")


def test_rows_come_in_order_of_throughput() -> None:
    found = rows(closed(4, 300.0, 0.01), closed(8, 299.5, 0.02), closed(1, 100.0, 0.01))
    assert [row["Concurrency"] for row in found] == ["1", "8", "4"]


def test_what_was_not_measured_is_empty() -> None:
    [row] = rows(replace(closed(1, 10.0, 0.1), parts=TimeBreakdown()))
    assert row["Server Queue"] == row["Quality"] == row["p50 time to first token"] == ""


def test_a_run_without_answers_has_no_latency() -> None:
    [row] = rows(unanswered(1))
    assert row["p50 latency"] == row["p99 latency"] == row["p99.9 latency"] == row["Avg latency"] == row["Max latency"] == ""


def test_further_columns_follow() -> None:
    [row] = rows(full())
    assert row["p99.9 latency"] == "90000"
    assert row["p50 time to first token"] == "5000"
    assert row["Output Tokens/Second"] == "9000"
    assert row["Failed Requests"] == "2"
    assert (row["Quality Metric"], row["Quality"]) == ("BLEU", "33.25")
    assert row["Server Memory Bytes"] == str(300 << 20)


def test_runs_that_do_not_count_say_so() -> None:
    found = rows(opened(50.0, 0.05), opened(80.0, 0.5, problem='over the limit, "far"'))
    assert [row["Valid"] for row in found] == ["true", "false"]
    assert found[1]["Problem"] == 'over the limit, "far"'


def test_files_end_with_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    csvfile.write(report(), path)
    assert path.read_bytes().endswith(b"\n")
    assert b"\r" not in path.read_bytes()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nothing" / "report.csv"
    with pytest.raises(FileNotFoundError) as error:
        csvfile.write(report(), path)
    assert error.value.filename == str(path)
