"""Several devices for one graph."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np
import pytest

from triptych_serving.encoding.cuda.buckets import Bucket
from triptych_serving.encoding.cuda.graph import DeviceGraph
from triptych_serving.encoding.cuda.replica_pool import REST_SECONDS, ReplicaPool
from triptych_serving.errors import EngineError
from triptych_serving.runtime.session import Session, SessionPlace

from ...calls import eventually
from ...stub_device import POISON, StubMemory, StubSession, stub_plan

ONE = Bucket(1, 1, k=1)


def test_a_batch_goes_to_whichever_device_is_free() -> None:
    memories, sessions = [StubMemory() for _ in range(2)], [StubSession() for _ in range(2)]
    graphs = [
        DeviceGraph(cast(Session, session), SessionPlace(memory), StubMemory(), stub_plan())
        for session, memory in zip(sessions, memories, strict=True)
    ]
    fleet = ReplicaPool(graphs, 5)

    def double(value: int) -> int:
        desk = fleet.take()
        fleet.plan.shapes(ONE).inputs.views(desk.inputs)["values"][...] = value
        results = fleet.plan.shapes(ONE).results.views(desk.results)
        fleet.run(ONE, desk, results)
        doubled = int(results["doubled"][0, 0])
        fleet.give_back(desk)
        return doubled

    def runs() -> list[int]:
        return [len(session.runs) for session in sessions]

    with ThreadPoolExecutor(5) as pool:
        for memory in memories:
            memory.passes.clear()
        waiting = [pool.submit(double, value) for value in range(4)]
        eventually(lambda: [memory.marks for memory in memories] == [2, 2])
        memories[1].passes.set()
        eventually(lambda: sum(result.done() for result in waiting) == 2)
        later = [pool.submit(double, 4).result() for _ in range(5)]
        assert runs() == [2, 7], "the one that is free has done all"
        memories[0].passes.set()
        assert sorted(result.result() for result in waiting) == [0, 2, 4, 6]
        assert later == [8] * 5
    fleet.close()
    assert [memory.closed for memory in memories] == [1, 1]


class Two:
    """Two devices, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.memories, self.sessions = [StubMemory() for _ in range(2)], [StubSession() for _ in range(2)]
        graphs = [
            DeviceGraph(cast(Session, session), SessionPlace(memory), StubMemory(), stub_plan())
            for session, memory in zip(self.sessions, self.memories, strict=True)
        ]
        self.fleet = ReplicaPool(graphs, 1, lambda: self.now)

    def double(self, value: int) -> int:
        desk = self.fleet.take()
        try:
            self.fleet.plan.shapes(ONE).inputs.views(desk.inputs)["values"][...] = value
            results = self.fleet.plan.shapes(ONE).results.views(desk.results)
            self.fleet.run(ONE, desk, results)
            return int(results["doubled"][0, 0])
        finally:
            self.fleet.give_back(desk)

    @property
    def runs(self) -> list[int]:
        """Of each device so far."""
        return [len(session.runs) for session in self.sessions]


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    made.fleet.close()


def test_a_device_that_fails_is_passed_over_for_a_while(two: Two) -> None:
    two.sessions[0].fails = True
    assert [two.double(value) for value in range(5)] == [0, 2, 4, 6, 8]
    assert two.runs == [1, 5], "the batch that failed was run on the other"
    two.now += REST_SECONDS
    assert [two.double(value) for value in range(5)] == [0, 2, 4, 6, 8]
    assert two.runs == [2, 10]
    two.sessions[0].fails = False
    two.now += REST_SECONDS
    assert [two.double(value) for value in range(5)] == [0, 2, 4, 6, 8]
    assert two.runs == [7, 10], "one that is well again is used again"


def test_what_fails_everywhere_takes_no_device_away(two: Two) -> None:
    with pytest.raises(EngineError, match="poison"):
        two.double(POISON)
    assert two.runs == [1, 1]
    assert [two.double(value) for value in range(3)] == [0, 2, 4]
    two.now += REST_SECONDS
    assert two.double(3) == 6
    assert sum(two.runs) == 2 + 4


def test_a_device_that_cannot_be_closed_keeps_no_other_open() -> None:
    two = Two()
    for memory in two.memories:
        memory.close_fails = EngineError("cudaStreamDestroy: words")
    with pytest.raises(EngineError, match="cudaStreamDestroy"):
        two.fleet.close()
    assert [memory.closed for memory in two.memories] == [1, 1]


def test_desks_are_used_again() -> None:
    graph = DeviceGraph(cast(Session, StubSession()), SessionPlace(StubMemory()), StubMemory(), stub_plan())
    fleet = ReplicaPool([graph], 2)
    first, second = fleet.take(), fleet.take()
    assert not np.shares_memory(first.inputs, second.inputs)
    fleet.give_back(first)
    assert fleet.take() is first
    fleet.close()
