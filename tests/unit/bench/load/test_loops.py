"""Who sends when."""

import asyncio
import time
from itertools import repeat

import pytest

from triptych_bench.load.feed import Feed
from triptych_bench.load.log import Log
from triptych_bench.load.loops import Loop
from triptych_bench.target import Outcome, Request

from ..fakes import FakeTarget, batches


def loop_of(target: FakeTarget) -> tuple[Loop, Log]:
    log = Log(keeps=True)
    return Loop(target, Feed(batches(), 1), log), log


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
        assert set(log.answers) == {0, 1, 2, 3}

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
