"""From the flags of `triptych bench` to a report."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from triptych_bench.inputs.bundled import bundled, masked
from triptych_bench.inputs.reading import read_inputs
from triptych_bench.native import NativeTarget
from triptych_bench.scenarios.runner import LoadPlan
from triptych_bench.server.process import TriptychServer
from triptych_bench.server.resources import ProcessMeter
from triptych_bench.session import BenchmarkSpec, measure
from triptych_bench.target import RequestSpec, Sample, Target, TargetError
from triptych_bench.tasks import TASKS, InputKind
from triptych_cli.bench.report import Files, show
from triptych_cli.common.connection import connection_settings
from triptych_cli.common.decoding import Decoding, take_decoding
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.options import AUTO, asks_server
from triptych_cli.main import INTERRUPTED
from triptych_client.settings import Settings

BATCHES = {"multi-stream": 8, "offline": 64}
IMAGE_BATCH = 16  # of offline
TIMEOUT, OFFLINE_TIMEOUT = 60.0, 3_600.0  # seconds
CONCURRENCIES = (1, 2, 4, 8)
OWN_OPTIONS = ("top_k", "pooling", "normalize", "aggregation", "max_answer_length", "source_language", "target_language")
# What a flag is for: with another scenario it would do nothing.
OF_SCENARIO = {
    "concurrency": ("closed-loop",),
    "rate": ("server",),
    "resolution_percent": ("server",),
    "max_windows": ("closed-loop", "single-stream", "multi-stream"),
    "warm_up_secs": ("closed-loop", "single-stream", "multi-stream", "server"),
    "stability_percent": ("closed-loop", "single-stream", "multi-stream", "server"),
}
# What the report does not show among the settings: it says so elsewhere, or it is nobody's business.
NOT_SHOWN = ("json_file", "csv_file", "html_file", "quiet", "source", "references", "server", "models", "model", "metrics_url")


@dataclass(frozen=True)
class Server:
    """Where the server is."""

    settings: Settings
    pid: int | None
    metrics_url: str
    text: str = ""  # how it was started


def bench(task: str, values: dict[str, Any]) -> None:
    """Measure, write what was asked for, and end with the exit code.

    Raises:
        click.ClickException: the server cannot be measured, or flags contradict each other.
    """
    _check(task, values)
    shown = _shown(values)
    files = Files.take(values)
    files.check()
    quiet = values.pop("quiet")
    progress: Callable[[str], None] = _silence if quiet else _say
    with one_line(TargetError):
        given = _given(task, values)  # before a server is started for nothing
    with one_line(TargetError), _server(task, values, progress) as server:
        order = _order(task, values, server, shown, given)
        result = measure(order, lambda: _target(values["protocol"], server.settings, order.requests), progress)
    for note in result.report.notes:
        click.echo(note, err=True)
    show(result.report, files, quiet)
    context = click.get_current_context()
    if result.interrupted:
        context.exit(INTERRUPTED)
    report = result.report
    searched = report.scenario == "server" and "confidence" in report.headline
    if result.failed or not report.runs or not (searched or all(run.valid for run in report.runs)):
        context.exit(1)


def _check(task: str, values: Mapping[str, Any]) -> None:
    """Flags that would have no effect are refused, and those that are missing named."""
    scenario = values["scenario"]
    context = click.get_current_context()
    for name, scenarios in OF_SCENARIO.items():
        if scenario not in scenarios and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --scenario {' or '.join(scenarios)}")
    if scenario == "server" and not values["rate"] and values["latency_limit"] is None:
        raise click.UsageError("--scenario server needs --latency-limit, to search the highest rate within it, or --rate")
    if values["rate"] and context.get_parameter_source("resolution_percent") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--resolution-percent is for the search; with --rate there is none")
    if task == "infer" and values["protocol"] != "oip":
        raise click.UsageError("infer is for --protocol oip: Triptych's own services know no tensors")
    if values.get("references") and not values.get("source"):
        raise click.UsageError("--references needs --input: the bundled inputs have none")
    if values["html_file"]:
        needs("jinja2", "bench")


@contextmanager
def _server(task: str, values: Mapping[str, Any], progress: Callable[[str], None]) -> Iterator[Server]:
    """That of --server, or one of our own for as long as the block lasts."""
    timeout = values["timeout_secs"] or (OFFLINE_TIMEOUT if values["scenario"] == "offline" else TIMEOUT)
    if asks_server():
        if values["serve_flags"]:
            raise click.UsageError("--serve-flags is for a server that is started here; with --server it is there already")
        settings = connection_settings(values["server"], timeout)
        yield Server(settings, values["pid"], values["metrics_url"])
        return
    needs("triptych_serving.server", "serve")
    flags = _serve_flags(task, values)
    progress(f"starting triptych serve {shlex.join(flags)}".rstrip())
    with TriptychServer(flags) as child:
        settings = Settings(address=child.address, timeout_seconds=timeout)
        text = f"triptych serve {shlex.join(flags)}".rstrip()
        yield Server(settings, values["pid"] or child.pid, values["metrics_url"], text)


def _serve_flags(task: str, values: Mapping[str, Any]) -> list[str]:
    """Only the model that is measured: others would count in its memory."""
    from triptych_embedded.models import only_model
    from triptych_embedded.repository import embedded_repository
    from triptych_serving.errors import ServingError

    with one_line(ServingError):
        model = values["model"] or only_model(values["models"] or embedded_repository(), TASKS[task].capability)
    named = (
        ("--models", values["models"]),
        ("--model", model),
        ("--precision", values["precision"]),
        ("--device", values["device"] if values["device"] != AUTO else ""),  # as the server has it by itself
        ("--gpu-memory-limit", values["gpu_memory_limit"]),
    )
    flags = [part for flag, value in named if value for part in (flag, str(value))]
    try:
        return [*flags, *shlex.split(values["serve_flags"])]
    except ValueError as error:
        raise click.UsageError(f"--serve-flags: {error}") from error


def _target(protocol: str, settings: Settings, wanted: RequestSpec) -> Target:
    if protocol == "triptych":
        return NativeTarget(settings, wanted)
    from triptych_bench.oip import OipTarget

    target: Target = OipTarget(settings, wanted)
    return target


def _given(task: str, values: Mapping[str, Any]) -> list[Sample] | None:
    """The user's inputs; None where there are none."""
    source: Path | None = values.get("source")
    return None if source is None else _masked(task, read_inputs(source, TASKS[task].kind, values.get("references")), values)


def _order(
    task: str, values: dict[str, Any], server: Server, shown: dict[str, str], given: list[Sample] | None
) -> BenchmarkSpec:
    scenario = values["scenario"]
    small = IMAGE_BATCH if TASKS[task].kind is InputKind.IMAGE and scenario == "offline" else BATCHES.get(scenario, 1)
    if server.text:
        shown["server started as"] = server.text
    return BenchmarkSpec(
        scenario=scenario,
        requests=_wanted(task, values),
        plan=_plan(values),
        inputs=lambda target: given if given is not None else _own_inputs(task, target, values),
        source=_source_text(task, values.get("source")),
        batch=values["batch_size"] or small,
        concurrencies=values["concurrency"] or CONCURRENCIES,
        rates=values["rate"] or (),
        command=shlex.join(["triptych", *sys.argv[1:]]),
        settings=shown,
        meter=ProcessMeter(server.pid) if server.pid else None,
        metrics_url=server.metrics_url,
    )


def _wanted(task: str, values: dict[str, Any]) -> RequestSpec:
    options = {name: values[name] for name in OWN_OPTIONS if values.get(name) not in (None, "")}
    if words := [word.strip() for word in values.get("targets", "").split(",") if word.strip()]:
        options["targets"] = words
    if task == "translate":
        decoding = take_decoding(values)
        changed = {name: value for name, value in vars(decoding).items() if value != getattr(Decoding(), name)}
        options |= changed
    return RequestSpec(
        task=task,
        model=values["model"],
        version=values["model_version"],
        stream=values.get("stream", False),
        options=options,
        shapes=dict(values.get("shapes", ())),
    )


def _plan(values: Mapping[str, Any]) -> LoadPlan:
    return LoadPlan(
        warm_up=values["warm_up_secs"],
        window=values["measure_secs"],
        most_windows=values["max_windows"],
        tolerance=values["stability_percent"] / 100,
        latency_limit=values["latency_limit"],
        resolution=values["resolution_percent"] / 100,
        seed=values["random_seed"],
    )


def _own_inputs(task: str, target: Target, values: Mapping[str, Any]) -> list[Sample]:
    if TASKS[task].kind is InputKind.TENSORS:
        return []
    return _masked(task, bundled(task, getattr(target, "takes_pairs", True)), values)


def _masked(task: str, samples: list[Sample], values: Mapping[str, Any]) -> list[Sample]:
    return masked(samples, values["mask_token"], values["random_seed"]) if task == "fill" else samples


def _source_text(task: str, source: Path | None) -> str:
    if source is not None:
        return str(source)
    if TASKS[task].kind is InputKind.TENSORS:
        return "made up from the model's metadata (random)"
    return "made-up images" if TASKS[task].kind is InputKind.IMAGE else "bundled English texts"


def _shown(values: Mapping[str, Any]) -> dict[str, str]:
    """Every flag that has a value, as the report has it."""
    shown = {name: value for name, value in values.items() if name not in NOT_SHOWN}
    return {name.replace("_", "-"): _text(value) for name, value in shown.items() if value not in (None, "", (), False)}


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _silence(_: str) -> None:
    """For --quiet."""
