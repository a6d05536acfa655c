"""Scenarios with a fixed number of requests in flight: single-stream, multi-stream, closed-loop and offline."""

from collections.abc import Callable, Sequence

from triptych_bench.load.loops import SampleBatch
from triptych_bench.measure.run import LoadSpec
from triptych_bench.results import Run
from triptych_bench.scenarios.runner import LoadRunner

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
    samples = max(len(batch.samples) for batch in batches)
    run = await runner.closed(LoadSpec(name=f"{samples} per query", scenario="multi-stream", concurrency=1), batches)
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
    most = max(len(batch.samples) for batch in batches)
    in_flight = max(LEAST_OFFLINE_REQUESTS, runner.plan.offline_in_flight // most)
    load = LoadSpec(name="offline", scenario="offline", concurrency=in_flight)
    inputs = runner.plan.offline_inputs
    run = None
    if not inputs:
        # A short run tells how many inputs keep the server busy for the planned time.
        run = await runner.at_once(load, batches, _requests(batches, runner.plan.offline_in_flight // 4))
        inputs = round(run.throughput * runner.plan.span)
    if run is None or not runner.interrupted:
        run = await runner.at_once(load, batches, _requests(batches, inputs))
    done(run)
    return {"inputs_per_second": run.throughput} if run.valid else {}


def _requests(batches: Sequence[SampleBatch], inputs: int) -> int:
    """Return the number of requests for so many inputs, at least one per batch."""
    mean = sum(len(batch.samples) for batch in batches) / len(batches)
    return max(len(batches), round(inputs / mean), 1)
