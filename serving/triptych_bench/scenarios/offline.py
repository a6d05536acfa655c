"""MLPerf Inference's Offline: all inputs are there from the start; what counts is how many are done a second."""

from collections.abc import Sequence

from triptych_bench.load.feed import Batch
from triptych_bench.measure.run import Load
from triptych_bench.results import Run
from triptych_bench.scenarios.bench import Bench
from triptych_bench.scenarios.loops import Done, Headline

LEAST_REQUESTS = 4  # with the server at once, or it would wait for the client between two


async def offline(bench: Bench, batches: Sequence[Batch], done: Done) -> Headline:
    """One query with all inputs, in large requests; no more of them are with the server than its queue has room for."""
    most = max(len(batch.samples) for batch in batches)
    with_server = max(LEAST_REQUESTS, bench.plan.offline_in_flight // most)
    inputs = bench.plan.offline_inputs
    if not inputs:
        # How many it does in the time that is given: it must be busy for all of it.
        pilot = await bench.at_once(_load(with_server), batches, _requests(batches, bench.plan.offline_in_flight // 4))
        inputs = round(pilot.throughput * bench.plan.span)
        if bench.interrupted:
            done(pilot)
            return _headline(pilot)
    run = await bench.at_once(_load(with_server), batches, _requests(batches, inputs))
    done(run)
    return _headline(run)


def _load(concurrency: int) -> Load:
    return Load(name="offline", scenario="offline", concurrency=concurrency)


def _requests(batches: Sequence[Batch], inputs: int) -> int:
    """All batches at least once."""
    mean = sum(len(batch.samples) for batch in batches) / len(batches)
    return max(len(batches), round(inputs / mean), 1)


def _headline(run: Run) -> Headline:
    return {"inputs_per_second": run.throughput} if run.valid else {}
