"""Batches of texts through a graph of the BERT family that is bound to memory of devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from triptych_serving.encoding.cuda.buckets import Bucket, TextBuckets
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.encoding.cuda.replica_pool import ReplicaPool, StagingBuffer
from triptych_serving.encoding.cuda.shapes import Declared, Shapes, remembered
from triptych_serving.encoding.text_runner import LOG_PROBABILITIES, PER_MASK, SCORES, TextRow, hand_out, wanted_outputs
from triptych_serving.runtime.arrays import Array, ArrayLayout
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item


@dataclass(eq=False, slots=True)
class DeviceTextBatch:
    """Rows that lie in a desk, padded to a bucket."""

    bucket: Bucket
    desk: StagingBuffer
    rows: int  # without those that fill the bucket
    outputs: tuple[str, ...]
    places: NDArray[np.int64]  # of all masks, in the bucket's flattened [rows * length]


class DeviceTextRunner:
    """As TextRunner, but batches are padded to buckets. What pads them never reaches a result.

    Args:
        fleet: the graph; its plan is one of `text_plan`.
        pad: id of the token that fills rows up.
    """

    def __init__(self, fleet: ReplicaPool, pad: int) -> None:
        buckets = fleet.plan.buckets
        assert isinstance(buckets, TextBuckets), "a plan for texts"
        self._fleet = fleet
        self._buckets = buckets
        self._pad = pad

    def warm_up(self) -> None:
        """Capture what is captured."""
        self._fleet.warm_up()

    def prepare(self, items: Sequence[Item]) -> DeviceTextBatch:
        """Pad, into page-locked memory."""
        rows: list[TextRow] = [item.payload for item in items]
        masks = sum(len(row.places) for row in rows)
        k = max((row.k for row in rows if SCORES in row.outputs), default=1)
        bucket = self._buckets.fit(len(rows), max(len(row.ids) for row in rows), masks, k)
        places = np.concatenate([row.places + index * bucket.length for index, row in enumerate(rows)])
        batch = DeviceTextBatch(bucket, self._fleet.take(), len(rows), wanted_outputs(rows), places)
        try:
            self._fill(batch, rows)
        except BaseException:
            self.release(batch)
            raise
        return batch

    def run(self, batch: DeviceTextBatch) -> dict[str, Array]:
        """The batch's outputs by name, some of them in its desk."""
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
        """Give each row its own copies."""
        hand_out(items, outputs)

    def release(self, batch: DeviceTextBatch) -> None:
        """Its desk is free."""
        self._fleet.give_back(batch.desk)

    def _fill(self, batch: DeviceTextBatch, rows: Sequence[TextRow]) -> None:
        inputs = self._fleet.laid(batch.bucket, batch.desk).inputs
        lengths = np.array([len(row.ids) for row in rows], np.int32)
        inside = np.arange(batch.bucket.length) < lengths[:, None]
        inputs["ids"][...] = self._pad
        inputs["ids"][: len(rows)][inside] = np.concatenate([row.ids for row in rows])
        inputs["segments"][...] = 0
        inputs["segments"][: len(rows)][inside] = np.concatenate([row.segments for row in rows])
        inputs["lengths"][...] = 1  # rows of nothing would have no mean
        inputs["lengths"][: len(rows)] = lengths

    def _run(self, batch: DeviceTextBatch, places: NDArray[np.int64]) -> dict[str, Array]:
        laid = self._fleet.laid(batch.bucket, batch.desk)
        if batch.bucket.masks:
            padded = laid.inputs["places"]
            padded[: len(places)], padded[len(places) :] = places, 0
        outputs = {name: laid.results[name] if name in laid.results else self._empty(batch, name) for name in batch.outputs}
        wanted = {name: output[: len(places) if name in PER_MASK else batch.rows] for name, output in outputs.items()}
        self._fleet.run(batch.bucket, batch.desk, wanted)
        return wanted

    def _empty(self, batch: DeviceTextBatch, name: str) -> Array:
        part = self._fleet.plan.shapes(batch.bucket).outputs.parts[name]
        return np.empty(part.shape, part.dtype)


def text_plan(limits: BatchLimits, max_tokens: int, vocabulary: int, session: Session) -> GraphPlan:
    """Buckets and shapes of a graph.

    Args:
        limits: of batches.
        max_tokens: of a row.
        vocabulary: size.
        session: the graph, on whichever device.
    """
    declared = Declared(session)
    buckets = TextBuckets(limits, max_tokens, vocabulary if "places" in declared.inputs else 0)
    return GraphPlan(buckets, remembered(_shapes, declared), _write_idle)


def _shapes(declared: Declared, bucket: Bucket) -> Shapes:
    inputs = {name: declared.part(name, bucket.rows, bucket.length) for name in ("ids", "segments", "lengths")}
    scalars: dict[str, Array] = {}
    if bucket.masks:
        inputs["places"] = declared.part("places", bucket.masks)
        scalars["k"] = np.array([bucket.k], np.int64)
    outputs = {
        name: declared.part(name, *((bucket.masks, bucket.k) if name in PER_MASK else (bucket.rows, bucket.length)))
        for name in declared.outputs
    }
    results = {name: part for name, part in outputs.items() if name != LOG_PROBABILITIES}
    return Shapes(ArrayLayout(inputs), ArrayLayout(outputs), ArrayLayout(results), scalars)


def _write_idle(inputs: Mapping[str, Array], bucket: Bucket) -> None:
    inputs["lengths"][...] = bucket.length
