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


class TwoDevices:
    """Two devices, and a clock."""

    def __init__(self, buffers: int = 1) -> None:
        self.now = 100.0
        self.memories, self.sessions = [StubMemory() for _ in range(2)], [StubSession() for _ in range(2)]
        graphs = [
            DeviceGraph(cast(Session, session), SessionPlace(memory), StubMemory(), stub_plan())
            for session, memory in zip(self.sessions, self.memories, strict=True)
        ]
        self.pool = ReplicaPool(graphs, buffers, lambda: self.now)

    def double(self, value: int) -> int:
        buffer = self.pool.take()
        try:
            arrays = self.pool.arrays(ONE, buffer)
            arrays.inputs["values"][...] = value
            self.pool.run(ONE, buffer, arrays.results)
            return int(arrays.results["doubled"][0, 0])
        finally:
            self.pool.give_back(buffer)

    @property
    def runs(self) -> list[int]:
        """Number of runs of each device."""
        return [len(session.runs) for session in self.sessions]


@pytest.fixture
def two() -> Iterator[TwoDevices]:
    made = TwoDevices()
    yield made
    made.pool.close()


def test_a_batch_goes_to_a_free_device() -> None:
    two = TwoDevices(buffers=5)
    with ThreadPoolExecutor(5) as threads:
        for memory in two.memories:
            memory.passes.clear()
        waiting = [threads.submit(two.double, value) for value in range(4)]
        eventually(lambda: [memory.marks for memory in two.memories] == [2, 2])
        two.memories[1].passes.set()
        eventually(lambda: sum(result.done() for result in waiting) == 2)
        later = [threads.submit(two.double, 4).result() for _ in range(5)]
        assert two.runs == [2, 7], "the free device has run all later batches"
        two.memories[0].passes.set()
        assert sorted(result.result() for result in waiting) == [0, 2, 4, 6]
        assert later == [8] * 5
    two.pool.close()
    assert [memory.closed for memory in two.memories] == [1, 1]


def test_a_device_that_fails_is_avoided_for_a_while(two: TwoDevices) -> None:
    two.sessions[0].fails = True
    for runs in ([1, 5], [2, 10], [7, 10]):
        assert [two.double(value) for value in range(5)] == [0, 2, 4, 6, 8]
        assert two.runs == runs, "a batch that failed ran on the other device, and a device that works again is used again"
        two.now += REST_SECONDS
        two.sessions[0].fails = runs == [1, 5]


def test_a_batch_that_fails_everywhere_disables_no_device(two: TwoDevices) -> None:
    with pytest.raises(EngineError, match="poison"):
        two.double(POISON)
    assert two.runs == [1, 1]
    assert [two.double(value) for value in range(3)] == [0, 2, 4]
    two.now += REST_SECONDS
    assert two.double(3) == 6
    assert sum(two.runs) == 2 + 4


def test_a_device_that_cannot_be_closed_keeps_no_other_open() -> None:
    two = TwoDevices()
    for memory in two.memories:
        memory.close_fails = EngineError("cudaStreamDestroy: words")
    with pytest.raises(EngineError, match="cudaStreamDestroy"):
        two.pool.close()
    assert [memory.closed for memory in two.memories] == [1, 1]


def test_staging_buffers_are_reused() -> None:
    two = TwoDevices(buffers=2)
    first, second = two.pool.take(), two.pool.take()
    assert not np.shares_memory(first.inputs, second.inputs)
    two.pool.give_back(first)
    assert two.pool.take() is first
    two.pool.close()
