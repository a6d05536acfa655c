"""Who sends when."""

import asyncio
import math
import time
from itertools import islice, pairwise, repeat

import pytest

from triptych_bench.load.log import Log
from triptych_bench.load.loops import MOST_THREADS, Feed, LoadLoop, poisson
from triptych_bench.target import Outcome, Request

from ..fakes import FakeCaller, FakeTarget, ThreadedTarget, batches


def loop_of(target: FakeTarget) -> tuple[LoadLoop, Log]:
    log = Log(keeps=True)
    return LoadLoop(target, Feed(batches(), 1), log), log


async def until(condition: object) -> None:
    assert callable(condition)
    while not condition():
        await asyncio.sleep(0.001)


def test_a_closed_loop_has_always_so_many_requests_under_way() -> None:
    async def check() -> None:
        target = FakeTarget()
        loop, log = loop_of(target)
        loop.close(5)
        await until(lambda: len(log.records) >= 50)
        await loop.stop()
        assert target.most == 5
        assert target.under_way == 0
        assert len(log.records) == target.sent  # those under way were waited for
        assert all(record.due == record.sent for record in log.records)
        assert set(log.responses) == {0, 1, 2, 3}

    asyncio.run(check())


def test_a_closed_loop_ends_after_so_many_requests() -> None:
    async def check() -> None:
        target = FakeTarget()
        loop, log = loop_of(target)
        loop.close(4, 10)
        await until(lambda: not loop.busy)
        assert len(log.records) == target.sent == 10

    asyncio.run(check())


def test_an_open_loop_does_not_wait_for_answers() -> None:
    async def check() -> None:
        target = FakeTarget()
        target.gate = asyncio.Event()  # nothing is answered before it is open
        loop, log = loop_of(target)
        loop.open(number * 1e-4 for number in range(1, 101))
        await until(lambda: target.under_way == 100)
        assert not log.records
        target.gate.set()
        await loop.stop()
        assert len(log.records) == 100
        assert log.dues == sorted(record.due for record in log.records)

    asyncio.run(check())


def test_a_pause_of_the_generator_counts_as_latency() -> None:
    """Coordinated omission: who waits because others are slow has waited since it was due."""

    class Pausing(FakeTarget):
        async def send(self, request: Request) -> Outcome:
            if self.sent == 3:
                time.sleep(0.1)  # nothing else runs meanwhile
            return await super().send(request)

    async def check() -> None:
        loop, log = loop_of(Pausing())
        loop.open(number * 1e-3 for number in range(1, 51))
        await until(lambda: len(log.records) == 50)
        await loop.stop()
        behind = [record for record in log.records if record.sent - record.due > 0.04]
        assert len(behind) > 20  # all that were due in the first half of the pause
        assert all(record.latency > record.received - record.sent for record in behind)

    asyncio.run(check())


def test_nothing_is_left_where_answers_are_not_waited_for() -> None:
    async def check() -> None:
        target = FakeTarget(seconds=3_600)
        loop, log = loop_of(target)
        loop.close(3)
        loop.open(repeat(0.0, 5))
        await until(lambda: target.under_way == 8)
        await loop.stop(drain=False)
        assert target.under_way == 0
        assert not log.records

    asyncio.run(check())


def test_a_fault_of_the_target_is_not_swallowed() -> None:
    class Broken(FakeTarget):
        async def send(self, request: Request) -> Outcome:
            raise ZeroDivisionError

    async def check() -> None:
        loop, _ = loop_of(Broken())
        loop.close(1)
        await until(lambda: not loop.busy)
        with pytest.raises(ZeroDivisionError):
            loop.check()

    asyncio.run(check())


def test_a_few_callers_are_threads_with_connections_of_their_own() -> None:
    async def check() -> None:
        target = ThreadedTarget()
        loop, log = loop_of(target)
        loop.close(5)
        await until(lambda: len(log.records) >= 50)
        await loop.stop()
        assert target.most == len(target.callers) == 5
        assert target.under_way == 0
        assert len(log.records) == target.sent
        assert set(log.responses) == {0, 1, 2, 3}
        assert all(caller.closed.is_set() for caller in target.callers)
        assert len(log.thread_seconds) == 5
        assert 0 < log.sending_seconds < 5

    asyncio.run(check())


def test_threads_end_after_so_many_requests() -> None:
    async def check() -> None:
        target = ThreadedTarget()
        loop, log = loop_of(target)
        loop.close(4, 101)
        await until(lambda: not loop.busy)
        assert len(log.records) == target.sent == 101

    asyncio.run(check())


def test_threads_that_nobody_waits_for_are_cut_off() -> None:
    async def check() -> None:
        target = ThreadedTarget(seconds=3_600)
        loop, log = loop_of(target)
        loop.close(3)
        await until(lambda: target.under_way == 3)
        await loop.stop(drain=False)
        assert target.under_way == 0
        assert not log.records

    asyncio.run(check())


def test_threads_do_not_storm_a_server_that_refuses() -> None:
    async def check() -> None:
        target = ThreadedTarget(seconds=0, code="UNAVAILABLE")
        loop, log = loop_of(target)
        loop.close(2)
        await asyncio.sleep(0.1)
        await loop.stop()
        assert 2 <= len(log.records) < 20
        assert log.messages == {"UNAVAILABLE": "no"}

    asyncio.run(check())


def test_a_fault_in_a_thread_is_not_swallowed() -> None:
    class Broken(FakeCaller):
        def send(self, request: Request) -> Outcome:
            raise ZeroDivisionError

    class BrokenTarget(ThreadedTarget):
        def caller(self) -> FakeCaller:
            return Broken(self)

    async def check() -> None:
        loop, _ = loop_of(BrokenTarget())
        loop.close(1)
        await until(lambda: not loop.busy)
        with pytest.raises(ZeroDivisionError):
            loop.check()

    asyncio.run(check())


def test_many_callers_share_an_event_loop() -> None:
    class Target(FakeTarget):
        def caller(self) -> FakeCaller:
            raise AssertionError("too many for threads")

    async def check() -> None:
        loop, log = loop_of(Target())
        loop.close(MOST_THREADS + 1)
        await until(lambda: len(log.records) >= 50)
        await loop.stop()

    asyncio.run(check())


def test_every_batch_has_its_turn_before_one_comes_again() -> None:
    feed = Feed(batches(7), seed=3)
    rounds = [[feed.take() for _ in range(7)] for _ in range(20)]
    assert all(sorted(one) == list(range(7)) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1


def test_the_seed_gives_the_order() -> None:
    def order(seed: int) -> list[int]:
        feed = Feed(batches(20), seed)
        return [feed.take() for _ in range(60)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_gaps_are_those_of_a_poisson_process() -> None:
    moments = list(islice(poisson(50.0, seed=1), 20_000))
    gaps = [later - earlier for earlier, later in pairwise([0.0, *moments])]
    assert all(gap > 0 for gap in gaps)
    mean = math.fsum(gaps) / len(gaps)
    assert math.isclose(mean, 1 / 50, rel_tol=0.03)
    # Of an exponential distribution the standard deviation is the mean, and 1/e of all gaps are longer than it.
    deviation = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert math.isclose(deviation, mean, rel_tol=0.05)
    assert math.isclose(sum(gap > mean for gap in gaps) / len(gaps), 1 / math.e, rel_tol=0.05)


def test_the_seed_says_it_all() -> None:
    first, again, other = (list(islice(poisson(10.0, seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
