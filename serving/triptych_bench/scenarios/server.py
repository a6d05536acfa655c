"""MLPerf Inference's Server: requests arrive at random; what counts is the highest rate with a p99 within a limit."""

from collections.abc import Sequence
from dataclasses import replace

from triptych_bench.load.feed import Batch
from triptych_bench.measure.confidence import confidence_within
from triptych_bench.measure.run import GENERATOR, LATE, Load
from triptych_bench.measure.steady import WINDOWS
from triptych_bench.results import Run
from triptych_bench.scenarios.bench import NOT_KEPT_UP, Bench
from triptych_bench.scenarios.loops import Done, Headline
from triptych_bench.scenarios.search import Search

SCENARIO = "server"
CAPACITY_CALLERS = 32  # of the closed loop that the search begins with
CONFIRMATIONS = 6
STEP_BACK = 0.96  # after a confirmation that failed
ALLOWED = 0.01
AGAIN, CONFIRMING = 1_000, 2_000  # added to the seed: other arrivals
LIMITED = f"{GENERATOR} was the limit: the server may do more than this"


async def at_rates(bench: Bench, batches: Sequence[Batch], rates: Sequence[float], done: Done) -> Headline:
    """Each of the rates, whatever comes of it."""
    held: list[float] = []
    for rate in rates:
        run = await _at(bench, batches, rate)
        done(run)
        held += [rate] if run.valid else []
        if bench.interrupted:
            break
    return {"max_rate": max(held)} if held else {}


async def highest_rate(bench: Bench, batches: Sequence[Batch], done: Done) -> Headline:
    """Bisection, then a longer run with other arrivals that must confirm what was found."""
    pilot = await _capacity(bench, batches)
    capacity = pilot.request_rate
    if bench.interrupted or not capacity:
        return {}
    bench.progress(f"about {capacity:.1f} requests/s with {CAPACITY_CALLERS} at once: the search begins there")
    search = Search(capacity, bench.plan.resolution)
    problems: dict[float | None, str] = {}  # of rates that failed
    for probe in range(bench.plan.most_probes):
        doubted = search.over
        if doubted:
            search.doubt()
        run = await _at(bench, batches, search.rate, seed=bench.plan.seed + probe)
        if LATE in run.problem and not bench.interrupted:  # whose fault it was nobody can say
            bench.progress(f"{_verdict(run)}; again")
            run = await _at(bench, batches, search.rate, seed=bench.plan.seed + AGAIN + probe)
        done(run)
        bench.progress(_verdict(run))
        problems[search.rate] = run.problem
        search.learn(run.valid)
        if bench.interrupted or (doubted and not run.valid):
            break
    limited = GENERATOR in pilot.problem or GENERATOR in problems.get(search.failed, "")
    return await _confirm(bench, batches, search.found, done, limited)


async def _confirm(bench: Bench, batches: Sequence[Batch], rate: float, done: Done, limited: bool) -> Headline:
    """Of the rates that pass a search the luckiest is taken, so it has to pass again.

    Args:
        limited: by the generator, not by the server.
    """
    for attempt in range(CONFIRMATIONS if rate else 0):
        if bench.interrupted:
            return {}
        seconds = 2 * bench.open_seconds(rate)
        run = await _at(bench, batches, rate, name="confirmed", seconds=seconds, seed=bench.plan.seed + CONFIRMING + attempt)
        if run.valid:
            done(replace(run, problem=LIMITED) if limited else run)
            scheduled = run.completed / run.seconds  # what the rate came to by chance, as MLPerf's scheduled samples a second
            return {"max_rate": scheduled, "p99_seconds": run.latency.percentiles["99"], "confidence": _confidence(run)}
        done(replace(run, name=f"not confirmed {rate:.1f}/s"))
        bench.progress(_verdict(run))
        limited = limited or GENERATOR in run.problem
        rate *= STEP_BACK
    return {"max_rate": 0.0}


async def _capacity(bench: Bench, batches: Sequence[Batch]) -> Run:
    """Of a server that always has enough to do: what it does a second, roughly, is where the search begins."""
    load = Load(name="capacity", scenario=SCENARIO, concurrency=CAPACITY_CALLERS)
    return await bench.closed(load, batches, most_windows=WINDOWS)


async def _at(
    bench: Bench,
    batches: Sequence[Batch],
    rate: float,
    *,
    name: str = "",
    seconds: float | None = None,
    seed: int | None = None,
) -> Run:
    whole = f"{name} {rate:.1f}/s" if name else f"{rate:.1f} requests/s"
    load = Load(name=whole, scenario=SCENARIO, rate=rate)
    run = await bench.open(load, batches, seconds=seconds, seed=seed)
    return judged(run, bench.plan.latency_limit)


def judged(run: Run, limit: float | None) -> Run:
    """Not valid where more than 1 % were late or failed.

    Latencies count from when requests were due. So a generator that was late has made them longer, and a run that is within the
    limit all the same is a good one.
    """
    if limit is None:
        return run
    problems = [problem for problem in run.problem.split("; ") if problem]
    late, p99 = _late(run), run.latency.percentiles["99"]
    if late <= ALLOWED * (run.completed + sum(run.failed.values())):
        others = [problem for problem in problems if not problem.startswith(LATE)]
        return replace(run, valid=not others and run.completed > 0, problem="; ".join(others))
    why = f"p99 is {1_000 * p99:.1f} ms, above {1_000 * limit:g} ms" if p99 > limit else f"{late} requests failed or were late"
    return replace(run, valid=False, problem="; ".join([*(other for other in problems if other != NOT_KEPT_UP), why]))


def _late(run: Run) -> int:
    return (run.late or 0) + sum(run.failed.values())


def _confidence(run: Run) -> float:
    """That the 99th percentile is within the limit; MLPerf asks for 0.99."""
    return confidence_within(run.completed + sum(run.failed.values()), _late(run), ALLOWED)


def _verdict(run: Run) -> str:
    return f"{run.name}: " + ("within the limit" if run.valid else run.problem)
