"""A whole benchmark, on a target without a server."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from triptych_bench.reports.summary import SCENARIOS
from triptych_bench.results import Report
from triptych_bench.scenarios.runner import LoadPlan
from triptych_bench.session import BenchmarkSpec, batches_of, expected_time, measure
from triptych_bench.target import Counters, RawResponse, Sample, Target, TargetError

from .fakes import SPEC, FakeTarget
from .scenarios.test_scenarios import PLAN

SAMPLES = [Sample("one", "1", "ONE"), Sample("two", "2", "TWO"), Sample("three", "3")]


def inputs_of(samples: list[Sample]) -> Callable[[Target], Coroutine[Any, Any, list[Sample]]]:
    """Make the inputs of a benchmark."""
    return AsyncMock(return_value=samples)


BENCHMARK = BenchmarkSpec(
    scenario="closed-loop",
    requests=replace(SPEC, task="classify-text"),
    plan=replace(PLAN, latency_limit=60.0, offline_inputs=10),
    inputs=inputs_of(SAMPLES),
    source="a test",
    concurrencies=(2,),
    rates=(100.0,),
)


@pytest.fixture(autouse=True)
def _no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the collection of garbage before each run, which scans what all tests have imported."""
    monkeypatch.setattr("triptych_bench.load.event_loop.gc", Mock())


def report_of(spec: BenchmarkSpec, target: FakeTarget | None = None) -> Report:
    return measure(spec, lambda: target or FakeTarget(), lambda _: None).report


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_has_a_report(scenario: str) -> None:
    target = FakeTarget()
    report = report_of(replace(BENCHMARK, scenario=scenario), target)
    assert (report.scenario, report.task) == (scenario, "classify-text")
    assert report.target == {"address": "nowhere", "model": "fake"}
    assert report.runs
    assert all(run.scenario == scenario and run.completed for run in report.runs)
    assert report.machine["cpus"]
    assert report.started.endswith("+00:00")
    assert (target.open_calls, target.close_calls) == (1, 1)
    quality = report.runs[0].quality
    assert quality
    assert (quality.metric, quality.value, quality.signature) == ("accuracy", 1.0, "n:2")


@pytest.mark.parametrize(
    ("scenario", "rates", "text"),
    [
        ("closed-loop", (), "this takes 68 s to 3 min"),
        ("single-stream", (), "this takes 17 s to 52 s"),
        ("server", (50.0, 10.0), "this takes about 49 s"),  # 15 s, and 30 s for 300 arrivals
        ("server", (), "this takes about 17 s, then a search"),
        ("offline", (), "this takes at least 15 s"),
    ],
)
def test_the_expected_time(scenario: str, rates: tuple[float, ...], text: str) -> None:
    spec = replace(BENCHMARK, scenario=scenario, plan=LoadPlan(), concurrencies=(1, 2, 4, 8), rates=rates)
    assert expected_time(spec) == text


def test_inputs_are_digested_and_may_be_generated() -> None:
    first, again, other = (report_of(replace(BENCHMARK, inputs=inputs_of(s))).inputs for s in (SAMPLES, SAMPLES, SAMPLES[::-1]))
    assert first == again
    assert first["sha256"] != other["sha256"]
    assert (first["count"], first["source"], first["mean characters"]) == ("3", "a test", "3.7")
    report = report_of(replace(BENCHMARK, inputs=inputs_of([])))
    assert report.inputs["count"] == "100"
    assert report.runs[0].quality is None


def test_all_requests_have_the_same_number_of_inputs() -> None:
    found = batches_of(FakeTarget(), SAMPLES, 2)
    assert [[sample.data for sample in batch.samples] for batch in found] == [["one", "two"], ["three", "one"]]
    assert found[0].request == ["one", "two"]
    with pytest.raises(TargetError, match="no inputs"):
        batches_of(FakeTarget(), [], 2)
    whole, filled = report_of(BENCHMARK), report_of(replace(BENCHMARK, batch=2))
    assert filled.inputs == whole.inputs
    assert filled.runs[0].quality
    assert filled.runs[0].quality.signature == "n:2"  # inputs that fill the last request count once


def test_a_rejected_request_is_reported_before_the_measurement() -> None:
    target = FakeTarget(code="NOT_FOUND")
    with pytest.raises(TargetError, match="NOT_FOUND: no"):
        report_of(BENCHMARK, target)
    assert (target.sent, target.close_calls) == (1, 1)


@pytest.mark.parametrize("found", [[], ["one text"], TargetError("not UTF-8")])
def test_unreadable_responses_only_lose_the_quality(found: list[str] | TargetError) -> None:
    class Odd(FakeTarget):
        def read(self, response: RawResponse) -> list[str]:
            if isinstance(found, TargetError):
                raise found
            return found

    result = measure(replace(BENCHMARK, batch=2), Odd, lambda _: None)
    assert result.report.runs[0].completed
    assert result.report.runs[0].quality is None
    assert not result.failed
    note = "not UTF-8" if isinstance(found, TargetError) else f"the response to 2 inputs has {len(found)} readable outputs"
    assert note in result.report.notes[0]


def test_ctrl_c_before_the_first_load_does_not_wait_for_the_server() -> None:
    class Silent(FakeTarget):
        async def open(self) -> None:
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
            await asyncio.sleep(60)

    target = Silent()
    with pytest.raises(KeyboardInterrupt):
        report_of(BENCHMARK, target)
    assert target.close_calls == 1


def test_ctrl_c_while_counters_are_read_keeps_the_run() -> None:
    class Slow(FakeTarget):
        async def stats(self) -> Counters | None:
            if self.sent > 1:
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(60)
            return await super().stats()

    result = measure(replace(BENCHMARK, concurrencies=(1, 2)), Slow, lambda _: None)
    assert result.interrupted
    [run] = result.report.runs
    assert run.completed
    assert (run.problem, run.counted) == ("", None)


def test_inputs_that_a_run_did_not_send_are_sent_for_the_quality() -> None:
    samples = [Sample(f"text {number}", reference=f"TEXT {number}") for number in range(800)]
    report = report_of(replace(BENCHMARK, scenario="single-stream", inputs=inputs_of(samples)))
    assert report.runs[0].completed < 800
    assert report.runs[0].quality
    assert report.runs[0].quality.signature == "n:800"
