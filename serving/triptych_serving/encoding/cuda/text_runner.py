"""Batches of texts through a BERT graph that is bound to device memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych_serving.encoding.cuda.buckets import Bucket, GraphInterface, Shapes, TextBuckets, cached_shapes
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.encoding.cuda.replica_pool import DeviceRunner, ReplicaPool, StagedBatch
from triptych_serving.encoding.text_runner import LOG_PROBABILITIES, PER_MASK, SCORES, TextRow, copy_results, requested_outputs
from triptych_serving.runtime.arrays import Array, ArrayLayout
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item


@dataclass(eq=False, slots=True)
class DeviceTextBatch(StagedBatch):
    """Rows in a staging buffer."""

    rows: int  # without padding
    outputs: tuple[str, ...]
    places: NDArray[np.int64]  # positions of all masks in the bucket's flattened [rows * length]


class DeviceTextRunner(DeviceRunner):
    """A TextRunner for devices. Batches are padded to buckets; padding never reaches a result.

    Args:
        pool: of a graph with a plan by `text_plan`.
        pad: id of the padding token.
    """

    def __init__(self, pool: ReplicaPool, pad: int) -> None:
        buckets = pool.plan.buckets
        assert isinstance(buckets, TextBuckets), "a plan for texts"
        super().__init__(pool)
        self._buckets = buckets
        self._pad = pad

    def prepare(self, items: Sequence[Item]) -> DeviceTextBatch:
        rows: list[TextRow] = [item.payload for item in items]
        masks = sum(len(row.places) for row in rows)
        k = max((row.k for row in rows if SCORES in row.outputs), default=1)
        bucket = self._buckets.fit(len(rows), max(len(row.ids) for row in rows), masks, k)
        places = np.concatenate([row.places + index * bucket.length for index, row in enumerate(rows)])
        batch = DeviceTextBatch(bucket, self._pool.take(), len(rows), requested_outputs(rows), places)
        try:
            self._fill(batch, rows)
        except BaseException:
            self.release(batch)
            raise
        return batch

    def run(self, batch: DeviceTextBatch) -> dict[str, Array]:
        most = batch.bucket.masks
        if len(batch.places) <= most:
            return self._run(batch, batch.places)
        parts = [
            {name: output.copy() for name, output in self._run(batch, batch.places[start : start + most]).items()}
            for start in range(0, len(batch.places), most)
        ]
        return {
            name: np.concatenate([part[name] for part in parts]) if name in PER_MASK else parts[0][name] for name in parts[0]
        }

    def finish(self, items: Sequence[Item], outputs: dict[str, Array]) -> None:
        copy_results(items, outputs)

    def _fill(self, batch: DeviceTextBatch, rows: Sequence[TextRow]) -> None:
        inputs = self._pool.arrays(batch.bucket, batch.buffer).inputs
        lengths = np.array([len(row.ids) for row in rows], np.int32)
        inside = np.arange(batch.bucket.length) < lengths[:, None]
        inputs["ids"][...] = self._pad
        inputs["ids"][: len(rows)][inside] = np.concatenate([row.ids for row in rows])
        inputs["segments"][...] = 0
        inputs["segments"][: len(rows)][inside] = np.concatenate([row.segments for row in rows])
        inputs["lengths"][...] = 1  # an empty row would have no mean
        inputs["lengths"][: len(rows)] = lengths

    def _run(self, batch: DeviceTextBatch, places: NDArray[np.int64]) -> dict[str, Array]:
        arrays = self._pool.arrays(batch.bucket, batch.buffer)
        if batch.bucket.masks:
            padded = arrays.inputs["places"]
            padded[: len(places)], padded[len(places) :] = places, 0
        outputs = {name: arrays.results[name] if name in arrays.results else self._empty(batch, name) for name in batch.outputs}
        wanted = {name: output[: len(places) if name in PER_MASK else batch.rows] for name, output in outputs.items()}
        self._pool.run(batch.bucket, batch.buffer, wanted)
        return wanted

    def _empty(self, batch: DeviceTextBatch, name: str) -> Array:
        part = self._pool.plan.shapes(batch.bucket).outputs.parts[name]
        return np.empty(part.shape, part.dtype)


def text_plan(limits: BatchLimits, max_tokens: int, vocabulary: int, session: Session) -> GraphPlan:
    """Plan the buckets and shapes of a graph whose rows have at most `max_tokens`."""
    interface = GraphInterface(session)
    buckets = TextBuckets(limits, max_tokens, vocabulary if "places" in interface.inputs else 0)
    return GraphPlan(buckets, cached_shapes(_shapes, interface), _write_idle)


def _shapes(interface: GraphInterface, bucket: Bucket) -> Shapes:
    inputs = {name: interface.part(name, bucket.rows, bucket.length) for name in ("ids", "segments", "lengths")}
    scalars: dict[str, Array] = {}
    if bucket.masks:
        inputs["places"] = interface.part("places", bucket.masks)
        scalars["k"] = np.array([bucket.k], np.int64)
    outputs = {
        name: interface.part(name, *((bucket.masks, bucket.k) if name in PER_MASK else (bucket.rows, bucket.length)))
        for name in interface.outputs
    }
    results = {name: part for name, part in outputs.items() if name != LOG_PROBABILITIES}
    return Shapes(ArrayLayout(inputs), ArrayLayout(outputs), ArrayLayout(results), scalars)


def _write_idle(inputs: Mapping[str, Array], bucket: Bucket) -> None:
    inputs["lengths"][...] = bucket.length
