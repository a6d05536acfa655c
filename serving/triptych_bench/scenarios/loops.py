"""Scenarios that are closed loops: single-stream, multi-stream, closed-loop."""

from collections.abc import Callable, Sequence

from triptych_bench.load.feed import Batch
from triptych_bench.measure.run import Load
from triptych_bench.results import Run
from triptych_bench.scenarios.bench import Bench

Headline = dict[str, float]
Done = Callable[[Run], None]


async def single_stream(bench: Bench, batches: Sequence[Batch], done: Done) -> Headline:
    """MLPerf Inference's SingleStream: the next request when the one before is answered; what counts is the 90th percentile."""
    run = await bench.closed(Load(name="single-stream", scenario="single-stream", concurrency=1), batches)
    done(run)
    return {"p90_seconds": run.latency.percentiles["90"]} if run.valid else {}


async def multi_stream(bench: Bench, batches: Sequence[Batch], done: Done) -> Headline:
    """MLPerf Inference's MultiStream: the same with several samples a query (8 there); what counts is the 99th percentile."""
    samples = max(len(batch.samples) for batch in batches)
    run = await bench.closed(Load(name=f"{samples} a query", scenario="multi-stream", concurrency=1), batches)
    done(run)
    return {"p99_seconds": run.latency.percentiles["99"]} if run.valid else {}


async def closed_loop(bench: Bench, batches: Sequence[Batch], concurrencies: Sequence[int], done: Done) -> Headline:
    """perf_analyzer's sweep: so many requests at once, for each of the numbers; what counts is the most inputs a second."""
    rates: list[float] = []
    for concurrency in concurrencies:
        load = Load(name=f"concurrency {concurrency}", scenario="closed-loop", concurrency=concurrency)
        run = await bench.closed(load, batches)
        done(run)
        rates += [run.throughput] if run.valid else []
        if bench.interrupted:
            break
    return {"max_throughput": max(rates)} if rates else {}
