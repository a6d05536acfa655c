"""The kit's own workings, which need no GPU: budget, resuming, what figures say."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from .kit import library_path
from .runner import BLOCKED, DONE, FAILED, POSTPONED, STOPPED, Outcome, Runner, read_state
from .stages import Setup, Stage, stages
from .verdict import read_results, targets


def stage(name: str, code: str, **members: object) -> Stage:
    """A command of Python."""
    return Stage(name, "about", [[sys.executable, "-c", code]], **{"limit_seconds": 20, "least_seconds": 0, **members})  # type: ignore[arg-type]


def run(work: Path, *stages: Stage, seconds: float = 60, again: bool = False) -> dict[str, Outcome]:
    found = Runner(work, seconds, {}, lambda line: None)
    for one in stages:
        found.run(one, again)
    return found.outcomes


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    counting = stage("count", f"open({str(tmp_path / 'runs')!r}, 'a').write('x')")
    run(tmp_path, counting)
    run(tmp_path, counting)
    assert (tmp_path / "runs").read_text() == "x"
    run(tmp_path, counting, again=True)
    assert (tmp_path / "runs").read_text() == "xx"
    assert read_state(tmp_path)["count"].status == DONE


def test_a_failure_is_told_and_tried_again(tmp_path: Path) -> None:
    fails = stage("fails", "import sys; print('the reason'); sys.exit(3)")
    found = run(tmp_path, fails, stage("next", "pass", needs=("fails",)))
    assert (found["fails"].status, found["fails"].note) == (FAILED, "exit code 3: the reason")
    assert found["next"].status == BLOCKED
    found = run(tmp_path, stage("fails", "pass"), stage("next", "pass", needs=("fails",)))
    assert [outcome.status for outcome in found.values()] == [DONE, DONE]


def test_a_stage_ends_with_its_time_and_takes_its_children_along(tmp_path: Path) -> None:
    child = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; print(7, flush=True); time.sleep(60)'])"
    )
    found = run(tmp_path, stage("long", child, limit_seconds=2))
    assert found["long"].status == STOPPED
    assert found["long"].seconds < 20


def test_what_would_not_fit_is_postponed(tmp_path: Path) -> None:
    found = run(tmp_path, stage("large", "pass", least_seconds=40), stage("small", "pass"), seconds=30)
    assert [outcome.status for outcome in found.values()] == [POSTPONED, DONE]


@pytest.mark.parametrize("tiny", [True, False])
def test_stages_can_be_had(tmp_path: Path, tiny: bool) -> None:
    """Every script exists, every need is a stage, and results have names of their own."""
    found = stages(Setup(sys.executable, tmp_path, "cpu", tiny, "checkpoint", "pairs"))
    names = [one.name for one in found]
    assert len(set(names)) == len(names)
    for one in found:
        assert set(one.needs) <= set(names)
        assert one.least_seconds < one.limit_seconds <= 540
        for command in one.commands:
            assert command[0] == sys.executable
            assert command[1] == "-m" or Path(command[1]).is_file()
    files = [command[command.index("--json") + 1] for one in found for command in one.commands if "--json" in command]
    assert len(set(files)) == len(files)


def row(candidate: str, batch: int, tokens: float, share: float = 0.5) -> Mapping[str, object]:
    return {
        "candidate": candidate,
        "batch": batch,
        "beam": 1,
        "tokens_per_second": tokens,
        "share_with_launches": share,
        "same": None,
    }


def test_figures_are_held_against_what_is_asked_for(tmp_path: Path) -> None:
    files = {
        "offline": {"results": [row("Triptych", 1, 500), row("CTranslate2", 1, 200), row("Triptych", 32, 100, 0.3)]},
        "server": {
            "highest rates": {"Triptych": 900.0, "CTranslate2 1": 300.0, "CTranslate2 2": 500.0},
            "closed loop": {"Triptych in process": 1_000.0, "Triptych": 920.0},
        },
        "bert": {
            "results": [
                {"candidate": "Triptych in process", "per_second": 100.0, "share": 0.5},
                {"candidate": "Triptych gRPC, 1", "per_second": 95.0, "share": 0.4},
            ]
        },
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    found = {line.what: (line.found, line.verdict) for line in targets(read_results(tmp_path))}
    assert found["batch 1: tokens/s, times CTranslate2 float16"] == (2.5, "holds")
    assert found["batch 256: tokens/s, times CTranslate2 float16"] == (None, "not measured")
    assert found["batch 1: of the roofline with launches"] == (0.5, "holds")
    assert found["batch 32: of the roofline with launches"] == (0.3, "FAILS")
    assert found["server: highest rate, times CTranslate2's"] == (1.8, "FAILS")
    assert found["server: closed loop, of in process"] == (0.92, "holds")
    assert found["bert: in process, of the ceiling"] == (0.5, "FAILS")
    assert found["bert: gRPC, of in process"] == (0.95, "holds")
    assert found["vit: gRPC, of in process"] == (None, "not measured")


def test_libraries_of_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/there")
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    folder.mkdir(parents=True)
    assert library_path([str(tmp_path), str(tmp_path)]) == f"{folder}:/there"
