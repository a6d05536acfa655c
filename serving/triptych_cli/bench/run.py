"""Run a benchmark with the flags of `triptych bench`."""

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from triptych_bench import reports
from triptych_bench.inputs.reading import bundled, masked, read_inputs
from triptych_bench.native import NativeTarget
from triptych_bench.reports import csvfile, jsonfile, table
from triptych_bench.results import Report
from triptych_bench.scenarios.runner import LoadPlan
from triptych_bench.server.process import TriptychServer
from triptych_bench.server.resources import ProcessMeter
from triptych_bench.session import BenchmarkSpec, measure
from triptych_bench.target import RequestSpec, Sample, Target, TargetError
from triptych_bench.tasks import TASKS, InputKind
from triptych_cli.common.connection import connection_settings
from triptych_cli.common.decoding import take_decoding
from triptych_cli.common.errors import INTERRUPTED, needs, one_line
from triptych_cli.common.lines import check_stdout
from triptych_cli.common.options import asks_server, is_given
from triptych_client.connection import Settings
from triptych_client.files import check_target
from triptych_embedded.request import AUTO, embedded_repository
from triptych_embedded.sentences import chosen_options

BATCHES = {"multi-stream": 8, "offline": 64}
IMAGE_BATCH = 16  # in the scenario offline
TIMEOUT, OFFLINE_TIMEOUT = 60.0, 3_600.0  # seconds
CONCURRENCIES = (1, 2, 4, 8)
OWN_OPTIONS = (
    "top_k",
    "pooling",
    "normalize",
    "aggregation",
    "max_answer_length",
    "source_language",
    "target_language",
    "max_tokens",
)
# Scenarios of flags that have no effect in others.
FLAG_SCENARIOS = {
    "concurrency": ("closed-loop",),
    "rate": ("server",),
    "resolution_percent": ("server",),
    "max_windows": ("closed-loop", "single-stream", "multi-stream"),
    "warm_up_secs": ("closed-loop", "single-stream", "multi-stream", "server"),
    "stability_percent": ("closed-loop", "single-stream", "multi-stream", "server"),
}
# Flags that the report does not list as settings: they are private, or elsewhere in the report.
NOT_SHOWN = ("json_file", "csv_file", "html_file", "quiet", "source", "references", "server", "models", "model", "metrics_url")


@dataclass(frozen=True)
class MeasuredServer:
    """The server to measure."""

    settings: Settings
    pid: int | None
    command: str = ""  # that started it


def bench(task: str, values: dict[str, Any]) -> None:
    """Measure, write the report, and exit with the exit code.

    Raises:
        click.ClickException: the server cannot be measured, or flags contradict each other.
    """
    _check(task, values)
    if task == "infer":
        values["protocol"] = "oip"
    shown = _shown(values)
    files = {name: values.pop(name) for name in ("json_file", "csv_file", "html_file")}
    quiet = values.pop("quiet")
    _check_files(files.values())
    if not quiet or any(path in reports.STDOUT for path in files.values()):
        check_stdout()
    progress: Callable[[str], None] = (lambda _: None) if quiet else (lambda text: click.echo(text, err=True))
    with one_line(TargetError):
        source = values.get("source")  # read before a server is started for nothing
        given = _masked(task, read_inputs(source, TASKS[task].kind, values.get("references")), values) if source else None
    with one_line(TargetError), _server(task, values, progress) as server:
        spec = _benchmark_spec(task, values, server, shown, given)
        result = measure(spec, lambda: _target(values["protocol"], server.settings, spec.requests), progress)
    for note in result.report.notes:
        click.echo(note, err=True)
    _show(result.report, files, quiet)
    context = click.get_current_context()
    if result.interrupted:
        context.exit(INTERRUPTED)
    report = result.report
    searched = report.scenario == "server" and "confidence" in report.headline
    if result.failed or not report.runs or not (searched or all(run.valid for run in report.runs)):
        context.exit(1)


def _check(task: str, values: Mapping[str, Any]) -> None:
    """Reject flags that have no effect, and name those that are missing."""
    scenario = values["scenario"]
    for name, scenarios in FLAG_SCENARIOS.items():
        if scenario not in scenarios and is_given(name):
            raise click.UsageError(f"--{name.replace('_', '-')} is for --scenario {' or '.join(scenarios)}")
    if scenario == "server" and not values["rate"] and values["latency_limit"] is None:
        raise click.UsageError("--scenario server needs --latency-limit, to search the highest rate within it, or --rate")
    if values["rate"] and is_given("resolution_percent"):
        raise click.UsageError("--resolution-percent has no effect with --rate: it is for the search")
    if task == "infer" and is_given("protocol") and values["protocol"] != "oip":
        raise click.UsageError("infer is for --protocol oip: Triptych's own services take no tensors")
    if values.get("references") and not values.get("source"):
        raise click.UsageError("--references needs --input: the bundled inputs have none")
    if values["html_file"]:
        needs("jinja2", "bench")


@contextmanager
def _server(task: str, values: Mapping[str, Any], progress: Callable[[str], None]) -> Iterator[MeasuredServer]:
    """Yield the server of --server, or start one for the duration of the block."""
    timeout = values["timeout_secs"] or (OFFLINE_TIMEOUT if values["scenario"] == "offline" else TIMEOUT)
    if asks_server():
        if values["serve_flags"]:
            raise click.UsageError("--serve-flags is for a server that is started here; with --server it runs already")
        yield MeasuredServer(connection_settings(values["server"], timeout), values["pid"])
        return
    needs("triptych_serving.server", "serve")
    flags = _serve_flags(task, values)
    command = f"triptych serve {shlex.join(flags)}".rstrip()
    progress(f"starting {command}")
    with TriptychServer(flags) as child:
        settings = Settings(address=child.address, timeout_seconds=timeout)
        yield MeasuredServer(settings, values["pid"] or child.pid, command)


def _serve_flags(task: str, values: Mapping[str, Any]) -> list[str]:
    """Serve only the model that is measured: others would count towards its memory."""
    from triptych_embedded.models import only_model
    from triptych_serving.errors import ServingError

    with one_line(ServingError):
        model = values["model"] or only_model(values["models"] or embedded_repository(), TASKS[task].capability)
    named = (
        ("--models", values["models"]),
        ("--model", model),
        ("--precision", values["precision"]),
        ("--device", values["device"] if values["device"] != AUTO else ""),  # the default of the server
        ("--gpu-memory-limit", values["gpu_memory_limit"]),
    )
    flags = [part for flag, value in named if value for part in (flag, str(value))]
    try:
        return [*flags, *shlex.split(values["serve_flags"])]
    except ValueError as error:
        raise click.UsageError(f"--serve-flags: {error}") from error


def _target(protocol: str, settings: Settings, spec: RequestSpec) -> Target:
    if protocol == "triptych":
        return NativeTarget(settings, spec)
    from triptych_bench.oip import OipTarget

    target: Target = OipTarget(settings, spec)
    return target


def _benchmark_spec(
    task: str, values: dict[str, Any], server: MeasuredServer, shown: dict[str, str], given: list[Sample] | None
) -> BenchmarkSpec:
    scenario = values["scenario"]
    small = IMAGE_BATCH if TASKS[task].kind is InputKind.IMAGE and scenario == "offline" else BATCHES.get(scenario, 1)
    if server.command:
        shown["server started as"] = server.command
    return BenchmarkSpec(
        scenario=scenario,
        requests=_request_spec(task, values),
        plan=_plan(values),
        inputs=lambda target: _inputs(task, target, values, given),
        source=_source_text(task, values.get("source")),
        batch=values["batch_size"] or small,
        concurrencies=values["concurrency"] or CONCURRENCIES,
        rates=values["rate"] or (),
        command=shlex.join(["triptych", *sys.argv[1:]]),
        settings=shown,
        meter=ProcessMeter(server.pid) if server.pid else None,
        metrics_url=values["metrics_url"],
    )


def _request_spec(task: str, values: dict[str, Any]) -> RequestSpec:
    options = {name: values[name] for name in OWN_OPTIONS if values.get(name) not in (None, "")}
    if words := [word.strip() for word in values.get("targets", "").split(",") if word.strip()]:
        options["targets"] = words
    if task in ("translate", "generate"):
        options |= chosen_options(take_decoding(values))
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


async def _inputs(task: str, target: Target, values: Mapping[str, Any], given: list[Sample] | None) -> list[Sample]:
    """Return the given inputs, or those of the package; none for tensors, which the target makes up."""
    if given is not None:
        return given
    match TASKS[task].kind:
        case InputKind.TENSORS:
            return []
        case InputKind.TEXT_OR_PAIR:
            return bundled(task, await target.takes_pairs())
        case _:
            return _masked(task, bundled(task), values)


def _masked(task: str, samples: list[Sample], values: Mapping[str, Any]) -> list[Sample]:
    if task != "fill":
        return samples
    if found := masked(samples, values["mask_token"], values["random_seed"]):
        return found
    raise TargetError(f"{values['source']}: no line has a word to mask")


def _source_text(task: str, source: Path | None) -> str:
    if source is not None:
        return str(source)
    if TASKS[task].kind is InputKind.TENSORS:
        return "made up from the model's metadata (random)"
    return "made-up images" if TASKS[task].kind is InputKind.IMAGE else "bundled English texts"


def _shown(values: Mapping[str, Any]) -> dict[str, str]:
    """Return every flag that has a value, for the report; those that are off only if the user turned them off."""
    source = click.get_current_context().get_parameter_source
    shown = {name: value for name, value in values.items() if name not in NOT_SHOWN and value not in (None, "", ())}
    return {
        name.replace("_", "-"): ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in shown.items()
        if value is not False or source(name) is not ParameterSource.DEFAULT
    }


def _check_files(files: Iterable[Path | None]) -> None:
    """Check before an hour of measuring that the files can be written. Raises click.UsageError: one cannot."""
    given = [reports.STDOUT[0] if path in reports.STDOUT else path for path in files if path]
    for path in given:
        if given.count(path) > 1:
            raise click.UsageError(f"{path}: only one of --json, --csv and --html can be written there")
        try:
            check_target(None if path == reports.STDOUT[0] else path)
        except OSError as error:
            raise click.UsageError(f"{path}: {error.strerror}") from error


def _show(report: Report, files: Mapping[str, Path | None], quiet: bool) -> None:
    """Print the table and write the files; the table goes to standard error if one of them is standard output.

    Raises:
        click.ClickException: some of the files could not be written; the others are.
    """
    if not quiet:
        click.echo(table.render(report), err=any(path in reports.STDOUT for path in files.values()))
    problems = []
    for name, path in files.items():
        try:
            if path:
                reports.write(path, _text(name, report))
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
    if problems:
        raise click.ClickException("; ".join(problems))


def _text(name: str, report: Report) -> str:
    if name == "html_file":
        from triptych_bench.reports import page

        return page.render(report)
    return jsonfile.dumps(report) if name == "json_file" else csvfile.dumps(report)
