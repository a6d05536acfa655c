"""Replicas of a graph on several devices: a batch goes to the one with the fewest in progress.

A device that fails finishes each batch at once, and would be given all of them. So it is avoided for a while.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock

from triptych_serving.encoding.cuda.buckets import Bucket, Shapes
from triptych_serving.encoding.cuda.graph import Bytes, DeviceGraph
from triptych_serving.encoding.engine import Runner
from triptych_serving.errors import DeviceError, EngineError
from triptych_serving.runtime.arrays import Array

logger = logging.getLogger(__name__)

REST_SECONDS = 1.0  # for which a device is avoided after a failure, while another one works
VIEWS = 256  # buckets whose arrays a staging buffer caches


@dataclass(frozen=True)
class StagedArrays:
    """A staging buffer's memory as the arrays of a bucket."""

    inputs: Mapping[str, Array]
    results: Mapping[str, Array]


class StagingBuffer:
    """Page-locked memory of one batch, used from its preparation until its results are copied."""

    def __init__(self, inputs: Bytes, results: Bytes) -> None:
        self.inputs = inputs
        self.results = results
        self._views: dict[Bucket, StagedArrays] = {}

    def arrays(self, bucket: Bucket, shapes: Shapes) -> StagedArrays:
        """Return the arrays of a bucket."""
        arrays = self._views.get(bucket)
        if arrays is None:
            if len(self._views) == VIEWS:
                self._views.clear()
            arrays = self._views[bucket] = StagedArrays(shapes.inputs.views(self.inputs), shapes.results.views(self.results))
        return arrays


class ReplicaPool:
    """Thread-safe, except `warm_up`, which must come first, and `close`, which must come last.

    Args:
        graphs: at least one, each on a device of its own; closed with the pool.
        buffers: number of batches that may be in preparation, in progress or being finished at once.
        clock: monotonic seconds.
    """

    def __init__(self, graphs: Sequence[DeviceGraph], buffers: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._graphs = tuple(graphs)
        self.plan = self._graphs[0].plan  # the same on all
        self._lock = Lock()
        self._load = dict.fromkeys(self._graphs, 0)  # batches in progress
        self._avoided: dict[DeviceGraph, float] = {}  # until these clock seconds
        self._clock = clock
        self._buffers: SimpleQueue[StagingBuffer] = SimpleQueue()
        first, (inputs, _), results = self._graphs[0], self.plan.block_bytes, self.plan.result_bytes
        for _ in range(buffers):
            self._buffers.put(StagingBuffer(first.staging(inputs), first.staging(results)))

    def warm_up(self) -> None:
        """Warm up all replicas, as DeviceGraph does. Raises EngineError: a device failed, or has no room."""
        for graph in self._graphs:
            graph.warm_up()

    def take(self) -> StagingBuffer:
        """Take a free buffer; wait for one if need be."""
        return self._buffers.get()

    def arrays(self, bucket: Bucket, buffer: StagingBuffer) -> StagedArrays:
        """Return the buffer's arrays for a bucket."""
        return buffer.arrays(bucket, self.plan.shapes(bucket))

    def give_back(self, buffer: StagingBuffer) -> None:
        """Return a buffer that is not used any more."""
        self._buffers.put(buffer)

    def run(self, bucket: Bucket, buffer: StagingBuffer, requested: Mapping[str, Array]) -> None:
        """Run the batch in the buffer's inputs, and on another device if the first one fails; see DeviceGraph.run.

        Raises:
            EngineError: the device failed, and so did another, if there is one.
            UnavailableError: the pool is closed.
        """
        graph = self._begin(self._graphs)
        try:
            self._run(graph, bucket, buffer, requested)
        except (EngineError, DeviceError) as error:
            others = [other for other in self._graphs if other is not graph]
            if not others:
                raise
            logger.error("device failed: %s, retrying the batch on another device: %s", graph.device, error)
            self._run(self._begin(others), bucket, buffer, requested)

    def _begin(self, graphs: Sequence[DeviceGraph]) -> DeviceGraph:
        """Choose the replica for a batch."""
        with self._lock:
            now = self._clock()
            graph = min(graphs, key=lambda each: (self._avoided.get(each, now) > now, self._load[each]))
            self._load[graph] += 1
            return graph

    def _run(self, graph: DeviceGraph, bucket: Bucket, buffer: StagingBuffer, requested: Mapping[str, Array]) -> None:
        try:
            graph.run(bucket, buffer.inputs, requested)
        except (EngineError, DeviceError):
            self._avoided[graph] = self._clock() + REST_SECONDS
            raise
        finally:
            with self._lock:
                self._load[graph] -= 1

    def close(self) -> None:
        """Wait for batches in progress and close all replicas, even if one fails to close. Idempotent."""
        with ExitStack() as closing:
            for graph in self._graphs:
                closing.callback(graph.close)


@dataclass(eq=False, slots=True)
class StagedBatch:
    """A batch in a staging buffer, padded to a bucket."""

    bucket: Bucket
    buffer: StagingBuffer


class DeviceRunner(Runner):
    """Base of the runners over a replica pool; their batches are in page-locked memory."""

    def __init__(self, pool: ReplicaPool) -> None:
        self._pool = pool

    def warm_up(self) -> None:
        self._pool.warm_up()

    def release(self, batch: StagedBatch) -> None:
        self._pool.give_back(batch.buffer)
