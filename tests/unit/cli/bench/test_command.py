"""`triptych bench`: flags, and errors before anything is started."""

from pathlib import Path

import click
import pytest

from triptych_bench.reports.summary import SCENARIOS
from triptych_bench.results import Report
from triptych_bench.session import BenchmarkSpec
from triptych_bench.target import TargetError
from triptych_bench.tasks import TASKS
from triptych_cli.bench.command import BenchGroup, command
from triptych_cli.bench.flags import SCENARIOS as CHOICES
from triptych_cli.bench.flags import TASK_FLAGS, counts, duration, rates, shape
from triptych_cli.bench.run import _show

from ..conftest import Run


def test_all_tasks_and_all_scenarios() -> None:
    assert set(TASK_FLAGS) == set(TASKS)
    assert set(CHOICES) == set(SCENARIOS)
    assert isinstance(command, BenchGroup)
    with click.Context(command) as context:
        assert command.list_commands(context) == [*TASK_FLAGS, "compare"]
        assert command.get_command(context, "nothing") is None


@pytest.mark.parametrize("task", [*TASKS, "compare"])
def test_every_task_has_help(run: Run, task: str) -> None:
    result = run("bench", task, "--help")
    assert result.code == 0
    assert "Warning" not in result.err
    assert "needs --json" not in result.out  # as for translate
    if task != "compare":
        assert "TRIPTYCH_SCENARIO" in result.out


WRONG = [
    (["--latency-limit", "200"], "'200' is not a time with a unit, such as 200ms or 1.5s"),
    (["--latency-limit", "0ms"], "is not a time with a unit"),
    (["--concurrency", "a"], "'a' is neither a list such as 1,2,4 nor a range such as 1:16:2"),
    (["--concurrency", "1:2:3:4"], "is neither a list"),
    (["--concurrency", "0"], "it takes up to 1000 numbers from 1 to 10,000"),
    (["--concurrency", "8:1"], "it takes up to 1000 numbers"),
    (["--concurrency", f"1:{10**20}"], "it takes up to 1000 numbers"),
    (["--measure-secs", "nan"], "nan is not in the range 0.01<=x<=86400"),
    (["--scenario", "server", "--rate", "-1"], "rates are above 0"),
    (["--scenario", "server", "--rate", "x"], "'x' is not a list of rates such as 50,100"),
    (["--scenario", "server"], "--scenario server needs --latency-limit, to search the highest rate within it, or --rate"),
    (["--rate", "5"], "--rate is for --scenario server"),
    (["--scenario", "offline", "--concurrency", "4"], "--concurrency is for --scenario closed-loop"),
    (["--scenario", "offline", "--max-windows", "4"], "--max-windows is for --scenario closed-loop or single-stream"),
    (["--scenario", "server", "--rate", "5", "--max-windows", "4"], "--max-windows is for --scenario closed-loop"),
    (["--scenario", "server", "--rate", "5", "--resolution-percent", "1"], "--resolution-percent has no effect with --rate"),
    (["--scenario", "offline", "--warm-up-secs", "1"], "--warm-up-secs is for --scenario closed-loop"),
    (["--csv", "/no/where/report.csv"], "/no/where/report.csv: cannot be written: No such file or directory"),
    (["--html", "/"], "/: cannot be written: Is a directory"),
    (["--json", "-", "--csv", "/dev/stdout"], "-: only one of --json, --csv and --html can be written there"),
    (["--json", "a", "--html", "a"], "a: only one of --json, --csv and --html can be written there"),
    (["--references", "x"], "--references needs --input"),
    (["--server", "localhost:1", "--serve-flags", "--slots 4"], "--serve-flags is for a server that is started here"),
    (["--serve-flags", '"'], "--serve-flags: No closing quotation"),
]


@pytest.mark.parametrize(("flags", "problem"), WRONG)
def test_wrong_usage(run: Run, flags: list[str], problem: str) -> None:
    result = run("bench", "translate", *flags)
    assert result.code == 2
    assert problem in result.err.splitlines()[-1]


def test_each_file_is_written_even_if_others_fail(tmp_path: Path) -> None:
    files = {"json_file": tmp_path / "gone" / "a.json", "csv_file": tmp_path / "a.csv", "html_file": None}
    with pytest.raises(click.ClickException, match=r"a\.json: No such file or directory"):
        _show(Report(), files, quiet=True)
    assert (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(("name", "begins"), [("json_file", "{"), ("csv_file", "Concurrency,"), ("html_file", "<!doctype")])
def test_each_file_can_be_standard_output(name: str, begins: str, capsys: pytest.CaptureFixture[str]) -> None:
    _show(Report(), {"json_file": None, "csv_file": None, "html_file": None, name: Path("-")}, quiet=False)
    captured = capsys.readouterr()
    assert captured.out.lower().startswith(begins.lower())
    assert captured.err.startswith("benchmark")


def test_tensors_inputs_and_servers_are_checked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1\n2\n", encoding="utf-8")
    for arguments, code, problem in (
        (("infer", "--protocol", "triptych", "--server", "localhost:1"), 2, "infer is for --protocol oip"),
        (("infer", "--server", "localhost:1", "--shape", "a:b"), 2, "'a:b' is not a name with a shape"),
        (("translate", "--input", tmp_path / "nothing.txt"), 1, "nothing.txt: cannot be read"),
        (("fill", "--input", tmp_path / "numbers.txt"), 1, "numbers.txt: no line has a word to mask"),
        (("translate", "--server", "127.0.0.1:1", "--timeout-secs", "20"), 1, "127.0.0.1:1: UNAVAILABLE"),
    ):
        result = run("bench", *arguments)
        assert (result.code, problem in result.error) == (code, True)


def test_settings_of_a_report_have_zeros_and_what_is_turned_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, str] = {}

    def measure(spec: BenchmarkSpec, *_: object) -> None:
        settings.update(spec.settings)
        raise TargetError("enough")

    monkeypatch.setattr("triptych_cli.bench.run.measure", measure)
    run("bench", "embed", "--server", "localhost:1", "--no-normalize", "--warm-up-secs", "0")
    assert (settings["normalize"], settings["warm-up-secs"]) == ("False", "0.0")
    settings.clear()
    run("bench", "translate", "--server", "localhost:1", "--length-penalty", "0")
    assert settings["length-penalty"] == "0.0"
    assert not settings.keys() & {"stream", "beam-size", "quiet"}


def test_values_of_flags() -> None:
    assert [duration(text) for text in ("200ms", "1.5s", "250 us")] == pytest.approx([0.2, 1.5, 0.00025])
    assert [list(counts(text)) for text in ("3", "1,2,8", "1:4", "1:8:3")] == [[3], [1, 2, 8], [1, 2, 3, 4], [1, 4, 7]]
    assert rates("50,0.5") == (50.0, 0.5)
    assert shape("pixel_values:1,3,224,224") == ("pixel_values", (1, 3, 224, 224))
