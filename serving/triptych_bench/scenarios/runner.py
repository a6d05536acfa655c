"""Measurement of one load after the other on one server, each in its steady state."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from triptych_bench.load.event_loop import Interrupt, StoppedError
from triptych_bench.load.log import Log
from triptych_bench.load.loops import LoadLoop, SampleBatch, poisson
from triptych_bench.measure.run import GeneratorCost, LoadSpec, Observation, run_of, server_counts
from triptych_bench.measure.steady import WINDOWS, OpenLoopProgress, Span, Window, is_steady
from triptych_bench.results import Run, ServerCounts
from triptych_bench.server.resources import CounterSource, ResourceMeter, ResourceMonitor
from triptych_bench.target import Target, TargetError

INTERRUPTED = "interrupted: measured until then"
NOT_KEPT_UP = "the server did not keep up with this rate"
TICK_SECONDS = 0.2  # between two checks of a run, or a fifth of a window: each takes CPU from the server
FIRST_RESPONSES_SECONDS = 60.0  # maximum time that a warm-up waits for one response per caller


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """Durations and limits of all runs; in seconds."""

    warm_up: float = 2.0  # under load, before the measurement
    window: float = 5.0  # three in a row must agree; open loops are measured for three
    most_windows: int = 10  # of a closed loop that does not settle
    tolerance: float = 0.10  # between windows
    least_responses: int = 20  # a window is extended until it has as many
    latency_limit: float | None = None  # of goodput, and of the server scenario's 99th percentile
    resolution: float = 0.03  # of the search for the highest rate
    least_arrivals: int = 300  # of an open loop: a 99th percentile of fewer is random
    longest: float = 60.0  # duration of an open loop that is extended for them
    most_probes: int = 14  # rates that a search tries
    offline_in_flight: int = 2_048  # inputs on the server at once
    offline_inputs: int = 0  # 0: as many as it processes in three windows
    seed: int = 1

    @property
    def span(self) -> float:
        """Duration of a measurement without windows."""
        return WINDOWS * self.window

    def open_seconds(self, rate: float) -> float:
        """Return the duration of an open loop: the span, or longer if that would be few arrivals."""
        return min(max(self.span, self.least_arrivals / rate), max(self.longest, self.span))


@dataclass(frozen=True)
class CpuClock:
    """Wall and CPU clocks of the load generator, read together."""

    wall: float
    process: float  # CPU seconds of all threads
    sending: float  # CPU seconds of the event loop's thread and of the sending threads


@dataclass
class RunningLoad:
    """A load that is being measured."""

    log: Log
    loop: LoadLoop
    monitor: ResourceMonitor
    clocks: list[CpuClock] = field(default_factory=list)  # at the start of each window, and at the end of the last
    counted: ServerCounts | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False

    def read_clock(self) -> float:
        """Read the clocks, in the event loop's thread, and return the moment."""
        sending = time.thread_time() + self.log.sending_seconds
        self.clocks.append(CpuClock(time.perf_counter(), time.process_time(), sending))
        return self.clocks[-1].wall

    def cost(self, span: Span) -> GeneratorCost:
        """Return the generator's cost between the readings nearest to the ends of the span."""
        start = min(self.clocks, key=lambda clock: abs(clock.wall - span.start))
        end = min(self.clocks, key=lambda clock: abs(clock.wall - span.end))
        wall = max(1e-9, end.wall - start.wall)
        return GeneratorCost((end.process - start.process) / wall, (end.sending - start.sending) / wall)


class LoadRunner:
    """Measures loads; all of them belong to one event loop."""

    def __init__(
        self,
        target: Target,
        plan: LoadPlan,
        interrupt: Interrupt,
        *,
        meter: ResourceMeter | None = None,
        counters: CounterSource | None = None,
        keeps: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.progress = progress
        self._tick_seconds = min(TICK_SECONDS, plan.window / 5)
        self._kept: list[tuple[Run, Log]] = []  # runs with responses
        self._target, self._interrupt = target, interrupt
        self._meter, self._counters, self._keeps = meter, counters, keeps

    @property
    def interrupted(self) -> bool:
        """True if no other load should start."""
        return self._interrupt.is_set

    async def closed(self, load: LoadSpec, batches: Sequence[SampleBatch], *, most_windows: int | None = None) -> Run:
        """Measure a closed loop until three windows agree or `most_windows` (by default, the plan's) are over."""
        callers, most = load.concurrency or 1, most_windows or self.plan.most_windows
        windows: list[Window] = []
        settled = False
        async with self._running(batches) as running:
            running.loop.close(callers)
            try:
                await self._warm_up(running, callers)
                while len(windows) < most and not settled:
                    windows.append(await self._window(running))
                    settled = is_steady(windows, self.plan.tolerance)
                    latest = windows[-1]
                    mean = 1_000 * latest.mean_latency
                    self.progress(f"{load.name}: {latest.rate:.1f} requests/s, mean {mean:.1f} ms")
            except StoppedError:
                running.interrupted = True
            now = running.read_clock()
            if running.interrupted:  # all windows count, and the one that was cut short
                span = Span(windows[0].span.start if windows else running.log.started, now)
            else:
                span = Span(windows[-WINDOWS:][0].span.start, windows[-1].span.end)
        return self._run(load, batches, running, span, steady=settled)

    async def open(
        self, load: LoadSpec, batches: Sequence[SampleBatch], *, seconds: float | None = None, seed: int | None = None
    ) -> Run:
        """Measure Poisson arrivals at `load.rate`; end early once the plan's latency limit cannot be met any more."""
        rate = load.rate or 1.0
        seconds = self.plan.open_seconds(rate) if seconds is None else seconds
        async with self._running(batches) as running:
            running.loop.open(poisson(rate, self.plan.seed if seed is None else seed))
            span = Span(running.log.started, math.inf)
            arrived = None
            try:
                await self._warm_up(running, 0)
                span = Span(running.clocks[-1].wall, running.clocks[-1].wall + seconds)
                arrived = OpenLoopProgress(running.log, span, self.plan.latency_limit, rate * seconds)
                self.progress(f"{load.name}: measuring for {seconds:.0f} s")
                while not arrived.complete and not arrived.hopeless:
                    await self._tick(running)
                    if len(running.clocks) == 1 and time.perf_counter() >= span.end:
                        running.read_clock()  # the last responses may take much longer
            except StoppedError:
                running.interrupted = True
            span = Span(span.start, min(span.end, running.read_clock()))
        steady = arrived is not None and arrived.complete and arrived.keeps_up(span, self.plan.tolerance)
        return self._run(load, batches, running, span, steady=steady)

    async def at_once(self, load: LoadSpec, batches: Sequence[SampleBatch], requests: int) -> Run:
        """Measure a number of requests, at most `load.concurrency` in flight, from the first to the last."""
        async with self._running(batches) as running:
            start = running.read_clock()
            running.loop.close(load.concurrency or 1, requests)
            try:
                while running.loop.busy:
                    await self._tick(running)
            except StoppedError:
                running.interrupted = True
            end = running.read_clock()
            last = max((record.received for record in running.log.records), default=end)
        # The end of a span is exclusive.
        return self._run(load, batches, running, Span(start, math.nextafter(last, math.inf)), steady=not running.interrupted)

    def log_of(self, run: Run) -> Log:
        """Return the log of a run that was measured here; the run may have been replaced by one with the same latency."""
        return next(log for known, log in self._kept if known.latency is run.latency)

    @asynccontextmanager
    async def _running(self, batches: Sequence[SampleBatch]) -> AsyncIterator[RunningLoad]:
        """Set up a load; at the end, nothing is in flight. The server's counters are read before and after.

        Raises:
            StoppedError: Interrupted before the load.
        """
        before = await self._interrupt.unless(self._counters.read()) if self._counters else None
        log = Log(self._keeps)
        loop = LoadLoop(self._target.send, self._target.caller, batches, self.plan.seed, log)
        running = RunningLoad(log, loop, ResourceMonitor(self._meter))
        await running.monitor.start()
        try:
            yield running
            await self._drain(running)
        finally:
            await running.loop.stop(drain=False)
            await running.monitor.stop()
        if self._counters and before is not None and not running.interrupted:
            with suppress(StoppedError):  # the run itself is complete
                running.counters = await self._interrupt.unless(self._counters.since(before))
            running.counted = server_counts(self._counters.source, running.counters, log) if running.counters else None

    async def _drain(self, running: RunningLoad) -> None:
        """Wait for the requests in flight, unless interrupted."""
        draining = asyncio.create_task(running.loop.stop(drain=not running.interrupted))
        try:
            while not draining.done():
                await (asyncio if running.interrupted else self._interrupt).sleep(self._tick_seconds)
        except StoppedError:
            running.interrupted = True
            await running.loop.stop(drain=False)
        await draining

    async def _warm_up(self, running: RunningLoad, responses: int) -> None:
        """Wait until the warm-up is over and there are so many responses."""
        end = time.perf_counter() + self.plan.warm_up
        latest = end + FIRST_RESPONSES_SECONDS
        while (now := time.perf_counter()) < end or (len(running.log.records) < responses and now < latest):
            await self._tick(running)
        running.read_clock()

    async def _window(self, running: RunningLoad) -> Window:
        """Measure one window, up to four times as long as planned if it has few responses."""
        start, log = running.clocks[-1].wall, running.log
        end, latest, already = start + self.plan.window, start + 4 * self.plan.window, len(log.records)
        await self._interrupt.sleep(end - time.perf_counter())
        while len(log.records) - already < self.plan.least_responses and time.perf_counter() < latest:
            await self._tick(running)
        running.loop.check()
        return Window.of(log.records[already:], Span(start, running.read_clock()))

    async def _tick(self, running: RunningLoad) -> None:
        await self._interrupt.sleep(self._tick_seconds)
        running.loop.check()
        if hopeless := running.log.hopeless:
            raise TargetError(f"all requests failed: {hopeless}")

    def _run(self, load: LoadSpec, batches: Sequence[SampleBatch], running: RunningLoad, span: Span, *, steady: bool) -> Run:
        problem = NOT_KEPT_UP
        if load.rate is None:
            problem = f"it did not settle within {self.plan.tolerance:.0%} in {self.plan.most_windows} windows"
        seen = Observation(
            span=span,
            steady=steady and not running.interrupted,
            cost=running.cost(span),
            resources=running.monitor.used(span),
            counted=running.counted,
            counters=running.counters,
            problems=(INTERRUPTED,) if running.interrupted else () if steady else (problem,),
        )
        run = run_of(load, running.log, batches, seen, self.plan.latency_limit)
        if self._keeps:
            self._kept.append((run, running.log))
        self.progress(_summary(run))
        return run


def _summary(run: Run) -> str:
    if not run.latency.count:
        return f"{run.name}: done, no request succeeded"
    p50, p99 = (1_000 * run.latency.percentiles[percent] for percent in ("50", "99"))
    cost = f", load generator: {1_000 * run.generator.cpu_per_request:.2f} ms of CPU per request" if run.generator else ""
    return f"{run.name}: done, {run.request_rate:.1f} requests/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms{cost}"
