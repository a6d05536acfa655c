"""Buckets of rows on a device."""

import pytest

from triptych_serving.decoding.cuda.kv_cache import RowBuckets


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(1, (1,)), (2, (1, 2)), (8, (1, 8)), (20, (1, 8, 16, 20)), (256, (1, 8, 16, 32, 64, 128, 256)), (1500, None)],
)
def test_the_smallest_bucket_with_room_is_used(count: int, sizes: tuple[int, ...] | None) -> None:
    buckets = RowBuckets(count)
    assert sizes is None or buckets.sizes == sizes
    assert buckets.sizes[-1] == count
    for rows in range(count + 1):
        assert buckets.of(rows) == min(size for size in buckets.sizes if size >= rows)
