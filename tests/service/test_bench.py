"""`triptych bench` with its own server and with a running one."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ..fixtures.encoders import write_text_bundle
from ..fixtures.toy import MODELS, PAIRS
from ..unit.cli.conftest import Run
from .support.processes import PATIENCE_SECONDS, ServerProcess, clean_environment, triptych

SHORT = ("--measure-secs", "0.1", "--warm-up-secs", "0.05", "--stability-percent", "100", "--max-windows", "3")
OF_SCENARIO = {"offline": SHORT[:2], "server": SHORT[:6]}  # the part of SHORT that applies


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """File of sentences known to the toy model, with their translations."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[:32]), encoding="utf-8")
    return path


def test_own_server(pairs: Path, tmp_path: Path, run: Run) -> None:
    files = [tmp_path / f"report.{kind}" for kind in ("json", "csv", "html")]
    written = [part for file in files for part in (f"--{file.suffix[1:]}", file)]
    flags = ("--concurrency", "1,3", "--serve-flags", "--log-level warning --no-metrics")
    result = run("bench", "translate", "--models", MODELS, "--input", pairs, *flags, *SHORT, *written)
    report = json.loads(files[0].read_text(encoding="utf-8"))
    assert report["target"]["model"] == "toy"
    assert report["inputs"]["count"] == "32"
    assert [run["concurrency"] for run in report["runs"]] == [1, 3]
    for found in report["runs"]:
        assert found["completed"] > 0
        assert found["failed"] == {}
        # The server counts exactly the requests of this client.
        assert found["counted"]["requests"] == found["counted"]["expected"]
        assert found["counted"]["mean_seconds"] < found["counted"]["expected_seconds"]
        assert found["quality"]["metric"] == "BLEU"
        assert found["quality"]["value"] == pytest.approx(100.0)  # the model has memorized them
        assert found["parts"]["server_compute"] > 0
        assert found["resources"]["cpu_cores"] > 0
        assert found["resources"]["memory_bytes"] > 1 << 20
    # The measurements may be unstable on a busy machine.
    assert result.code == (0 if all(run["valid"] for run in report["runs"]) else 1)
    assert "concurrency 3" in result.out
    assert files[1].read_text(encoding="utf-8").startswith("Concurrency,Inferences/Second,")
    assert "<svg" in files[2].read_text(encoding="utf-8")


def test_streams_of_a_running_server(server: ServerProcess, pairs: Path, run: Run) -> None:
    flags = ("--stream", "--concurrency", "2", "--metrics-url", f"http://{server.metrics_address}/metrics", "--quiet")
    result = run("bench", "translate", "--server", server.address, "--input", pairs, *flags, *SHORT, "--json", "-")
    assert result.err == ""
    [found] = json.loads(result.out)["runs"]
    assert found["first_token"]["count"] == found["completed"]
    assert found["first_token"]["maximum"] <= found["latency"]["maximum"]
    assert found["output_tokens"] > 0
    assert found["counted"]["source"].startswith("http://")
    assert found["counted"]["requests"] == found["counted"]["expected"]
    assert found["resources"]["source"] == found["counted"]["source"]


@pytest.mark.parametrize(
    "scenario",
    ["offline", *(pytest.param(name, marks=pytest.mark.full) for name in ("single-stream", "multi-stream", "server"))],
)
def test_scenarios(server: ServerProcess, pairs: Path, scenario: str, run: Run) -> None:
    short = OF_SCENARIO.get(scenario, SHORT)
    more = ("--rate", "200", "--latency-limit", "30s") if scenario == "server" else ()
    result = run(
        "bench", "translate", "--server", server.address, "-i", pairs, "--scenario", scenario, *short, *more, "--json", "-"
    )
    [found] = json.loads(result.out)["runs"]
    assert found["scenario"] == scenario
    assert found["completed"] > 0
    assert found["inputs_per_request"] == {"multi-stream": 8, "offline": 64}.get(scenario, 1)
    assert "translate" in result.err  # the table goes to stderr, since the JSON is on stdout


@pytest.mark.parametrize("protocol", ["triptych", "oip"])
def test_bundled_texts_are_pairs_for_models_of_pairs(tmp_path: Path, protocol: str, run: Run) -> None:
    for name in ("single", "pair"):
        write_text_bundle(tmp_path, "text-classification", name, pairs=name == "pair")
    with ServerProcess(tmp_path) as server:
        for name in ("single", "pair"):
            flags = ("--server", server.address, "--model", name, "--protocol", protocol, "--concurrency", "1")
            result = run("bench", "classify-text", *flags, *SHORT, "--json", "-")
            [found] = json.loads(result.out)["runs"]
            assert (found["completed"] > 0, found["failed"]) == (True, {})


def started(until: str, *arguments: str | Path) -> "subprocess.Popen[str]":
    """Start a benchmark in a process of its own; wait until a line on stderr has this text."""
    command = triptych("bench", "translate", *arguments, "--json", "-")
    process = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=clean_environment())
    assert process.stderr is not None
    while until not in process.stderr.readline():
        assert process.poll() is None
    return process


def test_interrupt_reports_finished_measurements(server: ServerProcess, pairs: Path) -> None:
    process = started("concurrency 2", "--server", server.address, "-i", pairs, *SHORT, "--concurrency", "1:50")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    runs = json.loads(output)["runs"]
    assert len(runs) >= 2
    assert "interrupted" in runs[-1]["problem"]
    assert runs[-1]["completed"] > 0


@pytest.mark.full
def test_server_failure_reports_finished_measurements(pairs: Path) -> None:
    with ServerProcess(MODELS) as server:
        process = started("concurrency 2", "--server", server.address, "-i", pairs, *SHORT, "--concurrency", "1:9")
        server.signal()
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        server.wait()
    assert process.returncode == 1
    report = json.loads(output)
    assert report["runs"][0]["completed"] > 0
    assert report["runs"][0]["quality"]
    assert report["notes"][0].startswith("ended early: ")


@pytest.mark.full
def test_paused_server_delays_every_scheduled_request(pairs: Path) -> None:
    """No coordinated omission: a closed loop would see one slow request."""
    with ServerProcess(MODELS) as server:
        flags = ("--scenario", "server", "--rate", "100", "--measure-secs", "1.5", "--latency-limit", "500ms")
        process = started(": measuring for", "--server", server.address, "-i", pairs, *flags)
        time.sleep(0.5)
        server.signal(signal.SIGSTOP)
        time.sleep(1.5)
        server.signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    [run] = json.loads(output)["runs"]
    assert run["latency"]["maximum"] > 1.4
    # About 100 requests are due in the first second of the pause; each waits more than 0.5 s.
    assert run["late"] > 50
    assert not run["valid"]
    assert process.returncode == 1
