"""A whole benchmark: from its specification to a report."""

import hashlib
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from triptych.version import __version__
from triptych_bench import machine
from triptych_bench.load.event_loop import Interrupt, StoppedError, run_precisely
from triptych_bench.load.loops import SampleBatch
from triptych_bench.measure.steady import WINDOWS
from triptych_bench.quality import BenchmarkInputs, QualityError, with_quality
from triptych_bench.results import Report, Run
from triptych_bench.scenarios.runner import LoadPlan, LoadRunner
from triptych_bench.scenarios.scenarios import (
    Headline,
    at_rates,
    closed_loop,
    highest_rate,
    multi_stream,
    offline,
    single_stream,
)
from triptych_bench.server.resources import CounterSource, MetricsMeter, ResourceMeter
from triptych_bench.target import RequestSpec, Sample, Target, TargetError

RANDOM_SAMPLES = 100  # of tensors


@dataclass(frozen=True, kw_only=True)
class BenchmarkSpec:
    """The specification of a benchmark."""

    scenario: str  # a key of `reports.summary.SCENARIOS`
    requests: RequestSpec
    plan: LoadPlan
    inputs: Callable[[Target], Coroutine[Any, Any, list[Sample]]]  # called when the target is open
    source: str  # name of the inputs in the report
    batch: int = 1  # inputs per request
    concurrencies: Sequence[int] = (1,)  # of closed-loop
    rates: Sequence[float] = ()  # of server: measure these instead of a search
    command: str = ""
    settings: dict[str, str] = field(default_factory=dict)  # for the report
    meter: ResourceMeter | None = None
    metrics_url: str = ""


@dataclass(frozen=True)
class BenchmarkResult:
    """A report, and how the benchmark ended."""

    report: Report
    interrupted: bool
    failed: bool = False  # the server was lost; the report has the runs until then


@dataclass
class MeasuredRuns:
    """The runs so far."""

    runs: list[Run] = field(default_factory=list)
    headline: Headline = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: bool = False


def measure(spec: BenchmarkSpec, target: Callable[[], Target], progress: Callable[[str], None]) -> BenchmarkResult:
    """Run a benchmark. Ctrl-C ends it early, with the runs until then.

    Args:
        target: Makes the server's target inside the event loop.

    Raises:
        TargetError: The server cannot be measured this way.
        KeyboardInterrupt: Ctrl-C before the first load.
    """
    try:
        return run_precisely(lambda: _measure(spec, target(), progress))
    except StoppedError:
        raise KeyboardInterrupt from None


async def _measure(spec: BenchmarkSpec, target: Target, progress: Callable[[str], None]) -> BenchmarkResult:
    interrupt = Interrupt()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with interrupt.handled():
        try:
            await interrupt.unless(target.open())
            samples = await interrupt.unless(spec.inputs(target)) or target.samples(RANDOM_SAMPLES, spec.plan.seed)
            inputs = BenchmarkInputs(samples, batches_of(target, samples, spec.batch))
            outcome = await interrupt.unless(target.send(inputs.batches[0].request))  # reports failures before the warm-up
            if not outcome.ok:
                raise TargetError(f"{outcome.code}: {outcome.message}")
            facts = await interrupt.unless(target.describe())
            meter = MetricsMeter(spec.metrics_url) if spec.metrics_url else None
            if meter is not None:
                await interrupt.unless(meter.metrics())  # report a wrong address before the measurement
            runner = LoadRunner(
                target,
                spec.plan,
                interrupt,
                meter=spec.meter or meter,
                counters=CounterSource(target, meter, facts.get("model", "")),
                keeps=inputs.has_references,
                progress=progress,
            )
            progress(expected_time(spec))
            measured = await _measure_loads(spec, target, runner, inputs, interrupt)
            report = Report(
                tool=f"triptych {__version__}",
                started=started,
                command=spec.command,
                task=spec.requests.task,
                scenario=spec.scenario,
                target=await _describe(target, interrupt) or facts,
                inputs=_describe_inputs(spec.source, inputs.samples),
                machine=machine.describe(),
                settings=spec.settings,
                runs=tuple(measured.runs),
                headline=measured.headline,
                notes=tuple(measured.notes),
            )
            return BenchmarkResult(report, interrupt.is_set, measured.failed)
        finally:
            await target.close()


def expected_time(spec: BenchmarkSpec) -> str:
    """Say how long the measurement takes: a closed loop ends once WINDOWS windows agree, at most after `most_windows`."""
    plan = spec.plan
    closed = [plan.warm_up + windows * plan.window for windows in (WINDOWS, max(WINDOWS, plan.most_windows))]
    match spec.scenario:
        case "server" if spec.rates:
            return f"this takes about {_minutes(sum(plan.warm_up + plan.open_seconds(rate) for rate in spec.rates))}"
        case "server":  # unknown until the capacity is
            return f"this takes about {_minutes(closed[0])}, then a search"
        case "offline":
            return f"this takes at least {_minutes(plan.span)}"
        case scenario:
            loads = len(spec.concurrencies) if scenario == "closed-loop" else 1
            return f"this takes {' to '.join(dict.fromkeys(_minutes(loads * seconds) for seconds in closed))}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


async def _measure_loads(
    spec: BenchmarkSpec, target: Target, runner: LoadRunner, inputs: BenchmarkInputs, interrupt: Interrupt
) -> MeasuredRuns:
    """Measure all loads, or those until the server is lost or the user interrupts, and the quality of their outputs.

    Raises:
        TargetError: The server was lost before the end of the first load.
    """
    measured = MeasuredRuns()
    try:
        measured.headline = await _run_scenario(spec, runner, inputs.batches, measured.runs.append)
    except StoppedError:  # between two loads
        pass
    except TargetError as error:
        if not measured.runs:
            raise
        measured.failed = True
        measured.notes.append(f"ended early: {error}")
    if inputs.has_references:
        sends = None if measured.failed else interrupt
        try:
            measured.runs = await with_quality(spec.requests, target, runner, inputs, measured.runs, sends)
        except (QualityError, TargetError) as error:  # the speed is valid without it
            measured.notes.append(str(error))
    return measured


async def _describe(target: Target, interrupt: Interrupt) -> dict[str, str]:
    """Describe the target again, with the version that has served requests; empty if the server is gone."""
    try:
        return await interrupt.unless(target.describe())
    except (TargetError, StoppedError):
        return {}


async def _run_scenario(
    spec: BenchmarkSpec, runner: LoadRunner, batches: Sequence[SampleBatch], done: Callable[[Run], None]
) -> Headline:
    match spec.scenario:
        case "single-stream":
            return await single_stream(runner, batches, done)
        case "multi-stream":
            return await multi_stream(runner, batches, done)
        case "offline":
            return await offline(runner, batches, done)
        case "server" if spec.rates:
            return await at_rates(runner, batches, spec.rates, done)
        case "server":
            return await highest_rate(runner, batches, done)
        case _:
            return await closed_loop(runner, batches, spec.concurrencies, done)


def batches_of(target: Target, samples: Sequence[Sample], size: int) -> list[SampleBatch]:
    """Group the samples into requests of equal size, so that requests can be compared.

    Raises:
        TargetError: There are no samples.
    """
    if not samples:
        raise TargetError("no inputs: name a file with --input")
    whole = math.ceil(len(samples) / size) * size
    filled = [samples[index % len(samples)] for index in range(whole)]
    parts = [tuple(filled[start : start + size]) for start in range(0, whole, size)]
    return [SampleBatch(target.prepare(part), part) for part in parts]


def _describe_inputs(source: str, samples: Sequence[Sample]) -> dict[str, str]:
    """Describe the inputs with a digest, which tells whether two reports are comparable."""
    digest = hashlib.sha256()
    for sample in samples:
        data = sample.data if isinstance(sample.data, bytes) else repr(sample.data).encode()
        digest.update(hashlib.sha256(data).digest())
    known = {"source": source, "count": str(len(samples)), "sha256": digest.hexdigest()}
    sizes = [_size(sample.data) for sample in samples]
    if None not in sizes:
        unit = "bytes" if isinstance(samples[0].data, bytes) else "characters"
        known[f"mean {unit}"] = f"{sum(filter(None, sizes)) / len(samples):.1f}"
    return known


def _size(data: object) -> int | None:
    """Return the size of an input; None for tensors, whose shapes are the model's."""
    if isinstance(data, str | bytes):
        return len(data)
    return sum(map(len, data)) if isinstance(data, tuple) else None
