"""Jobs of `triptych translate-docs` in processes of their own: killed, stopped, resumed, and with a server."""

import json
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from ..fixtures.toy import MODELS, SOURCES, TARGETS
from ..unit.cli.conftest import Run
from .support.processes import PATIENCE_SECONDS, ServerProcess, clean_environment, triptych

SEED = random.SystemRandom().randrange(2**32)  # pytest shows it where a test fails


def arguments(source: Path, out: Path, *options: str | Path) -> list[str | Path]:
    return ["translate-docs", source, "--out", out, "--report", out.with_suffix(".json"), *options]


@pytest.fixture
def job(run: Run) -> Run:
    """Run a job in this process: `job(source, out, *options)`."""
    return lambda *given: run(*arguments(*given))


@contextmanager
def started(source: Path, out: Path, *options: str | Path) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        triptych(*arguments(source, out, *options)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def content(out: Path) -> dict[str, bytes]:
    files = [file for file in sorted(out.rglob("*")) if file.is_file() and not file.name.startswith(".")]
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in files}


def report(out: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    return found


def results(out: Path) -> list[dict[str, object]]:
    """Return the report on each document, without fields that differ between two jobs."""
    found = report(out)["results"]
    assert isinstance(found, list)
    return [{**each, "state": "", "target": Path(each["target"]).relative_to(out)} for each in found]


def counts(out: Path) -> dict[str, int]:
    found = report(out)["segments"]
    assert isinstance(found, dict)
    return found


def many(folder: Path, documents: int, segments: int) -> Path:
    """Write documents of unique sentences, each a combination of two sentences known to the toy model."""
    rest = product(SOURCES, SOURCES)
    folder.mkdir()
    for number in range(documents):
        lines = [" and ".join(next(rest)).replace(".", "") + "." for _ in range(segments)]
        (folder / f"{number:03}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def answered(journal: Path) -> int:
    """Count the translations in the journal of a killed job."""
    with sqlite3.connect(journal) as connection:
        [count] = connection.execute("SELECT count(*) FROM answers").fetchone()
    connection.close()
    return int(count)


def kill_after(process: "subprocess.Popen[str]", out: Path, documents: int, seconds: float) -> None:
    """Kill a job some time after a number of documents is complete."""
    until = time.monotonic() + PATIENCE_SECONDS
    while sum(1 for _ in out.glob("*.txt")) < documents:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.002)
    time.sleep(seconds)
    process.kill()
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL


# With many segments, unfinished documents have answers in the journal.
@pytest.mark.parametrize("segments", [24, pytest.param(80, marks=pytest.mark.full)])
def test_job_killed_twice_gives_the_result_of_an_undisturbed_one(tmp_path: Path, job: Run, segments: int) -> None:
    source = many(tmp_path / "in", 12, segments)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = ("--models", MODELS, "--bilingual", "tsv", "--precision", "fp32")
    assert job(source, whole, *options).code == 0
    drawn, known = random.Random(SEED), 0
    for few, many_ in ((1, 3), (6, 7)):
        with started(source, killed, *options) as process:
            kill_after(process, killed, drawn.randint(few, many_), drawn.uniform(0, 0.02))
        now = answered(killed / ".triptych-journal")
        assert now >= known
        known = now
    before = {path: path.stat().st_mtime_ns for path in killed.glob("*.txt")}
    assert job(source, killed, *options).success
    assert content(killed) == content(whole)
    assert results(killed) == results(whole)
    assert counts(killed)["translated"] <= counts(whole)["translated"] - known  # less where only a document was recorded
    states = report(killed)["documents"]
    assert isinstance(states, dict)
    assert 6 <= states["unchanged"] == sum(path.stat().st_mtime_ns == time for path, time in before.items())


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_job_reports_it_and_resumes(tmp_path: Path, job: Run, number: signal.Signals) -> None:
    source = many(tmp_path / "in", 20, 80)
    out = tmp_path / "out"
    with started(source, out, "--models", MODELS) as process:
        while not list(out.glob("*.txt")):
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + number
    assert errors == "stopped; run the same command again to continue\n"
    assert report(out)["complete"] is False
    kept = answered(out / ".triptych-journal")
    assert 0 < kept == counts(out)["translated"]
    assert job(source, out, "--models", MODELS).success
    assert counts(out)["translated"] + kept >= 1_600  # and what was asked again to repair a sentence
    assert len(content(out)) == 20


def few(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("".join(f"{source}\n" for source in SOURCES), encoding="utf-8")
    return tmp_path / "in"


def translated(out: Path) -> Sequence[str]:
    return (out / "a.txt").read_text(encoding="utf-8").splitlines()


def test_job_with_a_server(server: ServerProcess, job: Run, tmp_path: Path) -> None:
    source, out = few(tmp_path), tmp_path / "out"
    assert job(source, out, "--server", server.address).success
    assert translated(out) == TARGETS
    model = report(out)["model"]
    assert isinstance(model, dict)
    assert (model["model"], model["version"], model["source_language"], model["target_language"]) == ("toy", "1", "en", "de")


@pytest.mark.full
def test_full_queue_of_a_small_server_is_retried(tmp_path: Path, job: Run) -> None:
    with ServerProcess(MODELS, "--max-queue-rows", "40", "--max-queue-requests", "2") as server:
        source, out = many(tmp_path / "in", 4, 200), tmp_path / "out"
        assert job(source, out, "--server", server.address, "--concurrency", "16").success
    assert counts(out)["translated"] >= 800


@pytest.mark.full
def test_job_survives_a_server_restart(tmp_path: Path) -> None:
    source, out = many(tmp_path / "in", 20, 80), tmp_path / "out"
    with ServerProcess(MODELS) as first:
        port = str(first.port)
        process = subprocess.Popen(
            triptych(*arguments(source, out, "--server", first.address, "--concurrency", "2")),
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )
        while not list(out.glob("*.txt")):
            assert process.poll() is None
            time.sleep(0.005)
    with ServerProcess(MODELS, "--port", port):
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (0, "")
    assert len(content(out)) == 20
