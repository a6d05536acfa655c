"""Closed and open loops, their order and their moments."""

import asyncio
import math
import time
from collections.abc import Callable
from itertools import islice, pairwise, repeat

import grpc
import pytest

from triptych_bench.load.log import Log
from triptych_bench.load.loops import MOST_THREADS, LoadLoop, poisson, run_closed_loop, run_open_loop, shuffled
from triptych_bench.target import Outcome, Request

from ..fakes import FakeCaller, FakeTarget, ThreadedTarget, batches, in_event_loop


def loop_of(target: FakeTarget) -> tuple[LoadLoop, Log]:
    log = Log(keeps=True)
    return LoadLoop(target.send, target.caller, batches(), 1, log), log


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("kind", [FakeTarget, ThreadedTarget])
@in_event_loop
async def test_a_closed_loop_has_a_constant_number_of_requests_in_flight(kind: type[FakeTarget]) -> None:
    target = kind()
    loop, log = loop_of(target)
    loop.close(5)
    await until(lambda: len(log.records) >= 50)
    await loop.stop()
    assert (target.most, target.under_way) == (5, 0)
    assert len(log.records) == target.sent  # requests in flight at the end were waited for
    assert all(record.due == record.sent for record in log.records)
    assert set(log.responses) == {0, 1, 2, 3}
    if isinstance(target, ThreadedTarget):
        assert len(target.callers) == len(log.thread_seconds) == 5
        assert all(caller.closed.is_set() for caller in target.callers)
        assert 0 < log.sending_seconds < 5


@pytest.mark.parametrize("kind", [FakeTarget, ThreadedTarget])
@in_event_loop
async def test_a_closed_loop_ends_after_a_number_of_requests(kind: type[FakeTarget]) -> None:
    target = kind()
    loop, log = loop_of(target)
    loop.close(4, 101)
    await until(lambda: not loop.busy)
    assert len(log.records) == target.sent == 101


@in_event_loop
async def test_an_open_loop_does_not_wait_for_responses() -> None:
    target = FakeTarget()
    target.gate = asyncio.Event()
    loop, log = loop_of(target)
    loop.open(number * 1e-4 for number in range(1, 101))
    await until(lambda: target.under_way == 100)
    assert not log.records
    target.gate.set()
    await loop.stop()
    assert len(log.records) == 100
    assert log.dues == sorted(record.due for record in log.records)


@in_event_loop
async def test_a_pause_of_the_generator_counts_as_latency() -> None:
    """Latency counts from the due moment: no coordinated omission."""

    class Pausing(FakeTarget):
        async def send(self, request: Request) -> Outcome:
            if self.sent == 3:
                time.sleep(0.1)  # blocks the event loop
            return await super().send(request)

    loop, log = loop_of(Pausing())
    loop.open(number * 1e-3 for number in range(1, 51))
    await until(lambda: len(log.records) == 50)
    await loop.stop()
    behind = [record for record in log.records if record.sent - record.due > 0.04]
    assert len(behind) > 20  # all that were due in the first half of the pause
    assert all(record.latency > record.received - record.sent for record in behind)


@pytest.mark.parametrize("kind", [FakeTarget, ThreadedTarget])
@in_event_loop
async def test_stop_without_drain_cancels_all_requests(kind: type[FakeTarget]) -> None:
    target = kind(seconds=3_600)
    loop, log = loop_of(target)
    loop.close(3)
    if kind is FakeTarget:
        loop.open(repeat(0.0, 5))
    await until(lambda: target.under_way == (8 if kind is FakeTarget else 3))
    await loop.stop(drain=False)
    assert target.under_way == 0
    assert not log.records


class BrokenCaller(FakeCaller):
    def send(self, request: Request) -> Outcome:
        raise ZeroDivisionError


class BrokenThreadedTarget(ThreadedTarget):
    def caller(self) -> FakeCaller:
        return BrokenCaller(self)


class BrokenTarget(FakeTarget):
    async def send(self, request: Request) -> Outcome:
        raise ZeroDivisionError


@pytest.mark.parametrize("kind", [BrokenTarget, BrokenThreadedTarget])
@in_event_loop
async def test_an_exception_of_the_target_is_raised_by_check(kind: type[FakeTarget]) -> None:
    loop, _ = loop_of(kind())
    loop.close(1)
    await until(lambda: not loop.busy)
    with pytest.raises(ZeroDivisionError):
        loop.check()


@in_event_loop
async def test_threads_do_not_flood_a_server_and_many_callers_share_an_event_loop() -> None:
    loop, log = loop_of(ThreadedTarget(seconds=0, code="UNAVAILABLE"))
    loop.close(2)
    await asyncio.sleep(0.1)
    await loop.stop()
    assert 2 <= len(log.records) < 20
    assert log.messages == {"UNAVAILABLE": "no"}

    class Target(FakeTarget):
        def caller(self) -> FakeCaller:
            raise AssertionError("too many for threads")

    loop, log = loop_of(Target())
    loop.close(MOST_THREADS + 1)
    await until(lambda: len(log.records) >= 50)
    await loop.stop()


@in_event_loop
async def test_scripts_send_with_any_call() -> None:
    seen: list[int] = []

    async def call(request: int) -> int:
        await asyncio.sleep(0)
        seen.append(request)
        if request == 3:
            raise grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), grpc.aio.Metadata(), "gone")
        return request

    closed = await run_closed_loop(call, range(10), 3)
    assert sorted(seen) == list(range(10))
    assert [record.code for record in closed.records if not record.ok] == ["NOT_FOUND"]
    assert closed.messages == {"NOT_FOUND": "gone"}
    timed = await run_closed_loop(call, range(3), 2, seconds=0.1)
    assert len(timed.records) > 3
    opened = await run_open_loop(call, [0], rate=500.0, seconds=0.1)
    assert len(opened.records) == len(opened.dues) > 10
    assert all(record.latency >= 0 for record in opened.records)
    with pytest.raises(ZeroDivisionError):
        await run_closed_loop(BrokenTarget().send, [0], 1)


def test_orders_and_moments_follow_the_seed() -> None:
    numbers = shuffled(7, seed=3)
    rounds = [list(islice(numbers, 7)) for _ in range(20)]
    assert all(sorted(one) == list(range(7)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    first, again, other = (list(islice(shuffled(20, seed), 60)) for seed in (1, 1, 2))
    assert first == again != other
    first_moments, again_moments, other_moments = (list(islice(poisson(10.0, seed), 50)) for seed in (1, 1, 2))
    assert first_moments == again_moments != other_moments
    moments = list(islice(poisson(50.0, seed=1), 20_000))
    gaps = [later - earlier for earlier, later in pairwise([0.0, *moments])]
    assert all(gap > 0 for gap in gaps)
    mean = math.fsum(gaps) / len(gaps)
    assert math.isclose(mean, 1 / 50, rel_tol=0.03)
    # In an exponential distribution the standard deviation is the mean, and 1/e of all gaps are longer than it.
    deviation = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert math.isclose(deviation, mean, rel_tol=0.05)
    assert math.isclose(sum(gap > mean for gap in gaps) / len(gaps), 1 / math.e, rel_tol=0.05)
