"""The scenarios, on a target without a server."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from triptych_bench.load.event_loop import Interrupt
from triptych_bench.measure.run import LoadSpec
from triptych_bench.reports import table
from triptych_bench.results import Run
from triptych_bench.scenarios.runner import LoadPlan, LoadRunner
from triptych_bench.scenarios.scenarios import (
    RateSearch,
    at_rates,
    check_limit,
    closed_loop,
    highest_rate,
    multi_stream,
    offline,
    single_stream,
)
from triptych_bench.server.resources import CounterSource
from triptych_bench.target import TargetError

from ..fakes import FakeTarget, batches, record
from ..measure.test_run import OPEN, run
from ..reports.sample import closed, opened, report

PLAN = LoadPlan(warm_up=0.02, window=0.05, most_windows=4, tolerance=5.0, least_responses=2, least_arrivals=20, longest=1.0)
ALWAYS = replace(PLAN, latency_limit=60.0)
NEVER = replace(PLAN, latency_limit=1e-6, most_probes=3)


def do(
    work: Callable[[LoadRunner], Awaitable[dict[str, float]]], target: FakeTarget, plan: LoadPlan = PLAN
) -> tuple[LoadRunner, dict[str, float]]:
    async def measure() -> tuple[LoadRunner, dict[str, float]]:
        interrupt = Interrupt()
        with interrupt.handled():
            runner = LoadRunner(target, plan, interrupt, counters=CounterSource(target, None, ""), keeps=True)
            return runner, await work(runner)

    return asyncio.run(measure())


def test_a_closed_loop_for_each_concurrency() -> None:
    runs: list[Run] = []
    target = FakeTarget()
    _, headline = do(lambda runner: closed_loop(runner, batches(), (1, 3), runs.append), target)
    assert [(one.name, one.concurrency) for one in runs] == [("concurrency 1", 1), ("concurrency 3", 3)]
    for one in runs:
        assert one.trusted, one.problem
        assert one.output_tokens == pytest.approx(3 * one.request_rate)
        assert one.parts.server_compute == pytest.approx(target.seconds / 2)
        assert one.counted
        assert one.counted.requests == one.counted.expected > one.completed > 0
        assert one.generator
        assert sum(moment.completed for moment in one.moments) == one.counted.expected
    assert headline == {"max_throughput": max(one.throughput for one in runs)}
    assert target.under_way == 0


def test_single_and_multi_stream_have_one_request_at_a_time() -> None:
    runs: list[Run] = []
    target = FakeTarget()
    _, single = do(lambda runner: single_stream(runner, batches(), runs.append), target)
    _, multi = do(lambda runner: multi_stream(runner, batches(4, 8), runs.append), target)
    assert target.most == 1
    assert single == {"p90_seconds": runs[0].latency.percentiles["90"]}
    assert multi == {"p99_seconds": runs[1].latency.percentiles["99"]}
    assert runs[1].throughput == pytest.approx(8 * runs[1].request_rate)


def test_offline_sends_all_inputs_or_those_of_a_short_run() -> None:
    runs: list[Run] = []
    target = FakeTarget()
    plan = replace(PLAN, offline_inputs=40, offline_in_flight=8)
    _, headline = do(lambda runner: offline(runner, batches(5, 2), runs.append), target, plan)
    assert (runs[0].completed, target.sent, target.most) == (20, 20, 4)
    assert runs[0].throughput * runs[0].seconds == pytest.approx(40)
    assert headline == {"inputs_per_second": runs[0].throughput}
    runs: list[Run] = []
    target = FakeTarget()
    do(lambda runner: offline(runner, batches(2, 4), runs.append), target, replace(PLAN, offline_in_flight=64))
    assert len(runs) == 1
    assert runs[0].completed < target.sent


def test_all_requests_count_on_a_machine_that_runs_for_years(monkeypatch: pytest.MonkeyPatch) -> None:
    real, runs = time.perf_counter, list[Run]()
    monkeypatch.setattr(time, "perf_counter", lambda: real() + 2.0**28)  # eight years
    plan = replace(PLAN, offline_inputs=40, offline_in_flight=8)
    do(lambda runner: offline(runner, batches(5, 2), runs.append), FakeTarget(), plan)
    assert runs[0].completed == 20


def test_rates_are_measured_with_and_without_success() -> None:
    runs: list[Run] = []
    _, headline = do(lambda runner: at_rates(runner, batches(), (100.0, 300.0), runs.append), FakeTarget(), ALWAYS)
    assert [one.offered_rate for one in runs] == [100.0, 300.0]
    assert all(one.completed and one.late == 0 for one in runs)
    # On a busy machine the generator itself may be late, which is reported.
    assert all(one.valid or "load generator" in one.problem or "keep up" in one.problem for one in runs)
    valid = [one.offered_rate for one in runs if one.valid]
    assert headline == ({"max_rate": max(valid)} if valid else {})
    runs: list[Run] = []
    _, headline = do(lambda runner: highest_rate(runner, batches(), runs.append), FakeTarget(), NEVER)
    assert headline == {"max_rate": 0.0}
    assert len(runs) == 3
    problems = ("above 0.001 ms", "load generator", "keep up")
    assert all(not one.valid and any(problem in one.problem for problem in problems) for one in runs)


def test_the_generator_is_observed_while_requests_are_due_not_until_the_last_response() -> None:
    runs: list[Run] = []
    do(lambda runner: at_rates(runner, batches(), (100.0,), runs.append), FakeTarget(seconds=0.8))
    assert runs[0].generator
    assert runs[0].generator.cpu_cores > 0


def test_late_requests_and_late_generators_invalidate_a_run() -> None:
    good = [record(1.0 + number / 1_000, 0.1) for number in range(297)]
    for late, passes in ((3, True), (4, False)):
        found = check_limit(run(OPEN, *good, *(record(1.5, 0.9) for _ in range(late)), limit=0.5), 0.5)
        assert found.valid is passes, found.problem
    assert "p99 is 900.0 ms, above 500 ms" in found.problem
    behind = [record(1.0 + number / 1_000, 0.2, lag=0.1) for number in range(300)]
    found = run(OPEN, *behind, limit=0.5)
    assert (found.valid, "the load generator sent" in found.problem) == (False, True)
    passed, failed = check_limit(found, 0.5), check_limit(run(OPEN, *behind, limit=0.15), 0.15)
    assert (passed.valid, passed.problem) == (True, "")
    assert not failed.valid
    assert "the load generator sent" in failed.problem
    assert "p99 is 200.0 ms, above 150 ms" in failed.problem


def test_a_server_that_rejects_everything_ends_the_benchmark() -> None:
    work = partial(single_stream, batches=batches(), done=lambda _: None)
    with pytest.raises(TargetError, match="all requests failed: UNAVAILABLE: no"):
        do(work, FakeTarget(code="UNAVAILABLE"), replace(PLAN, warm_up=60.0))


@pytest.mark.parametrize("scenario", ["closed", "open", "offline", "warm-up", "search"])
def test_ctrl_c_keeps_the_measurement(scenario: str) -> None:
    runs: list[Run] = []
    target = FakeTarget()
    warm_up = 60.0 if scenario == "warm-up" else 0.01
    plan = replace(PLAN, warm_up=warm_up, window=60.0, offline_inputs=10**9)

    def interrupt(loop: asyncio.AbstractEventLoop) -> None:
        if target.sent - target.under_way < 30:  # on a busy machine nothing may have been measured yet
            loop.call_later(0.1, interrupt, loop)
        else:
            os.kill(os.getpid(), signal.SIGINT)

    async def work(runner: LoadRunner) -> dict[str, float]:
        loop = asyncio.get_running_loop()
        loop.call_later(0.3, interrupt, loop)
        if scenario == "open":
            return await at_rates(runner, batches(), (200.0, 300.0), runs.append)
        if scenario == "offline":
            return await offline(runner, batches(), runs.append)
        if scenario == "search":
            return await highest_rate(runner, batches(), runs.append)
        return await closed_loop(runner, batches(), (1, 2), runs.append)

    runner, headline = do(work, target, plan)
    assert runner.interrupted
    [found] = runs  # the next load does not start
    assert found.completed > 0
    assert (found.valid, found.steady, headline) == (False, False, {})
    assert "interrupted" in found.problem
    assert target.under_way == 0


def test_a_search_ends_with_a_confirmed_rate() -> None:
    """Without a limit of the server, every probe passes, and so does the confirmation."""
    plan = replace(ALWAYS, most_probes=2, least_arrivals=5)
    for _ in range(5):  # on a busy machine a search may find no rate once, but not always
        runs: list[Run] = []
        work = partial(highest_rate, batches=batches(), done=runs.append)
        runner, headline = do(work, FakeTarget(seconds=0.01, slots=2), plan)
        if headline.get("max_rate"):
            break
    assert runs[-1].name.startswith("confirmed ")
    assert headline["max_rate"] == pytest.approx(runs[-1].completed / runs[-1].seconds)
    assert 0 <= headline["confidence"] <= 1
    assert all(len(runner.log_of(one).records) >= one.completed for one in runs)


class FakeRunner:
    """A LoadRunner for a server with a capacity of 100 requests/s that passes up to 90."""

    plan = ALWAYS
    interrupted = False

    def __init__(self, problem: str) -> None:
        self.problem = problem  # of rates that fail

    def progress(self, _: str) -> None:
        """Print nothing."""

    async def closed(self, load: LoadSpec, batches: Any, **more: Any) -> Run:
        return closed(32, 100.0, 0.01)

    async def open(self, load: LoadSpec, batches: Any, **more: Any) -> Run:
        passes = (load.rate or 0.0) <= 90.0
        run = opened(load.rate or 0.0, 0.01 if passes else 100.0, 60.0)
        problem = "" if passes else self.problem
        return replace(run, name=load.name, valid=not problem, problem=problem, late=0 if passes else run.completed)


@pytest.mark.parametrize("limit", ["the load generator", "the server"])
def test_a_search_that_the_generator_limits_has_a_remark(limit: str) -> None:
    runs: list[Run] = []
    runner: Any = FakeRunner(f"{limit} was busy for 95% of the time")
    headline = asyncio.run(highest_rate(runner, batches(), runs.append))
    assert headline["max_rate"] == pytest.approx(88, abs=3)
    text = table.render(report(*runs, headline=headline))
    remark = "the load generator was the limit: the server may be faster"
    assert runs[-1].valid
    limited = limit == "the load generator"
    assert (runs[-1].problem == remark) is limited
    assert (f"! {runs[-1].name}: {remark}" in text) is limited
    assert ("invalid: the load generator was busy for 95% of the time" in text) is limited


def search(passes: Callable[[float], bool], probes: int = 20) -> tuple[float, int]:
    """Return the rate that a search finds, and the number of probes."""
    search = RateSearch(100.0, 0.03)
    for probe in range(probes):
        repeated = search.over
        if repeated:
            search.repeat()
        passed = passes(search.rate)
        search.learn(passed)
        if repeated and not passed:
            return search.found, probe + 1
    return search.found, probes


@pytest.mark.parametrize("limit", [0.0, 5.0, 20.0, 69.0, 71.0, 99.0, 100.0, 180.0])
def test_a_search_finds_the_limit(limit: float) -> None:
    found, probes = search(lambda rate: rate <= limit)
    assert limit * 0.96 <= found <= limit
    assert probes <= 12


def test_a_search_survives_one_disturbance_and_repeats_only_failures() -> None:
    results = iter([False])  # 70 requests/s fail once
    found, _ = search(lambda rate: next(results, True) and rate <= 90.0)
    assert found >= 0.95 * 90.0
    rates = RateSearch(100.0, 0.5)
    rates.repeat()
    assert rates.rate == 70.0
    rates.learn(True)
    assert rates.rate == pytest.approx(87.5)
