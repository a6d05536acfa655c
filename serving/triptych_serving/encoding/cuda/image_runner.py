"""Batches of images through a graph of the ViT family that is bound to memory of devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from triptych_serving.encoding.cuda.buckets import Bucket, ImageBuckets
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.encoding.cuda.replica_pool import ReplicaPool, StagingBuffer
from triptych_serving.encoding.cuda.shapes import Declared, Shapes, remembered
from triptych_serving.encoding.image_runner import LABELS, SCORES, ImageRow, hand_out
from triptych_serving.runtime.arrays import Array, ArrayLayout
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item


@dataclass(eq=False, slots=True)
class DeviceImageBatch:
    """Images that lie in a desk, filled up to a bucket."""

    bucket: Bucket
    desk: StagingBuffer
    images: int  # without those that fill the bucket


class DeviceImageRunner:
    """As ImageRunner, but batches are filled up to buckets, with whatever lay there before: no image looks at another.

    Args:
        fleet: the graph; its plan is one of `image_plan`.
    """

    def __init__(self, fleet: ReplicaPool) -> None:
        buckets = fleet.plan.buckets
        assert isinstance(buckets, ImageBuckets), "a plan for images"
        self._fleet = fleet
        self._buckets = buckets

    def warm_up(self) -> None:
        """Capture what is captured."""
        self._fleet.warm_up()

    def prepare(self, items: Sequence[Item]) -> DeviceImageBatch:
        """Stack, in page-locked memory."""
        rows: list[ImageRow] = [item.payload for item in items]
        bucket = self._buckets.fit(len(rows), max(row.k for row in rows))
        batch = DeviceImageBatch(bucket, self._fleet.take(), len(rows))
        try:
            for place, row in zip(self._fleet.laid(bucket, batch.desk).inputs["pixels"], rows, strict=False):
                place[...] = row.pixels
        except BaseException:
            self.release(batch)
            raise
        return batch

    def run(self, batch: DeviceImageBatch) -> list[Array]:
        """Scores and labels, in the batch's desk."""
        results = self._fleet.laid(batch.bucket, batch.desk).results
        wanted = {name: results[name][: batch.images] for name in (SCORES, LABELS)}
        self._fleet.run(batch.bucket, batch.desk, wanted)
        return list(wanted.values())

    def finish(self, items: Sequence[Item], outputs: list[Array]) -> None:
        """Give each image its own."""
        hand_out(items, *outputs)

    def release(self, batch: DeviceImageBatch) -> None:
        """Its desk is free."""
        self._fleet.give_back(batch.desk)


def image_plan(limits: BatchLimits, row_size: int, labels: int, session: Session) -> GraphPlan:
    """Buckets and shapes of a graph.

    Args:
        limits: of batches.
        row_size: tokens that an image counts as.
        labels: that the graph tells apart.
        session: the graph, on whichever device.
    """
    buckets = ImageBuckets(limits, row_size, labels)
    return GraphPlan(buckets, remembered(_shapes, Declared(session)), _leave_black)


def _shapes(declared: Declared, bucket: Bucket) -> Shapes:
    inputs = ArrayLayout({"pixels": declared.part("pixels", bucket.rows)})
    outputs = ArrayLayout({name: declared.part(name, bucket.rows, bucket.k) for name in (SCORES, LABELS)})
    return Shapes(inputs, outputs, outputs, {"k": np.array([bucket.k], np.int64)})


def _leave_black(inputs: Mapping[str, Array], bucket: Bucket) -> None:
    """Zeros are an image already."""
