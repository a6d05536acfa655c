"""A whole benchmark: from what was asked for to a report."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from triptych_bench import machine
from triptych_bench.inputs.quality import QualityError
from triptych_bench.judging import Inputs, judged
from triptych_bench.load.feed import Batch
from triptych_bench.load.quiet import Interrupt, StoppedError, run_quietly
from triptych_bench.results import Report, Run
from triptych_bench.scenarios.bench import Bench
from triptych_bench.scenarios.counting import Counting
from triptych_bench.scenarios.loops import Headline, closed_loop, multi_stream, single_stream
from triptych_bench.scenarios.offline import offline
from triptych_bench.scenarios.plan import Plan
from triptych_bench.scenarios.server import at_rates, highest_rate
from triptych_bench.server.prometheus import MetricsMeter
from triptych_bench.server.watch import Meter
from triptych_bench.target import OK, Sample, Target, TargetError, Wanted

SCENARIOS = ("single-stream", "multi-stream", "server", "offline", "closed-loop")
MADE_UP = 100  # tensors


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is asked for."""

    scenario: str  # one of SCENARIOS
    wanted: Wanted
    plan: Plan
    inputs: Callable[[Target], list[Sample]]  # once the target is open
    source: str  # of the inputs, as the report names it
    batch: int = 1  # inputs of a request
    concurrencies: Sequence[int] = (1,)  # of closed-loop
    rates: Sequence[float] = ()  # of server: these, and no search
    command: str = ""
    settings: dict[str, str] = field(default_factory=dict)  # for the report
    meter: Meter | None = None
    metrics_url: str = ""


@dataclass(frozen=True)
class Result:
    """A report, and how it came to an end."""

    report: Report
    interrupted: bool
    failed: bool = False  # the server was lost on the way; the report has the runs until then

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user."""
        return self.report.notes


@dataclass
class Measured:
    """What has come of the loads."""

    runs: list[Run] = field(default_factory=list)
    headline: Headline = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failed: bool = False


def measure(order: Order, target: Callable[[], Target], progress: Callable[[str], None]) -> Result:
    """Do it all; Ctrl-C ends it with what there is until then.

    Raises:
        TargetError: the server cannot be measured with this.
        KeyboardInterrupt: Ctrl-C before the first load.
    """
    try:
        return run_quietly(lambda: _measure(order, target(), progress))
    except StoppedError:
        raise KeyboardInterrupt from None


async def _measure(order: Order, target: Target, progress: Callable[[str], None]) -> Result:
    interrupt = Interrupt()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with interrupt.heard():
        try:
            await interrupt.unless(target.open())
            samples = order.inputs(target) or target.samples(MADE_UP, order.plan.seed)
            batches = batches_of(target, samples, order.batch)
            await interrupt.unless(_try(target, batches[0]))
            return await _run(order, target, Inputs(samples, batches), interrupt, progress, started)
        finally:
            await target.close()


async def _run(
    order: Order,
    target: Target,
    inputs: Inputs,
    interrupt: Interrupt,
    progress: Callable[[str], None],
    started: str,
) -> Result:
    facts = await interrupt.unless(target.describe())
    page = MetricsMeter(order.metrics_url) if order.metrics_url else None
    if page is not None:
        await interrupt.unless(page.page())  # an address that is wrong should be said now
    bench = Bench(
        target,
        order.plan,
        interrupt,
        meter=order.meter or page,
        counting=Counting(target, page, facts.get("model", "")),
        keeps=inputs.judged,
        progress=progress,
    )
    measured = await _measured(order, bench, inputs.batches)
    if inputs.judged:
        complete = not measured.failed
        try:
            measured.runs = await judged(
                order.wanted.task, target, bench, inputs, measured.runs, interrupt if complete else None
            )
        except (QualityError, TargetError) as error:  # what was measured counts all the same
            measured.notes.append(str(error))
    report = Report(
        tool=machine.tool(),
        started=started,
        command=order.command,
        task=order.wanted.task,
        scenario=order.scenario,
        target=await _described(target, interrupt) or facts,
        inputs=_described_inputs(order.source, inputs.samples),
        machine=machine.describe(),
        settings=order.settings,
        runs=tuple(measured.runs),
        headline=measured.headline,
        notes=tuple(measured.notes),
    )
    return Result(report, interrupt.is_set, measured.failed)


async def _measured(order: Order, bench: Bench, batches: Sequence[Batch]) -> Measured:
    """All loads, or those until the server was lost or the user had enough.

    Raises:
        TargetError: it was lost before the first load was done.
    """
    found = Measured()
    try:
        found.headline = await _scenario(order, bench, batches, found.runs.append)
    except StoppedError:  # between two loads
        pass
    except TargetError as error:
        if not found.runs:
            raise
        found.failed = True
        found.notes.append(f"it ended early: {error}")
    return found


async def _described(target: Target, interrupt: Interrupt) -> dict[str, str]:
    """Of the version that has answered; empty where the server is there no more."""
    try:
        return await interrupt.unless(target.describe())
    except (TargetError, StoppedError):
        return {}


async def _scenario(order: Order, bench: Bench, batches: Sequence[Batch], done: Callable[[Run], None]) -> Headline:
    match order.scenario:
        case "single-stream":
            return await single_stream(bench, batches, done)
        case "multi-stream":
            return await multi_stream(bench, batches, done)
        case "offline":
            return await offline(bench, batches, done)
        case "server" if order.rates:
            return await at_rates(bench, batches, order.rates, done)
        case "server":
            return await highest_rate(bench, batches, done)
        case _:
            return await closed_loop(bench, batches, order.concurrencies, done)


def batches_of(target: Target, samples: Sequence[Sample], size: int) -> list[Batch]:
    """All samples, so many a request; each request has as many, so that requests can be compared.

    Raises:
        TargetError: there is nothing to send.
    """
    if not samples:
        raise TargetError("there are no inputs: name a file with --input")
    whole = math.ceil(len(samples) / size) * size
    filled = [samples[index % len(samples)] for index in range(whole)]
    parts = [tuple(filled[start : start + size]) for start in range(0, whole, size)]
    return [Batch(target.prepare(part), part) for part in parts]


async def _try(target: Target, batch: Batch) -> None:
    """Better now than after the warm-up."""
    outcome = await target.send(batch.request)
    if outcome.code != OK:
        raise TargetError(f"{outcome.code}: {outcome.message}")


def _described_inputs(source: str, samples: Sequence[Sample]) -> dict[str, str]:
    """What makes two reports comparable: the same inputs have the same digest."""
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
    """Of tensors none: their shapes are the model's."""
    if isinstance(data, str | bytes):
        return len(data)
    return sum(map(len, data)) if isinstance(data, tuple) else None
