"""A graph and a device without a runtime: rows are doubled, and tests decide when the device is done."""

import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from triptych_serving.encoding.cuda.buckets import Bucket, ImageBuckets, Shapes
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.errors import EngineError
from triptych_serving.runtime.arrays import Array, ArrayLayout, ArraySpec
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, HostMemory, host_view
from triptych_serving.scheduling.batch_scheduler import BatchLimits

from .calls import PATIENCE_SECONDS

POISON = 66  # input that makes a run fail
LIMITS = BatchLimits(batch_tokens=32, batch_rows=32)


class StubBinding:
    """The graph bound to one bucket."""

    def __init__(self, session: "StubSession", inputs: Mapping[str, DeviceArray], outputs: Mapping[str, DeviceArray]) -> None:
        self._session = session
        self._inputs, self._outputs = inputs, outputs

    def run(self, graph: int | None = None) -> None:
        values = host_view(self._inputs["values"])
        self._session.runs.append((len(values), graph, threading.current_thread()))
        if self._session.fails or POISON in values:
            raise EngineError("the runtime failed: poison")
        host_view(self._outputs["doubled"])[...] = 2 * values


class StubSession:
    """A graph `values` uint8 [rows, 3] -> `doubled` uint8 [rows, 3]."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int | None, threading.Thread]] = []  # rows, number of the captured run, thread
        self.bound: list[int] = []  # rows
        self.fails = False  # at every run

    def bind(self, inputs: Mapping[str, DeviceArray], outputs: Mapping[str, DeviceArray]) -> StubBinding:
        self.bound.append(len(host_view(inputs["values"])))
        return StubBinding(self, inputs, outputs)


class StubMark:
    """A mark that is passed while its memory's `passes` is set."""

    def __init__(self, memory: "StubMemory") -> None:
        self._memory = memory

    def wait(self) -> None:
        assert self._memory.passes.wait(PATIENCE_SECONDS)


class StubMemory(HostMemory):
    """A memory whose marks are passed while `passes` is set; counts its work."""

    def __init__(self) -> None:
        self.passes = threading.Event()
        self.passes.set()
        self.uploads: list[int] = []  # bytes
        self.copies = 0
        self.waits = 0
        self.marks = 0
        self.closed = 0
        self.close_fails: Exception | None = None

    def upload(self, host: NDArray[np.uint8], target: DeviceArray) -> None:
        self.uploads.append(host.nbytes)
        super().upload(host, target)

    def copy(self, source: CacheRegion, target: CacheRegion) -> None:
        self.copies += 1
        super().copy(source, target)

    def mark(self) -> StubMark:  # type: ignore[override]
        self.marks += 1
        return StubMark(self)

    def wait(self) -> None:
        self.waits += 1

    def close(self) -> None:
        self.closed += 1
        if self.close_fails:
            raise self.close_fails


def stub_shapes(bucket: Bucket) -> Shapes:
    """Return the shapes of rows of three numbers."""
    inputs, outputs = (ArrayLayout({name: ArraySpec.of((bucket.rows, 3), np.uint8)}) for name in ("values", "doubled"))
    return Shapes(inputs, outputs, outputs, {})


def write_nines(inputs: Mapping[str, Array], bucket: Bucket) -> None:
    """Write the inputs of a warm-up run."""
    assert inputs["values"].shape == (bucket.rows, 3)
    inputs["values"][...] = 9


def stub_plan(limits: BatchLimits = LIMITS) -> GraphPlan:
    """Return a plan with buckets of 1, 2, 3, 4, 6, ... rows."""
    return GraphPlan(ImageBuckets(limits, 1, 1), stub_shapes, write_nines)
