"""One load after the other on one server, each until it has settled."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from triptych_bench.load.arrivals import poisson
from triptych_bench.load.cost import Cost, Moment
from triptych_bench.load.feed import Batch, Feed
from triptych_bench.load.log import Log
from triptych_bench.load.loops import Loop
from triptych_bench.load.quiet import Interrupt, StoppedError
from triptych_bench.measure.arrived import Arrived
from triptych_bench.measure.run import Load, Observed, counted_of, run_of
from triptych_bench.measure.steady import WINDOWS, Span, Window, is_steady
from triptych_bench.results import Counted, Run
from triptych_bench.scenarios.counting import Counting
from triptych_bench.scenarios.plan import Plan
from triptych_bench.server.watch import Meter, Watch
from triptych_bench.target import Target, TargetError

INTERRUPTED = "interrupted: what was measured until then"
NOT_KEPT_UP = "the server did not keep up with this rate"
TICK_SECONDS = 0.2  # between two looks at a run, or a fifth of a window: each takes CPU from the server
FIRST_ANSWERS_SECONDS = 60.0  # a warm-up waits so long for one answer a caller


@dataclass
class Trial:
    """A run that is under way."""

    log: Log
    loop: Loop
    watch: Watch
    clocks: list[Moment] = field(default_factory=list)  # at the begin of each window, and at the end of the last
    counted: Counted | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False

    def cost(self, span: Span) -> Cost:
        """Of the generator, between the clocks that are nearest to the span's ends."""
        start = min(self.clocks, key=lambda clock: abs(clock.wall - span.start))
        end = min(self.clocks, key=lambda clock: abs(clock.wall - span.end))
        return Cost.between(start, end)


class Bench:
    """Measures; all runs belong to one event loop.

    Args:
        target: open.
        plan: how long, how strictly.
        interrupt: may come at any time.
        meter: sees what the server uses.
        counting: asks the server what it has counted.
        keeps: answers, to look at what came back.
        progress: is told what happens.
    """

    def __init__(
        self,
        target: Target,
        plan: Plan,
        interrupt: Interrupt,
        *,
        meter: Meter | None = None,
        counting: Counting | None = None,
        keeps: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.progress = progress
        self._tick_seconds = min(TICK_SECONDS, plan.window / 5)
        self._kept: list[tuple[Run, Sequence[Batch], Log]] = []  # where answers are kept
        self._target, self._interrupt = target, interrupt
        self._meter, self._counting, self._keeps = meter, counting, keeps

    @property
    def interrupted(self) -> bool:
        """The user has had enough: no other load is to begin."""
        return self._interrupt.is_set

    async def closed(self, load: Load, batches: Sequence[Batch], *, most_windows: int | None = None) -> Run:
        """A closed loop with `load.concurrency` callers, until three windows agree or there were the most (the plan's)."""
        callers, most = load.concurrency or 1, most_windows or self.plan.most_windows
        windows: list[Window] = []
        settled = False
        async with self._trial(batches) as trial:
            trial.loop.close(callers)
            try:
                await self._warm_up(trial, callers)
                while len(windows) < most and not settled:
                    windows.append(await self._window(trial))
                    settled = is_steady(windows, self.plan.tolerance)
                    self.progress(_line(load.name, windows[-1]))
            except StoppedError:
                trial.interrupted = True
            span = self._span(trial, windows)
        return self._run(load, batches, trial, span, steady=settled)

    async def open(self, load: Load, batches: Sequence[Batch], *, seconds: float | None = None, seed: int | None = None) -> Run:
        """Poisson arrivals at `load.rate`; ends early once the plan's latency limit cannot be met any more.

        Args:
            load: has a rate.
            batches: to draw from.
            seconds: that count; by default the plan's, and longer where that would be few arrivals.
            seed: of the arrivals.
        """
        rate = load.rate or 1.0
        seconds = self.open_seconds(rate) if seconds is None else seconds
        async with self._trial(batches) as trial:
            trial.loop.open(poisson(rate, self.plan.seed if seed is None else seed))
            span = Span(trial.log.started, math.inf)
            arrived = Arrived(trial.log, self.plan.latency_limit, rate * seconds)
            try:
                await self._warm_up(trial, 0)
                span = Span(trial.clocks[-1].wall, trial.clocks[-1].wall + seconds)
                arrived.begin(span)
                self.progress(f"{load.name}: {seconds:.0f} s that count begin")
                while not arrived.complete and not arrived.hopeless:
                    await self._tick(trial)
            except StoppedError:
                trial.interrupted = True
            trial.clocks.append(Moment.now(trial.log.sending_seconds))
            span = Span(span.start, min(span.end, trial.clocks[-1].wall))
        return self._run(load, batches, trial, span, steady=arrived.complete and arrived.keeps_up(span, self.plan.tolerance))

    async def at_once(self, load: Load, batches: Sequence[Batch], requests: int) -> Run:
        """So many requests, at most `load.concurrency` of them with the server; all count, from the first to the last."""
        async with self._trial(batches) as trial:
            trial.clocks.append(Moment.now(trial.log.sending_seconds))
            trial.loop.close(load.concurrency or 1, requests)
            start = trial.clocks[-1].wall
            try:
                while trial.loop.busy:
                    await self._tick(trial)
            except StoppedError:
                trial.interrupted = True
            trial.clocks.append(Moment.now(trial.log.sending_seconds))
            last = max((record.received for record in trial.log.records), default=trial.clocks[-1].wall)
        # The end of a span is not in it.
        return self._run(load, batches, trial, Span(start, last + 1e-9), steady=not trial.interrupted)

    def log_of(self, run: Run) -> tuple[Sequence[Batch], Log]:
        """Of a run that was measured here, and what it sent; whoever has judged it since has left its latencies alone."""
        return next((batches, log) for known, batches, log in self._kept if known.latency is run.latency)

    def open_seconds(self, rate: float) -> float:
        """How long an open loop of this rate is measured."""
        return min(max(self.plan.span, self.plan.least_arrivals / rate), max(self.plan.longest, self.plan.span))

    @asynccontextmanager
    async def _trial(self, batches: Sequence[Batch]) -> AsyncIterator[Trial]:
        """Nothing is under way when it is left; the server is asked for its counters before and after.

        Raises:
            StoppedError: it came before the load.
        """
        before = await self._interrupt.unless(self._counting.ask()) if self._counting else None
        log = Log(self._keeps)
        trial = Trial(log, Loop(self._target, Feed(batches, self.plan.seed), log), Watch(self._meter))
        await trial.watch.start()
        try:
            yield trial
            await self._drain(trial)
        finally:
            await trial.loop.stop(drain=False)
            await trial.watch.stop()
        if self._counting and before is not None and not trial.interrupted:
            with suppress(StoppedError):  # of the run itself there is all
                trial.counters = await self._interrupt.unless(self._counting.since(before))
            trial.counted = counted_of(self._counting.source, trial.counters, log) if trial.counters else None

    async def _drain(self, trial: Trial) -> None:
        """Wait for what is under way, unless the user has had enough of waiting."""
        draining = asyncio.create_task(trial.loop.stop(drain=not trial.interrupted))
        try:
            while not draining.done():
                await (asyncio if trial.interrupted else self._interrupt).sleep(self._tick_seconds)
        except StoppedError:
            trial.interrupted = True
            await trial.loop.stop(drain=False)
        await draining

    async def _warm_up(self, trial: Trial, answers: int) -> None:
        """Until its time is over and there are so many answers."""
        end = time.perf_counter() + self.plan.warm_up
        latest = end + FIRST_ANSWERS_SECONDS
        while (now := time.perf_counter()) < end or (len(trial.log.records) < answers and now < latest):
            await self._tick(trial)
        trial.clocks.append(Moment.now(trial.log.sending_seconds))

    async def _window(self, trial: Trial) -> Window:
        """The plan's time, and longer where it brings few answers, but not for ever."""
        start, log = trial.clocks[-1].wall, trial.log
        end, latest, already = start + self.plan.window, start + 4 * self.plan.window, len(log.records)
        await self._interrupt.sleep(end - time.perf_counter())
        while len(log.records) - already < self.plan.least_answers and time.perf_counter() < latest:
            await self._tick(trial)
        trial.loop.check()
        trial.clocks.append(Moment.now(trial.log.sending_seconds))
        return Window.of(log.records[already:], Span(start, trial.clocks[-1].wall))

    async def _tick(self, trial: Trial) -> None:
        await self._interrupt.sleep(self._tick_seconds)
        trial.loop.check()
        if len(trial.log.messages) and (hopeless := trial.log.hopeless):
            raise TargetError(f"no request is answered: {hopeless}")

    def _span(self, trial: Trial, windows: Sequence[Window]) -> Span:
        """The last three windows; of an interrupted run all of them, with the one that was cut short."""
        trial.clocks.append(Moment.now(trial.log.sending_seconds))
        now = trial.clocks[-1].wall
        if not trial.interrupted:
            return Span(windows[-WINDOWS:][0].span.start, windows[-1].span.end)
        return Span(windows[0].span.start if windows else trial.log.started, now)

    def _run(self, load: Load, batches: Sequence[Batch], trial: Trial, span: Span, *, steady: bool) -> Run:
        problems = (INTERRUPTED,) if trial.interrupted else () if steady else (self._unsettled(load),)
        seen = Observed(
            span=span,
            steady=steady and not trial.interrupted,
            cost=trial.cost(span),
            resources=trial.watch.used(span),
            counted=trial.counted,
            counters=trial.counters,
            problems=problems,
        )
        run = run_of(load, trial.log, batches, seen, self.plan.latency_limit)
        if self._keeps:
            self._kept.append((run, batches, trial.log))
        self.progress(_summary(run))
        return run

    def _unsettled(self, load: Load) -> str:
        if load.rate is not None:
            return NOT_KEPT_UP
        return f"it did not settle within {self.plan.tolerance:.0%} in {self.plan.most_windows} windows"


def _summary(run: Run) -> str:
    if not run.latency.count:
        return f"{run.name}: done, no request was answered"
    p50, p99 = (1_000 * run.latency.percentiles[percent] for percent in ("50", "99"))
    cost = f", {1_000 * run.generator.cpu_per_request:.2f} ms of CPU a request in the load generator" if run.generator else ""
    return f"{run.name}: done, {run.request_rate:.1f} requests/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms{cost}"


def _line(name: str, window: Window) -> str:
    return f"{name}: {window.rate:.1f} requests/s, mean {1_000 * window.mean_latency:.1f} ms"
