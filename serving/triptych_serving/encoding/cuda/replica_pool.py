"""The same graph on several devices: a batch goes to the one with the fewest on their way.

A device that fails is done with each batch at once, so that it would be given all of them: it is passed over for a while.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock

from triptych_serving.encoding.cuda.buckets import Bucket
from triptych_serving.encoding.cuda.graph import Bytes, DeviceGraph
from triptych_serving.encoding.cuda.shapes import Shapes
from triptych_serving.errors import DeviceError, EngineError
from triptych_serving.runtime.arrays import Array

logger = logging.getLogger(__name__)

REST_SECONDS = 1.0  # after a failure, while others have not failed
VIEWS = 256  # buckets whose arrays a desk remembers


@dataclass(frozen=True)
class StagedArrays:
    """A desk's memory as the arrays of a bucket."""

    inputs: Mapping[str, Array]
    results: Mapping[str, Array]


class StagingBuffer:
    """Page-locked memory of one batch, from when it is prepared until its results are written."""

    def __init__(self, inputs: Bytes, results: Bytes) -> None:
        self.inputs = inputs
        self.results = results
        self._laid: dict[Bucket, StagedArrays] = {}

    def laid(self, bucket: Bucket, shapes: Shapes) -> StagedArrays:
        """For a batch of this shape."""
        laid = self._laid.get(bucket)
        if laid is None:
            if len(self._laid) == VIEWS:
                self._laid.clear()
            laid = self._laid[bucket] = StagedArrays(shapes.inputs.views(self.inputs), shapes.results.views(self.results))
        return laid


class ReplicaPool:
    """Thread-safe but for `warm_up`, which comes first, and `close`, which comes last.

    Args:
        graphs: at least one, each on a device of its own; they end with the fleet.
        desks: batches that may be prepared, on their way or being written at once.
        clock: monotonic seconds.
    """

    def __init__(self, graphs: Sequence[DeviceGraph], desks: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._graphs = tuple(graphs)
        self.plan = self._graphs[0].plan  # the same on all
        self._lock = Lock()
        self._load = dict.fromkeys(self._graphs, 0)  # batches on their way
        self._rests: dict[DeviceGraph, float] = {}  # until when
        self._clock = clock
        self._desks: SimpleQueue[StagingBuffer] = SimpleQueue()
        first, (inputs, _), results = self._graphs[0], self.plan.block_bytes, self.plan.result_bytes
        for _ in range(desks):
            self._desks.put(StagingBuffer(first.staging(inputs), first.staging(results)))

    def warm_up(self) -> None:
        """See DeviceGraph.

        Raises:
            EngineError: a device failed, or has no room.
        """
        for graph in self._graphs:
            graph.warm_up()

    def take(self) -> StagingBuffer:
        """Waits until there is one."""
        return self._desks.get()

    def laid(self, bucket: Bucket, desk: StagingBuffer) -> StagedArrays:
        """The desk's arrays for a batch of this shape."""
        return desk.laid(bucket, self.plan.shapes(bucket))

    def give_back(self, desk: StagingBuffer) -> None:
        """Nobody reads nor writes it any more."""
        self._desks.put(desk)

    def run(self, bucket: Bucket, desk: StagingBuffer, wanted: Mapping[str, Array]) -> None:
        """Run the batch that lies in the desk's inputs, once more elsewhere if a device fails; see DeviceGraph.

        Raises:
            EngineError: the device failed, and so did another, if there is one.
            UnavailableError: the fleet is closed.
        """
        graph = self._begin(self._graphs)
        try:
            self._run(graph, bucket, desk, wanted)
        except (EngineError, DeviceError) as error:
            others = [other for other in self._graphs if other is not graph]
            if not others:
                raise
            logger.error("a batch failed on %s and is run on another device: %s", graph.device, error)
            self._run(self._begin(others), bucket, desk, wanted)

    def _begin(self, graphs: Sequence[DeviceGraph]) -> DeviceGraph:
        """Which of these takes one more."""
        with self._lock:
            now = self._clock()
            graph = min(graphs, key=lambda each: (self._rests.get(each, now) > now, self._load[each]))
            self._load[graph] += 1
            return graph

    def _run(self, graph: DeviceGraph, bucket: Bucket, desk: StagingBuffer, wanted: Mapping[str, Array]) -> None:
        try:
            graph.run(bucket, desk.inputs, wanted)
        except (EngineError, DeviceError):
            self._rests[graph] = self._clock() + REST_SECONDS
            raise
        finally:
            with self._lock:
                self._load[graph] -= 1

    def close(self) -> None:
        """Wait for what runs, and free everything, whatever fails. Idempotent."""
        with ExitStack() as all_of_them:
            for graph in self._graphs:
                all_of_them.callback(graph.close)
