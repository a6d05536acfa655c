"""One graph on one device: bound to static memory once for each bucket, captured where batches are small.

    staging -> (landing) -> inputs -> run -> outputs -> staging

Inputs and outputs are one block of memory each; buckets are views of it. One driver thread enqueues all work, because captured
runs belong to the thread that captured them, and two threads must not run a session at once. It does not wait for results, so
that a batch can wait on the device behind the one that runs. Large inputs are uploaded to a landing block meanwhile, on a
stream of their own, and copied on the device when their turn comes.

The number of bindings is bounded: every captured bucket, and the BINDINGS others that were used last.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from triptych_serving.encoding.cuda.buckets import Bucket, Buckets, MakeShapes
from triptych_serving.encoding.options import OVERLAP
from triptych_serving.errors import ServingError, UnavailableError
from triptych_serving.runtime.arrays import Array
from triptych_serving.runtime.cuda_graph_lock import CUDA_GRAPH_LOCK
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory import CacheRegion, DeviceArray, Memory, StreamMark
from triptych_serving.runtime.session import UNCAPTURED, Binding, Session, SessionPlace

BINDINGS = 256  # of buckets that are not captured; making one waits for the device
LANDING_BYTES = 1 << 20  # smaller inputs are uploaded directly: a second copy takes as long

Bytes = NDArray[np.uint8]
WHOLE = slice(0, 1)


WriteIdle = Callable[[Mapping[str, Array], Bucket], None]  # writes valid inputs for a warm-up run over zeros


@dataclass(frozen=True)
class GraphPlan:
    """Buckets and shapes of a model's graph, from its runner."""

    buckets: Buckets
    shapes: MakeShapes
    idle: WriteIdle

    @property
    def block_bytes(self) -> tuple[int, int]:
        """Maximum bytes of all inputs and of all outputs of a bucket."""
        shapes = [self.shapes(bucket) for bucket in (*self.buckets.largest, *self.buckets.captured)]
        return max(each.inputs.nbytes for each in shapes), max(each.outputs.nbytes for each in shapes)

    @property
    def result_bytes(self) -> int:
        """Maximum bytes of the results of a bucket."""
        return max(self.shapes(bucket).results.nbytes for bucket in (*self.buckets.largest, *self.buckets.captured))

    @property
    def landing_bytes(self) -> int:
        """Bytes of one landing block; 0: all inputs are small, there is none."""
        inputs, _ = self.block_bytes
        return inputs if inputs >= LANDING_BYTES else 0


@dataclass(frozen=True)
class BoundBucket:
    """The graph bound to a bucket of the device's memory."""

    binding: Binding
    outputs: Mapping[str, DeviceArray]
    number: int = UNCAPTURED  # of the captured run


class DeviceGraph:
    """Thread-safe, except `warm_up`, which must come first, and `close`, which must come last.

    Args:
        session: the graph; used and referenced only here, so that it is freed by `close`.
        transfers: another stream of the same device.
    """

    def __init__(self, session: Session, place: SessionPlace, transfers: Memory, plan: GraphPlan) -> None:
        memory = place.memory
        self._session: Session | None = session
        self._memory, self._transfers = memory, transfers
        self._captures = place.captures
        self.plan = plan
        inputs, outputs = plan.block_bytes
        self._inputs, self._outputs = memory.zeros((inputs,), np.uint8), memory.zeros((outputs,), np.uint8)
        self._landing: SimpleQueue[DeviceArray] = SimpleQueue()
        for _ in range(OVERLAP if plan.landing_bytes else 0):
            self._landing.put(transfers.zeros((plan.landing_bytes,), np.uint8))
        self._landing_lock = Lock()  # a Memory is used by one thread at a time
        self._captured: dict[Bucket, BoundBucket] = {}
        self._bindings: OrderedDict[Bucket, BoundBucket] = OrderedDict()
        self._driver = ThreadPoolExecutor(1, thread_name_prefix=f"triptych-{memory.device}")

    @property
    def device(self) -> Device:
        """The device of the graph."""
        return self._memory.device

    def staging(self, size: int) -> Bytes:
        """Allocate page-locked memory of so many bytes."""
        return self._memory.staging((size,), np.uint8)

    def warm_up(self) -> None:
        """Run and capture the buckets, so that no memory is allocated later.

        Raises:
            EngineError: the device failed, or has no room.
        """
        self._driver.submit(self._warm_up).result()

    def run(self, bucket: Bucket, staged: Bytes, requested: Mapping[str, Array]) -> None:
        """Run a batch; return when its results are on the host.

        Args:
            staged: page-locked memory with the layout of the bucket's inputs; must not change until then.
            requested: host arrays for the first rows of outputs, by name.

        Raises:
            EngineError: the device failed.
            UnavailableError: the graph is closed.
        """
        staged = staged[: self.plan.shapes(bucket).inputs.nbytes]
        with self._landed(staged) as source:
            try:
                enqueued = self._driver.submit(self._enqueue, bucket, source, requested)
            except RuntimeError as error:  # the driver has ended
                raise UnavailableError("the model is shutting down") from error
            enqueued.result().wait()

    def close(self) -> None:
        """Wait for batches in progress and free all memory. Idempotent."""
        if self._session is not None:
            try:
                self._driver.submit(self._close).result()
            finally:
                self._driver.shutdown()

    @contextmanager
    def _landed(self, staged: Bytes) -> Iterator[Bytes | DeviceArray]:
        """Upload large inputs to a landing block while another batch runs; yield the source to copy from."""
        if staged.nbytes < LANDING_BYTES:
            yield staged
            return
        block = self._landing.get()
        try:
            landing = block.first(staged.nbytes)
            with self._landing_lock:
                self._transfers.upload(staged, landing)
                mark = self._transfers.mark()
            mark.wait()
            yield landing
        finally:
            self._landing.put(block)

    def _enqueue(self, bucket: Bucket, source: Bytes | DeviceArray, requested: Mapping[str, Array]) -> StreamMark:
        """Enqueue a batch, in the driver thread."""
        bound = self._bound(bucket)
        try:
            self._copy_inputs(source)
            bound.binding.run(bound.number)
            for name, host in requested.items():
                self._memory.download(bound.outputs[name].first(len(host)), host)
            return self._memory.mark()
        except BaseException:
            with suppress(ServingError):  # the batch's memory is reused: no copy may be in progress
                self._memory.wait()
            raise

    def _copy_inputs(self, source: Bytes | DeviceArray) -> None:
        target = self._inputs.first(source.nbytes)
        if isinstance(source, DeviceArray):
            self._memory.copy(_box(source), _box(target))
        else:
            self._memory.upload(source, target)

    def _bound(self, bucket: Bucket) -> BoundBucket:
        """Return a captured binding, or one of those that were used last, or a new one."""
        if (captured := self._captured.get(bucket)) is not None:
            return captured
        bound = self._bindings.pop(bucket, None) or self._bind(bucket)
        self._bindings[bucket] = bound  # as the latest
        if len(self._bindings) > BINDINGS:
            self._bindings.popitem(last=False)
        return bound

    def _bind(self, bucket: Bucket, number: int = UNCAPTURED) -> BoundBucket:
        assert self._session is not None, "no batch comes after close"
        shapes = self.plan.shapes(bucket)
        inputs, outputs = shapes.inputs.arrays(self._inputs), shapes.outputs.arrays(self._outputs)
        return BoundBucket(self._session.bind({**inputs, **shapes.scalars}, outputs), outputs, number)

    def _warm_up(self) -> None:
        buckets = self.plan.buckets
        if not self._captures:
            self._try(buckets.captured[-1] if buckets.captured else buckets.largest[-1])
            return
        for bucket in buckets.largest:  # first: smaller ones reuse their intermediate memory
            self._try(bucket)
        for number, bucket in enumerate(buckets.captured, 1):
            bound = self._bind(bucket, number)
            self._feed_idle(bucket)
            with CUDA_GRAPH_LOCK.capturing():
                bound.binding.run(number)
                self._memory.wait()
            self._captured[bucket] = bound

    def _try(self, bucket: Bucket) -> None:
        """Run a bucket once."""
        bound = self._bound(bucket)
        self._feed_idle(bucket)
        bound.binding.run(bound.number)
        self._memory.wait()

    def _feed_idle(self, bucket: Bucket) -> None:
        layout = self.plan.shapes(bucket).inputs
        block = np.zeros(layout.nbytes, np.uint8)
        self.plan.idle(layout.views(block), bucket)
        self._memory.upload(block, self._inputs.first(layout.nbytes))

    def _close(self) -> None:
        """Free all memory, in the driver thread, which owns the captured runs."""
        with CUDA_GRAPH_LOCK.running(), ExitStack() as last:
            last.callback(self._memory.close)
            last.callback(self._transfers.close)
            self._captured.clear()
            self._bindings.clear()
            self._session = None


def _box(block: DeviceArray) -> CacheRegion:
    """Return a block of bytes as the argument of a copy on the device."""
    return CacheRegion(replace(block, shape=(1, 1, 1, 1, *block.shape)), WHOLE, WHOLE)
