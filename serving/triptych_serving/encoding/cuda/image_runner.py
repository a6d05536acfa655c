"""Batches of images through a ViT graph that is bound to device memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from triptych_serving.encoding.cuda.buckets import Bucket, GraphInterface, ImageBuckets, Shapes, cached_shapes
from triptych_serving.encoding.cuda.graph import GraphPlan
from triptych_serving.encoding.cuda.replica_pool import DeviceRunner, ReplicaPool, StagedBatch
from triptych_serving.encoding.image_runner import LABELS, SCORES, ImageRow, copy_results
from triptych_serving.runtime.arrays import Array, ArrayLayout
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item


@dataclass(eq=False, slots=True)
class DeviceImageBatch(StagedBatch):
    """Images in a staging buffer."""

    images: int  # without padding


class DeviceImageRunner(DeviceRunner):
    """An ImageRunner for devices. Batches are padded to buckets with stale data, because no image depends on another.

    Args:
        pool: of a graph with a plan by `image_plan`.
    """

    def __init__(self, pool: ReplicaPool) -> None:
        buckets = pool.plan.buckets
        assert isinstance(buckets, ImageBuckets), "a plan for images"
        super().__init__(pool)
        self._buckets = buckets

    def prepare(self, items: Sequence[Item]) -> DeviceImageBatch:
        rows: list[ImageRow] = [item.payload for item in items]
        bucket = self._buckets.fit(len(rows), max(row.k for row in rows))
        batch = DeviceImageBatch(bucket, self._pool.take(), len(rows))
        try:
            for target, row in zip(self._pool.arrays(bucket, batch.buffer).inputs["pixels"], rows, strict=False):
                target[...] = row.pixels
        except BaseException:
            self.release(batch)
            raise
        return batch

    def run(self, batch: DeviceImageBatch) -> list[Array]:
        results = self._pool.arrays(batch.bucket, batch.buffer).results
        wanted = {name: results[name][: batch.images] for name in (SCORES, LABELS)}
        self._pool.run(batch.bucket, batch.buffer, wanted)
        return list(wanted.values())

    def finish(self, items: Sequence[Item], outputs: list[Array]) -> None:
        copy_results(items, *outputs)


def image_plan(limits: BatchLimits, row_size: int, labels: int, session: Session) -> GraphPlan:
    """Plan the buckets and shapes of a graph.

    Args:
        row_size: tokens that an image counts as.
        labels: number of labels of the model.
    """
    buckets = ImageBuckets(limits, row_size, labels)
    return GraphPlan(buckets, cached_shapes(_shapes, GraphInterface(session)), _leave_black)


def _shapes(interface: GraphInterface, bucket: Bucket) -> Shapes:
    inputs = ArrayLayout({"pixels": interface.part("pixels", bucket.rows)})
    outputs = ArrayLayout({name: interface.part(name, bucket.rows, bucket.k) for name in (SCORES, LABELS)})
    return Shapes(inputs, outputs, outputs, {"k": np.array([bucket.k], np.int64)})


def _leave_black(inputs: Mapping[str, Array], bucket: Bucket) -> None:
    """Do nothing: zeros are a valid image."""
