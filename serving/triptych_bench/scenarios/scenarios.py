"""The scenarios: those with a fixed number of requests in flight, then MLPerf Inference's Server with its random arrivals.

The figure of the latter is the highest rate whose 99th percentile is within a limit.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from triptych_bench.load.loops import SampleBatch
from triptych_bench.measure.distribution import confidence_within
from triptych_bench.measure.run import GENERATOR, LATE, LoadSpec
from triptych_bench.measure.steady import ALLOWED, WINDOWS
from triptych_bench.results import Run
from triptych_bench.scenarios.runner import NOT_KEPT_UP, LoadRunner

Headline = dict[str, float]
OnRun = Callable[[Run], None]

LEAST_OFFLINE_REQUESTS = 4  # in flight, so that the server never waits for the client


async def single_stream(runner: LoadRunner, batches: Sequence[SampleBatch], done: OnRun) -> Headline:
    """Run MLPerf Inference's SingleStream: one request after the other; the figure is the 90th percentile."""
    run = await runner.closed(LoadSpec(name="single-stream", scenario="single-stream", concurrency=1), batches)
    done(run)
    return {"p90_seconds": run.latency.percentiles["90"]} if run.valid else {}


async def multi_stream(runner: LoadRunner, batches: Sequence[SampleBatch], done: OnRun) -> Headline:
    """Run MLPerf Inference's MultiStream: requests of several samples (8 there); the figure is the 99th percentile."""
    name = f"{len(batches[0].samples)} per query"
    run = await runner.closed(LoadSpec(name=name, scenario="multi-stream", concurrency=1), batches)
    done(run)
    return {"p99_seconds": run.latency.percentiles["99"]} if run.valid else {}


async def closed_loop(
    runner: LoadRunner, batches: Sequence[SampleBatch], concurrencies: Sequence[int], done: OnRun
) -> Headline:
    """Run perf_analyzer's sweep over numbers of requests in flight; the figure is the highest throughput."""
    rates: list[float] = []
    for concurrency in concurrencies:
        load = LoadSpec(name=f"concurrency {concurrency}", scenario="closed-loop", concurrency=concurrency)
        run = await runner.closed(load, batches)
        done(run)
        rates += [run.throughput] if run.valid else []
        if runner.interrupted:
            break
    return {"max_throughput": max(rates)} if rates else {}


async def offline(runner: LoadRunner, batches: Sequence[SampleBatch], done: OnRun) -> Headline:
    """Run MLPerf Inference's Offline: all inputs are available from the start; the figure is the throughput.

    The server has at most as many inputs at a time as its queue has room for.
    """
    size = len(batches[0].samples)  # of all batches
    in_flight = max(LEAST_OFFLINE_REQUESTS, runner.plan.offline_in_flight // size)
    load = LoadSpec(name="offline", scenario="offline", concurrency=in_flight)
    inputs = runner.plan.offline_inputs
    run = None

    def requests_for(inputs: int) -> int:
        return max(len(batches), round(inputs / size))

    if not inputs:
        # A short run tells how many inputs keep the server busy for the planned time.
        run = await runner.at_once(load, batches, requests_for(runner.plan.offline_in_flight // 4))
        inputs = round(run.throughput * runner.plan.span)
    if run is None or not runner.interrupted:
        run = await runner.at_once(load, batches, requests_for(inputs))
    done(run)
    return {"inputs_per_second": run.throughput} if run.valid else {}


SCENARIO = "server"
CAPACITY_CALLERS = 32  # of the closed loop before the search
CONFIRMATIONS = 6
STEP_BACK = 0.96  # after a failed confirmation
RETRY_SEED, CONFIRM_SEED = 1_000, 2_000  # added to the seed, for other arrivals
LIMITED = f"{GENERATOR} was the limit: the server may be faster"

GROWTH = 1.25  # of the rate while every rate passes
FIRST = 0.7  # of the capacity: at the full capacity, the queue would grow without end
LEAST = 0.01  # of the capacity: lower rates are not searched


class RateSearch:
    """A search for the highest rate that passes: first a bracket, then bisection.

    Args:
        capacity: Approximate rate of the server when it is always busy.
        resolution: Relative distance of the highest rate that passed and the lowest that failed, at the end.
    """

    def __init__(self, capacity: float, resolution: float) -> None:
        self._least = LEAST * capacity
        self._resolution = resolution
        self.failed: float | None = None  # lowest rate that failed
        self.found = 0.0  # highest rate that passed
        self.rate = FIRST * capacity  # next rate to try
        self._repeated = False

    def learn(self, passed: bool) -> None:
        """Process the result for `rate`."""
        if passed and self._repeated:
            self.failed = None
        self._repeated = False
        if passed:
            self.found = max(self.found, self.rate)
        else:
            self.failed = self.rate if self.failed is None else min(self.failed, self.rate)
        self.rate = self.found * GROWTH if self.failed is None else (self.found + self.failed) / 2

    def repeat(self) -> None:
        """Try the lowest rate that failed again: a short disturbance of the machine must not end the search too low."""
        if self.failed is not None:
            self._repeated = True
            self.rate = self.failed

    @property
    def over(self) -> bool:
        """True at the resolution, or if no rate passes."""
        if self.failed is None:
            return False
        return self.failed - self.found <= self._resolution * self.failed or self.failed < self._least


async def at_rates(runner: LoadRunner, batches: Sequence[SampleBatch], rates: Sequence[float], done: OnRun) -> Headline:
    """Measure each of the rates."""
    passed: list[float] = []
    for rate in rates:
        run = await _at_rate(runner, batches, rate)
        done(run)
        passed += [rate] if run.valid else []
        if runner.interrupted:
            break
    return {"max_rate": max(passed)} if passed else {}


async def highest_rate(runner: LoadRunner, batches: Sequence[SampleBatch], done: OnRun) -> Headline:
    """Search the highest rate, then confirm it by a longer run with other arrivals."""
    # The throughput of a server that is always busy is where the search starts.
    load = LoadSpec(name="capacity", scenario=SCENARIO, concurrency=CAPACITY_CALLERS)
    pilot = await runner.closed(load, batches, most_windows=WINDOWS)
    capacity = pilot.request_rate
    if runner.interrupted or not capacity:
        done(pilot)
        return {}
    probe_seconds = runner.plan.warm_up + runner.plan.open_seconds(FIRST * capacity)
    minutes = (runner.plan.most_probes + 2) * probe_seconds / 60  # the confirmation takes twice as long as a probe
    runner.progress(f"about {capacity:.1f} requests/s with {CAPACITY_CALLERS} in flight: searching for up to {minutes:.0f} min")
    search = RateSearch(capacity, runner.plan.resolution)
    problems: dict[float | None, str] = {}  # of rates that failed
    for probe in range(runner.plan.most_probes):
        repeated = search.over
        if repeated:
            search.repeat()
        run = await _at_rate(runner, batches, search.rate, seed=runner.plan.seed + probe)
        if LATE in run.problem and not runner.interrupted:  # the result says nothing about the server
            runner.progress(f"{_verdict(run)}; again")
            run = await _at_rate(runner, batches, search.rate, seed=runner.plan.seed + RETRY_SEED + probe)
        done(run)
        runner.progress(_verdict(run))
        problems[search.rate] = run.problem
        search.learn(run.valid)
        if runner.interrupted or (repeated and not run.valid):
            break
    limited = GENERATOR in pilot.problem or GENERATOR in problems.get(search.failed, "")
    return await _confirm(runner, batches, search.found, done, limited)


async def _confirm(runner: LoadRunner, batches: Sequence[SampleBatch], rate: float, done: OnRun, limited: bool) -> Headline:
    """Measure the rate again, and lower ones while that fails: a search finds the luckiest of the rates that pass.

    Args:
        limited: The generator limited the search, not the server.
    """
    for attempt in range(CONFIRMATIONS if rate else 0):
        if runner.interrupted:
            return {}
        seconds = 2 * runner.plan.open_seconds(rate)
        seed = runner.plan.seed + CONFIRM_SEED + attempt
        run = await _at_rate(runner, batches, rate, name="confirmed", seconds=seconds, seed=seed)
        if run.valid:
            done(replace(run, problem=LIMITED) if limited else run)
            scheduled = run.completed / run.seconds  # the actual rate of arrivals, as MLPerf's scheduled samples per second
            # MLPerf requires a confidence of 0.99.
            confidence = confidence_within(run.completed + run.failures, _late(run), ALLOWED)
            return {"max_rate": scheduled, "p99_seconds": run.latency.percentiles["99"], "confidence": confidence}
        done(replace(run, name=f"not confirmed {rate:.1f}/s"))
        runner.progress(_verdict(run))
        limited = limited or GENERATOR in run.problem
        rate *= STEP_BACK
    return {"max_rate": 0.0}


async def _at_rate(
    runner: LoadRunner,
    batches: Sequence[SampleBatch],
    rate: float,
    *,
    name: str = "",
    seconds: float | None = None,
    seed: int | None = None,
) -> Run:
    label = f"{name} {rate:.1f}/s" if name else f"{rate:.1f} requests/s"
    run = await runner.open(LoadSpec(name=label, scenario=SCENARIO, rate=rate), batches, seconds=seconds, seed=seed)
    return check_limit(run, runner.plan.latency_limit)


def check_limit(run: Run, limit: float | None) -> Run:
    """Invalidate a run in which more than 1 % of the requests were late or failed.

    Latencies count from the scheduled moments. A late generator has only made them longer, so a run within the limit is valid
    all the same.
    """
    if limit is None:
        return run
    problems = [problem for problem in run.problem.split("; ") if problem]
    late, p99 = _late(run), run.latency.percentiles["99"]
    if late <= ALLOWED * (run.completed + run.failures):
        others = [problem for problem in problems if not problem.startswith(LATE)]
        return replace(run, valid=not others and run.completed > 0, problem="; ".join(others))
    why = f"p99 is {1_000 * p99:.1f} ms, above {1_000 * limit:g} ms" if p99 > limit else f"{late} requests failed or were late"
    return replace(run, valid=False, problem="; ".join([*(other for other in problems if other != NOT_KEPT_UP), why]))


def _late(run: Run) -> int:
    return (run.late or 0) + run.failures


def _verdict(run: Run) -> str:
    return f"{run.name}: " + ("within the limit" if run.valid else run.problem)
