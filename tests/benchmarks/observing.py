"""CPU time of metrics, logs and traces: python -m tests.benchmarks.observing

Measures a counted engine step; a counted, logged and traced call in the event loop; and one scrape.
"""

import time
from collections.abc import Callable

import click
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from prometheus_client import CollectorRegistry, generate_latest

from triptych_serving.observability.access_log import LogObserver, trace_id_of
from triptych_serving.observability.request_metrics import MetricsObserver
from triptych_serving.observability.spans import TracingObserver
from triptych_serving.rpc.call_context import Observer
from triptych_serving.scheduling.step_stats import StepStats

from ..unit.serving.observability.calls import run_call

ROUNDS = 7


def best(work: Callable[[int], None], times: int) -> float:
    """Return the seconds of one repetition, in the best round."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        work(times)
        rounds.append((time.thread_time() - began) / times)
    return min(rounds)


def count_steps(times: int) -> None:
    steps, clock = StepStats(), time.monotonic
    for number in range(times):
        began = clock()
        steps.add(clock() - began, number & 31)


def cost(*observers: Observer) -> float:
    """Return the additional seconds per call."""

    def run(times: int, heard: tuple[Observer, ...]) -> None:
        for _ in range(times):
            run_call(*heard)

    return best(lambda times: run(times, observers), 3_000) - best(lambda times: run(times, ()), 3_000)


def scrape(registry: CollectorRegistry, times: int) -> None:
    for _ in range(times):
        generate_latest(registry)


def spans(sampler: Sampler) -> TracingObserver:
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return TracingObserver(provider.get_tracer("benchmark"))


def main() -> None:
    registry = CollectorRegistry()
    click.echo(f"a step, counted                {best(count_steps, 300_000) * 1e6:8.2f} us")
    click.echo(f"a call, counted                {cost(MetricsObserver(registry, list)) * 1e6:8.2f} us")
    click.echo(f"a call, named in logs          {cost(LogObserver(trace_id_of, has_access_log=False)) * 1e6:8.2f} us")
    click.echo(f"a call, traced                 {cost(spans(ALWAYS_ON)) * 1e6:8.2f} us")
    click.echo(f"a call, not sampled            {cost(spans(ALWAYS_OFF)) * 1e6:8.2f} us")
    click.echo(f"a scrape of one model's calls  {best(lambda times: scrape(registry, times), 20) * 1e6:8.2f} us")


if __name__ == "__main__":
    main()
