"""A whole benchmark: from what was asked for to a report."""

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from triptych_bench import machine
from triptych_bench.inputs.quality import QualityError, quality_of
from triptych_bench.load.feed import Batch
from triptych_bench.load.quiet import Interrupt, run_quietly
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
from triptych_bench.tasks import TASKS

SCENARIOS = ("single-stream", "multi-stream", "server", "offline", "closed-loop")
MADE_UP = 100  # tensors
TOGETHER = 8  # requests that are sent for the sake of quality alone


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
    notes: tuple[str, ...] = ()  # lines for the user


def measure(order: Order, target: Callable[[], Target], progress: Callable[[str], None]) -> Result:
    """Do it all; Ctrl-C ends it with what there is until then.

    Raises:
        TargetError: the server cannot be measured with this.
    """
    return run_quietly(lambda: _measure(order, target(), progress))


async def _measure(order: Order, target: Target, progress: Callable[[str], None]) -> Result:
    interrupt = Interrupt()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with interrupt.heard():
        try:
            await target.open()
            samples = order.inputs(target) or target.samples(MADE_UP, order.plan.seed)
            batches = batches_of(target, samples, order.batch)
            await _try(target, batches[0])
            return await _run(order, target, batches, interrupt, progress, started)
        finally:
            await target.close()


async def _run(
    order: Order,
    target: Target,
    batches: Sequence[Batch],
    interrupt: Interrupt,
    progress: Callable[[str], None],
    started: str,
) -> Result:
    facts = await target.describe()
    page = MetricsMeter(order.metrics_url) if order.metrics_url else None
    if page is not None:
        await page.page()  # an address that is wrong should be said now
    samples = [sample for batch in batches for sample in batch.samples]
    judged = any(sample.reference is not None for sample in samples)
    bench = Bench(
        target,
        order.plan,
        interrupt,
        meter=order.meter or page,
        counting=Counting(target, page, facts.get("model", "")),
        keeps=judged,
        progress=progress,
    )
    runs: list[Run] = []
    headline = await _scenario(order, bench, batches, runs.append)
    notes: list[str] = []
    if judged:
        runs = await _with_quality(order, target, bench, runs, notes, interrupt)
    report = Report(
        tool=machine.tool(),
        started=started,
        command=order.command,
        task=order.wanted.task,
        scenario=order.scenario,
        target=await target.describe(),
        inputs=_inputs(order.source, samples),
        machine=machine.describe(),
        settings=order.settings,
        runs=tuple(runs),
        headline=headline,
    )
    return Result(report, interrupt.is_set, tuple(notes))


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


async def _with_quality(
    order: Order, target: Target, bench: Bench, runs: list[Run], notes: list[str], interrupt: Interrupt
) -> list[Run]:
    """Each run gets that of its own answers; inputs that had no turn in the first are asked afterwards, so that all count."""
    found = []
    for run in runs:
        batches, log = bench.log_of(run)
        if not bench.interrupted and run is runs[0]:
            await _complete(target, batches, log.answers, interrupt)
        pairs = _judged(target, batches, log.answers)
        try:
            quality = quality_of(
                TASKS[order.wanted.task].metric, [output for output, _ in pairs], [right for _, right in pairs]
            )
        except QualityError as error:
            notes.append(str(error))
            return runs
        found.append(replace(run, quality=quality))
    return found


async def _complete(target: Target, batches: Sequence[Batch], answers: dict[int, object], interrupt: Interrupt) -> None:
    """Some at a time, and no more after Ctrl-C."""
    missing = [number for number in range(len(batches)) if number not in answers]
    for start in range(0, len(missing), TOGETHER):
        if interrupt.is_set:
            return
        some = missing[start : start + TOGETHER]
        outcomes = await asyncio.gather(*(target.send(batches[number].request) for number in some))
        answers.update({number: outcome.answer for number, outcome in zip(some, outcomes, strict=True) if outcome.ok})


def _judged(target: Target, batches: Sequence[Batch], answers: dict[int, object]) -> list[tuple[str, str]]:
    """Outputs with their references."""
    pairs = []
    for number, answer in sorted(answers.items()):
        outputs = target.read(answer)
        for sample, output in zip(batches[number].samples, outputs, strict=True):
            if sample.reference is not None:
                pairs.append((output, sample.reference))
    return pairs


def _inputs(source: str, samples: Sequence[Sample]) -> dict[str, str]:
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
