"""The figures of a run, from its log."""

from typing import Any

import pytest

from triptych_bench.measure.run import GeneratorCost, LoadSpec, Observation, run_of, server_counts, time_breakdown, timeline
from triptych_bench.measure.steady import Span
from triptych_bench.results import Run
from triptych_bench.target import Outcome, ServerTimes

from ..fakes import batches, log_of, record

OPEN = LoadSpec(name="10 requests/s", scenario="server", rate=10.0)
CLOSED = LoadSpec(name="concurrency 1", scenario="closed-loop", concurrency=1)
IDLE = GeneratorCost(cores=0.1, sending_share=0.1)


def run(
    load: LoadSpec, *records: Outcome, limit: float | None = None, cost: GeneratorCost = IDLE, size: int = 1, **members: Any
) -> Run:
    seen = Observation(span=Span(1.0, 3.0), steady=True, cost=cost, **members)
    return run_of(load, log_of(*records), batches(1, size), seen, limit)


def test_open_and_closed_loops_count_what_belongs_to_the_span() -> None:
    found = run(
        OPEN,
        record(0.5, 1.0),  # due before: its answer came in the span all the same
        record(1.0, 0.2),
        record(2.9, 0.4, lag=0.1),  # its answer came later
        record(3.1, 0.1),
        size=2,
    )
    assert found.completed == found.latency.count == 2
    assert found.latency.maximum == pytest.approx(0.4)
    assert found.service_time
    assert found.service_time.maximum == pytest.approx(0.3)
    assert found.request_rate == 1.0
    assert found.throughput == 2.0
    assert found.inputs_per_request == 2
    found = run(CLOSED, record(0.5, 1.0), record(1.5, 1.0), record(2.5, 1.0))
    assert (found.completed, found.request_rate, found.service_time) == (2, 1.0, None)
    assert found.valid


def test_limits_and_failures_are_counted() -> None:
    found = run(CLOSED, record(1.0, 0.1), record(1.0, 0.2), record(1.0, 0.9), limit=0.2 + 1e-9)
    assert (found.goodput, found.late, found.latency_limit) == (1.0, 1, 0.2 + 1e-9)
    assert run(CLOSED, record(1.0, 0.1)).goodput is None
    found = run(CLOSED, record(1.0, 0.1), record(1.0, 0.1, code="UNAVAILABLE"))
    assert found.failed == {"UNAVAILABLE": 1}
    assert not found.valid
    assert "1 of 2 requests failed with UNAVAILABLE" in found.problem
    nothing = run(CLOSED)
    assert (nothing.valid, nothing.problem) == (False, "no request succeeded")


def test_streams_have_first_token_and_inter_token_times() -> None:
    found = run(CLOSED, record(1.0, 1.0, tokens=5, token_times=(1.2, 1.3, 1.6)), record(1.0, 0.1, tokens=1, token_times=(1.1,)))
    assert found.first_token
    assert found.inter_token
    assert found.first_token.maximum == pytest.approx(0.2)
    assert (found.inter_token.count, found.inter_token.maximum) == (1, pytest.approx(0.1))  # 0.4 s for 4 tokens
    assert found.output_tokens == 3.0
    assert run(CLOSED, record(1.0, 0.1)).first_token is None
    pieces = record(1.0, 1.0, tokens=5, token_times=(1.2, 1.3, 1.6))
    assert run(CLOSED, pieces, size=2).inter_token is None  # pieces of two texts between each other
    assert run(CLOSED, pieces, size=2).first_token
    assert run(CLOSED, record(1.0, 1.0, tokens=5, token_times=(1.2,))).inter_token is None  # all at once
    assert run(CLOSED, record(1.0, 1.0, tokens=1, token_times=(1.2, 1.3))).inter_token is None


def test_a_busy_generator_invalidates_a_run() -> None:
    busy = run(CLOSED, record(1.0, 0.1), cost=GeneratorCost(cores=1.2, sending_share=0.95))
    assert not busy.valid
    assert "the load generator was busy for 95% of the time" in busy.problem
    assert busy.generator
    assert busy.generator.cpu_per_request == pytest.approx(1.2 / 0.5)  # one request in two seconds
    late = run(OPEN, *(record(1.0 + number / 100, 0.1, lag=0.05) for number in range(100)))
    assert not late.valid
    assert "at least 50.0 ms late" in late.problem
    assert late.generator
    assert late.generator.lag == pytest.approx(0.05)
    assert run(OPEN, *(record(1.0 + number / 100, 0.1, lag=0.001) for number in range(100))).valid


def test_parts_add_up_to_the_round_trip_or_come_from_counters() -> None:
    times = ServerTimes(0.01, 0.02, 0.03, 0.004)
    parts = time_breakdown([record(1.0, 0.1, lag=0.02, client_send=0.001, client_receive=0.002, server=times)])
    known = (parts.server_queue, parts.server_preprocess, parts.server_compute, parts.server_postprocess)
    assert known == (0.01, 0.02, 0.03, 0.004)
    assert parts.network == pytest.approx(0.08 - 0.064 - 0.003)
    parts = time_breakdown([record(1.0, 0.1)], {"requests": 4.0, "queue": 0.04, "compute": 0.2})
    assert (parts.server_queue, parts.server_compute, parts.server_preprocess) == (0.01, 0.05, None)
    assert time_breakdown([record(1.0, 0.1)]).server_compute is None


def test_counters_of_server_and_client() -> None:
    log = log_of(record(1.0, 0.2), record(1.0, 0.4), record(1.0, 0.1, code="UNAVAILABLE"))
    found = server_counts("ModelStatistics", {"requests": 3.0, "total": 0.3}, log)
    assert (found.requests, found.expected, found.cached) == (3, 2, None)
    assert server_counts("ModelStatistics", {"requests": 3.0, "cached": 2.0}, log).cached == 2
    assert found.mean_seconds == pytest.approx(0.1)
    assert found.expected_seconds == pytest.approx(0.3)


def test_the_timeline_has_an_entry_per_second() -> None:
    log = log_of(record(0.0, 0.5), record(1.0, 0.5), record(1.2, 0.1, code="UNAVAILABLE"), record(3.0, 0.5))
    moments = timeline(log, Span(1.0, 3.0))
    assert [(moment.completed, moment.failed, moment.steady) for moment in moments] == [
        (1, 0, False),
        (1, 1, True),
        (0, 0, True),
        (1, 0, False),
    ]
    assert moments[2].p50 is None
    assert timeline(log_of(), Span(0.0, 1.0)) == ()
