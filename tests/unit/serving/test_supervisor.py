"""Several server processes: their metrics as one page, options that they cannot have, and their place in the environment."""

import asyncio
import errno
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from triptych_serving import processes
from triptych_serving.errors import EngineError, UnsupportedError
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.processes import VARIABLE, ProcessPlace
from triptych_serving.repository.model_manager import ModelControl, RepositoryOptions
from triptych_serving.repository.placement import Hardware
from triptych_serving.runtime.device import Device
from triptych_serving.server import ServerOptions
from triptych_serving.supervisor import _Group, check, merge_metrics, supervise

OPTIONS = ServerOptions(RepositoryOptions(Path("models")))
PLACE = ProcessPlace(os.getppid(), 1, 8001, 8003, "/tmp/triptych", 5, 6)


def registry(calls: float, extra: bool) -> CollectorRegistry:
    """Return the metrics of a process; values and label values contain what parsers trip over."""
    made = CollectorRegistry()
    Gauge("up", "Whether it runs: yes {or} no", registry=made).set(1)
    counter = Counter("calls", "Calls", ["what"], registry=made)
    counter.labels('a "b" {c} \n \u2028 d').inc(calls)
    if extra:
        counter.labels("rare").inc()
    Histogram("seconds", "Seconds", registry=made, buckets=(1.0,)).observe(2.0)
    return made


@pytest.mark.parametrize("kind", ["text", "openmetrics"])
def test_metrics_of_processes_are_told_apart_by_a_label(kind: str) -> None:
    render, parse = (generate_latest, parse_text) if kind == "text" else (openmetrics.generate_latest, parse_openmetrics)
    registries = [registry(2, False), registry(3, True)]
    merged = merge_metrics([render(each).decode() for each in registries])
    found = {
        (sample.name, frozenset(sample.labels.items())): sample.value for family in parse(merged) for sample in family.samples
    }
    expected = {
        (sample.name, frozenset({**sample.labels, "process": str(index)}.items())): sample.value
        for index, each in enumerate(registries)
        for family in parse(render(each).decode())
        for sample in family.samples
    }
    assert found == expected
    assert merged.count("# HELP up ") == merged.count("# TYPE up ") == 1
    assert merged.endswith("# EOF\n") == (kind == "openmetrics")
    assert merge_metrics(["", ""]) == ""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (replace(OPTIONS, hardware=Hardware((Device("cuda", 0),))), "would load all models on the GPU"),
        (replace(OPTIONS, repository=replace(OPTIONS.repository, control=ModelControl.EXPLICIT)), "reach only one process"),
    ],
)
def test_options_that_several_processes_cannot_have_are_refused(options: ServerOptions, problem: str) -> None:
    with pytest.raises(UnsupportedError, match=f"^--processes 3: .*{problem}"):
        check(options, 3)


def test_other_systems_need_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedError, match=r"^--processes 2: several processes on one port need Linux"):
        check(OPTIONS, 2)


def test_a_folder_for_documents_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryDirectory", Mock(side_effect=OSError(errno.ENOENT, "No usable directory")))
    options = replace(OPTIONS, host="127.0.0.1", port=0, gateway=GatewayOptions("127.0.0.1", 0))
    with pytest.raises(UnsupportedError, match=r"--processes: .*\(TMPDIR\): No usable directory"):
        asyncio.run(supervise(options, 2, []))


def test_processes_that_do_not_handle_signals_yet_may_be_stopped() -> None:
    async def stop() -> int:
        group = _Group()
        await group.start([sys.executable, "-c", "import time; time.sleep(600)"], os.environ, ())
        group.stop()
        return await group.wait()

    assert asyncio.run(stop()) == 0


def test_a_process_takes_its_place_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "end_with_parent", lambda: None)
    assert ProcessPlace.take() is None
    [(name, value)] = PLACE.pack().items()
    monkeypatch.setenv(name, value)
    assert ProcessPlace.take() == PLACE
    assert VARIABLE not in os.environ  # the processes that it starts are none of the supervisor's


def test_a_process_whose_supervisor_has_ended_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "end_with_parent", lambda: None)
    monkeypatch.setenv(VARIABLE, replace(PLACE, supervisor=os.getppid() + 1).pack()[VARIABLE])
    with pytest.raises(SystemExit):
        ProcessPlace.take()


def test_a_process_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    local = replace(OPTIONS, host="127.0.0.1", port=0)
    with pytest.raises(EngineError, match=r"^process 0 cannot be started: No such file or directory$"):
        asyncio.run(supervise(local, 2, [str(tmp_path / "missing")]))
