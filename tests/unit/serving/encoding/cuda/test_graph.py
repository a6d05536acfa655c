"""A graph on a device: buckets, captured runs, overlap and failures."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import cast

import numpy as np
import pytest

from triptych_serving.encoding.cuda import graph as graph_module
from triptych_serving.encoding.cuda.buckets import Bucket
from triptych_serving.encoding.cuda.graph import DeviceGraph
from triptych_serving.errors import EngineError, UnavailableError
from triptych_serving.runtime.arrays import Array
from triptych_serving.runtime.session import UNCAPTURED, Session, SessionPlace

from ...calls import PATIENCE_SECONDS, eventually
from ...runtime.memory.strict_memory import StrictMemory
from ...stub_device import POISON, StubMemory, StubSession, stub_plan


class Bench:
    """A graph over stubs."""

    def __init__(self, captures: bool = False) -> None:
        self.session, self.memory, self.transfers = StubSession(), StubMemory(), StubMemory()
        place = SessionPlace(self.memory, captures=captures)
        self.graph = DeviceGraph(cast(Session, self.session), place, self.transfers, stub_plan())

    def run(self, *values: int) -> Array:
        """Run a batch of these values; return them doubled."""
        bucket = self.bucket(len(values))
        staged = np.full(self.graph.plan.shapes(bucket).inputs.nbytes, 77, np.uint8)
        self.graph.plan.shapes(bucket).inputs.views(staged)["values"][: len(values)] = np.array(values)[:, None]
        doubled = np.zeros((len(values), 3), np.uint8)
        self.graph.run(bucket, staged, {"doubled": doubled})
        return doubled[:, 0]

    def bucket(self, rows: int) -> Bucket:
        """Return the smallest captured bucket for so many rows."""
        buckets = self.graph.plan.buckets
        return min((bucket for bucket in buckets.captured if bucket.rows >= rows), key=lambda bucket: bucket.rows)


@contextmanager
def bench(captures: bool = False) -> Iterator[Bench]:
    made = Bench(captures)
    try:
        yield made
    finally:
        made.memory.passes.set()
        made.transfers.passes.set()
        made.graph.close()


def test_results_do_not_depend_on_padding() -> None:
    with bench() as made:
        made.graph.warm_up()
        for count in (1, 5, 20, 2, 5):
            values = list(range(10, 10 + count))
            assert made.run(*values).tolist() == [2 * value for value in values]
        assert made.session.bound == [1, 6, 24, 2], "each bucket is bound once, the smallest one by the warm-up"
        assert {number for _, number, _ in made.session.runs} == {UNCAPTURED}


def test_small_buckets_are_captured_once_in_one_thread() -> None:
    with bench(captures=True) as made:
        made.graph.warm_up()
        rows = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
        warm = [(count, number) for count, number, _ in made.session.runs]
        assert warm == [(32, UNCAPTURED), *((count, index) for index, count in enumerate(reversed(rows), 1))]
        bound = list(made.session.bound)
        made.session.runs.clear()
        for count in rows:
            assert made.run(*[7] * count).tolist() == [14] * count
        assert [(count, number) for count, number, _ in made.session.runs] == sorted(warm[1:])
        assert made.session.bound == bound
        [thread] = {thread for _, _, thread in made.session.runs}
        assert thread is not threading.current_thread()


def test_the_number_of_bindings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "BINDINGS", 2)
    with bench() as made:
        for count in (1, 2, 1, 3, 1, 2):
            made.run(*[5] * count)
        assert made.session.bound == [1, 2, 3, 2], "the bucket used last is kept"


def test_a_batch_is_enqueued_behind_the_one_that_runs() -> None:
    with bench() as made, ThreadPoolExecutor(2) as pool:
        made.memory.passes.clear()
        results = [pool.submit(made.run, value) for value in (3, 4)]
        eventually(lambda: made.memory.marks == 2)
        assert len(made.session.runs) == 2
        assert not any(result.done() for result in results)
        made.memory.passes.set()
        assert [result.result().tolist() for result in results] == [[6], [8]]


def test_large_inputs_are_uploaded_while_another_batch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "LANDING_BYTES", 1)
    with bench() as made, ThreadPoolExecutor(3) as pool:
        made.memory.passes.clear()
        results = [pool.submit(made.run, value, value) for value in (3, 4, 5)]
        eventually(lambda: made.memory.marks == 2)
        assert len(made.transfers.uploads) == 2, "the third waits for a landing block"
        made.memory.passes.set()
        assert [result.result().tolist() for result in results] == [[6, 6], [8, 8], [10, 10]]
        assert made.memory.copies == len(made.transfers.uploads) == 3
        assert not made.memory.uploads


def test_a_batch_waits_for_its_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two streams are not ordered."""
    monkeypatch.setattr(graph_module, "LANDING_BYTES", 1)
    with bench() as made, ThreadPoolExecutor(1) as pool:
        made.transfers.passes.clear()
        result = pool.submit(made.run, 3)
        eventually(lambda: made.transfers.marks == 1)
        with pytest.raises(TimeoutError):
            result.result(0.1)
        assert (made.memory.copies, made.session.runs) == (0, [])
        made.transfers.passes.set()
        assert result.result().tolist() == [6]


@pytest.mark.parametrize("landing", [1, graph_module.LANDING_BYTES])
def test_many_threads_over_strict_memory(landing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "LANDING_BYTES", landing)
    place = SessionPlace(StrictMemory())
    graph = DeviceGraph(cast(Session, StubSession()), place, StrictMemory(runs=False), stub_plan())
    bucket = next(bucket for bucket in graph.plan.buckets.captured if bucket.rows == 4)
    shapes = graph.plan.shapes(bucket)

    def work(number: int) -> bool:
        staged, results = graph.staging(shapes.inputs.nbytes), graph.staging(shapes.results.nbytes)
        good = True
        for value in range(number, number + 30):
            shapes.inputs.views(staged)["values"][...] = value
            doubled = shapes.results.views(results)
            graph.run(bucket, staged, doubled)
            good = good and bool((doubled["doubled"] == 2 * value).all())
        return good

    with closing(graph), ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, (0, 30, 67, 97)))  # never the poison


def test_a_failure_leaves_the_graph_as_it_was() -> None:
    with bench() as made:
        made.run(1)
        waits = made.memory.waits
        with pytest.raises(EngineError, match="the runtime failed: poison"):
            made.run(1, POISON)
        assert made.memory.waits == waits + 1, "no copy is in progress when the batch's memory is reused"
        assert made.run(2, 3).tolist() == [4, 6]


def test_all_else_is_freed_if_a_stream_cannot_be_closed() -> None:
    made = Bench()
    made.run(1)
    [(_, _, driver)] = made.session.runs
    made.transfers.close_fails = EngineError("cudaStreamDestroy: words")
    with pytest.raises(EngineError, match="cudaStreamDestroy"):
        made.graph.close()
    assert made.memory.closed == 1
    driver.join(PATIENCE_SECONDS)
    assert not driver.is_alive()


def test_a_closed_graph_rejects_batches() -> None:
    with bench() as made:
        made.run(1)
        made.graph.close()
        made.graph.close()
        assert (made.memory.closed, made.transfers.closed) == (1, 1)
        with pytest.raises(UnavailableError, match="the model is shutting down"):
            made.run(1)
