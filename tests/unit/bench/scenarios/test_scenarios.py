"""Runs on a server that is none."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from triptych_bench.load.event_loop import Interrupt
from triptych_bench.measure.run import LoadSpec
from triptych_bench.reports import table
from triptych_bench.results import Run
from triptych_bench.scenarios.closed import closed_loop, multi_stream, offline, single_stream
from triptych_bench.scenarios.runner import LoadPlan, LoadRunner
from triptych_bench.scenarios.server import RateSearch, at_rates, check_limit, highest_rate
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
            bench = LoadRunner(target, plan, interrupt, counters=CounterSource(target, None, ""), keeps=True)
            return bench, await work(bench)

    return asyncio.run(measure())


def test_a_closed_loop_for_each_concurrency() -> None:
    runs: list[Run] = []
    target = FakeTarget()
    _, headline = do(lambda bench: closed_loop(bench, batches(), (1, 3), runs.append), target)
    assert [(one.name, one.concurrency) for one in runs] == [("concurrency 1", 1), ("concurrency 3", 3)]
    for one in runs:
        assert one.valid, one.problem
        assert one.steady
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
    _, single = do(lambda bench: single_stream(bench, batches(), runs.append), target)
    _, multi = do(lambda bench: multi_stream(bench, batches(4, 8), runs.append), target)
    assert target.most == 1
    assert single == {"p90_seconds": runs[0].latency.percentiles["90"]}
    assert multi == {"p99_seconds": runs[1].latency.percentiles["99"]}
    assert runs[1].throughput == pytest.approx(8 * runs[1].request_rate)


def test_offline_sends_all_and_counts_all() -> None:
    runs: list[Run] = []
    plan = replace(PLAN, offline_inputs=40, offline_in_flight=8)
    target = FakeTarget()
    _, headline = do(lambda bench: offline(bench, batches(5, 2), runs.append), target, plan)
    assert (runs[0].completed, target.sent, target.most) == (20, 20, 4)
    assert runs[0].throughput * runs[0].seconds == pytest.approx(40)
    assert headline == {"inputs_per_second": runs[0].throughput}


def test_offline_finds_out_how_many_inputs_it_takes() -> None:
    runs: list[Run] = []
    target = FakeTarget()
    do(lambda bench: offline(bench, batches(2, 4), runs.append), target, replace(PLAN, offline_in_flight=64))
    assert len(runs) == 1
    assert runs[0].completed < target.sent  # there was a pilot


def test_rates_are_all_tried() -> None:
    runs: list[Run] = []
    _, headline = do(lambda bench: at_rates(bench, batches(), (100.0, 300.0), runs.append), FakeTarget(), replace(ALWAYS))
    assert [one.offered_rate for one in runs] == [100.0, 300.0]
    assert all(one.completed and one.late == 0 for one in runs)
    # A machine with other things to do may be late itself, which is said.
    assert all(one.valid or "load generator" in one.problem or "keep up" in one.problem for one in runs)
    assert headline == (
        {"max_rate": max(one.offered_rate or 0 for one in runs if one.valid)} if any(r.valid for r in runs) else {}
    )


def test_a_limit_that_nothing_meets_has_no_rate() -> None:
    runs: list[Run] = []
    _, headline = do(lambda bench: highest_rate(bench, batches(), runs.append), FakeTarget(), NEVER)
    assert headline == {"max_rate": 0.0}
    assert len(runs) == 3
    assert all(not one.valid and "above 0.001 ms" in one.problem for one in runs)


def test_more_than_one_in_a_hundred_late_ones_are_too_many() -> None:
    good = [record(1.0 + number / 1_000, 0.1) for number in range(297)]
    for late, passes in ((3, True), (4, False)):
        found = check_limit(run(OPEN, *good, *(record(1.5, 0.9) for _ in range(late)), limit=0.5), 0.5)
        assert found.valid is passes, found.problem
    assert "p99 is 900.0 ms, above 500 ms" in found.problem


def test_a_late_generator_does_not_spoil_a_run_within_the_limit() -> None:
    behind = [record(1.0 + number / 1_000, 0.2, lag=0.1) for number in range(300)]
    found = run(OPEN, *behind, limit=0.5)
    assert (found.valid, "the load generator sent" in found.problem) == (False, True)
    passed, failed = check_limit(found, 0.5), check_limit(run(OPEN, *behind, limit=0.15), 0.15)
    assert (passed.valid, passed.problem) == (True, "")
    assert not failed.valid
    assert "the load generator sent" in failed.problem
    assert "p99 is 200.0 ms, above 150 ms" in failed.problem


def test_a_server_that_refuses_everything_ends_it() -> None:
    with pytest.raises(TargetError, match="all requests failed: UNAVAILABLE: no"):
        do(
            lambda bench: single_stream(bench, batches(), lambda _: None),
            FakeTarget(code="UNAVAILABLE"),
            replace(PLAN, warm_up=60.0),
        )


@pytest.mark.parametrize("scenario", ["closed", "open", "offline"])
def test_ctrl_c_keeps_what_was_measured(scenario: str) -> None:
    runs: list[Run] = []
    target = FakeTarget()
    plan = replace(PLAN, warm_up=0.01, window=60.0, offline_inputs=10**9)

    async def work(bench: LoadRunner) -> dict[str, float]:
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)
        match scenario:
            case "closed":
                return await closed_loop(bench, batches(), (1, 2), runs.append)
            case "open":
                return await at_rates(bench, batches(), (200.0, 300.0), runs.append)
        return await offline(bench, batches(), runs.append)

    bench, headline = do(work, target, plan)
    assert bench.interrupted
    [found] = runs  # the next load is not begun
    assert found.completed > 0
    assert (found.valid, found.steady) == (False, False)
    assert "interrupted" in found.problem
    assert headline == {}
    assert target.under_way == 0


def test_an_interrupt_in_the_warm_up_has_a_report_too() -> None:
    async def work(bench: LoadRunner) -> dict[str, float]:
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
        runs.append(await bench.closed(LoadSpec(name="x", scenario="closed-loop", concurrency=1), batches()))
        return {}

    runs: list[Run] = []
    bench, _ = do(work, FakeTarget(), replace(PLAN, warm_up=60.0))
    assert bench.interrupted
    assert runs[0].completed > 0


def test_a_search_ends_with_a_confirmed_rate() -> None:
    """Of a server without a limit but the machine: every probe passes, and so does the run that confirms."""
    plan = replace(ALWAYS, most_probes=2, least_arrivals=5)
    for _ in range(5):  # a machine with other things to do may have no rate once, but not always
        runs: list[Run] = []
        work = partial(highest_rate, batches=batches(), done=runs.append)
        bench, headline = do(work, FakeTarget(seconds=0.01, slots=2), plan)
        if headline.get("max_rate"):
            break
    assert runs[-1].name.startswith("confirmed ")
    assert headline["max_rate"] == pytest.approx(runs[-1].completed / runs[-1].seconds)
    assert 0 <= headline["confidence"] <= 1
    for one in runs:
        assert len(bench.log_of(one).records) >= one.completed


class Measured:
    """In place of LoadRunner: a rate holds up to 90 a second, 100 is the capacity."""

    plan = ALWAYS
    interrupted = False

    def __init__(self, problem: str) -> None:
        self.problem = problem  # of rates that do not hold

    def progress(self, _: str) -> None:
        """Says nothing."""

    def open_seconds(self, rate: float) -> float:
        return 1.0

    async def closed(self, load: LoadSpec, batches: Any, **more: Any) -> Run:
        return closed(32, 100.0, 0.01)

    async def open(self, load: LoadSpec, batches: Any, **more: Any) -> Run:
        holds = (load.rate or 0.0) <= 90.0
        run = opened(load.rate or 0.0, 0.01 if holds else 100.0, 60.0)
        problem = "" if holds else self.problem
        return replace(run, name=load.name, valid=not problem, problem=problem, late=0 if holds else run.completed)


@pytest.mark.parametrize("limit", ["the load generator", "the server"])
def test_a_search_that_the_generator_limits_says_so(limit: str) -> None:
    runs: list[Run] = []
    bench: Any = Measured(f"{limit} was busy for 95% of the time")
    headline = asyncio.run(highest_rate(bench, batches(), runs.append))
    assert headline["max_rate"] == pytest.approx(88, abs=3)
    text = table.render(report(*runs, headline=headline))
    said = "the load generator was the limit: the server may be faster"
    assert runs[-1].valid
    assert (runs[-1].problem == said) is (limit == "the load generator")
    assert (f"! {runs[-1].name}: {said}" in text) is (limit == "the load generator")
    assert ("invalid: the load generator was busy for 95% of the time" in text) is (limit == "the load generator")


def search_of(
    passes: Callable[[float], bool], capacity: float, probes: int = 20, resolution: float = 0.03
) -> tuple[float, int]:
    """What is found, and after how many probes."""
    search = RateSearch(capacity, resolution)
    for probe in range(probes):
        doubted = search.over
        if doubted:
            search.repeat()
        passed = passes(search.rate)
        search.learn(passed)
        if doubted and not passed:
            return search.found, probe + 1
    return search.found, probes


@pytest.mark.parametrize("limit", [5.0, 20.0, 69.0, 71.0, 99.0, 100.0, 180.0])
def test_it_comes_near(limit: float) -> None:
    found, probes = search_of(lambda rate: rate <= limit, 100.0)
    assert limit * 0.96 <= found <= limit
    assert probes <= 12


def test_where_no_rate_passes_there_is_none() -> None:
    found, probes = search_of(lambda _: False, 100.0)
    assert found == 0.0
    assert probes < 12


def test_one_bad_moment_does_not_end_it_far_below() -> None:
    calls = 0

    def passes(rate: float) -> bool:
        nonlocal calls
        calls += 1
        return calls != 1 and rate <= 90.0  # 70 failed once

    found, _ = search_of(passes, 100.0)
    assert found >= 0.95 * 90.0


def test_without_doubt_nothing_is_tried_again() -> None:
    search = RateSearch(100.0, 0.5)
    search.repeat()
    assert search.rate == 70.0
    search.learn(True)
    assert search.rate == pytest.approx(87.5)
