"""Shapes that batches are padded to."""

from itertools import pairwise

import pytest

from triptych_serving.encoding.cuda.buckets import CAPTURED_TOKENS, LOGIT_BYTES, Bucket, ImageBuckets, TextBuckets, rung
from triptych_serving.encoding.options import GPU_BATCHES
from triptych_serving.scheduling.batch_scheduler import BatchLimits

VOCABULARY = 30_522
SMALL = BatchLimits(batch_tokens=300, batch_rows=11)


@pytest.mark.parametrize(
    ("steps", "rungs"),
    [(1, [1, 2, 4, 8, 16, 32]), (2, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]), (8, [*range(1, 17), 18, 20, 22, 24, 26, 28, 30, 32])],
)
def test_numbers_are_rounded_up_to_steps_of_an_octave(steps: int, rungs: list[int]) -> None:
    assert sorted({rung(size, steps) for size in range(1, 33)}) == rungs
    assert all(below < size <= rung(size, steps) for below, above in pairwise([0, *rungs]) for size in range(below + 1, above))


@pytest.mark.parametrize(
    ("limits", "max_tokens", "vocabulary"),
    [(GPU_BATCHES, 512, VOCABULARY), (GPU_BATCHES, 8192, 0), (SMALL, 50, 161), (SMALL, 512, 161), (BatchLimits(), 64, 0)],
)
def test_every_batch_fits_a_bucket_within_the_largest(limits: BatchLimits, max_tokens: int, vocabulary: int) -> None:
    buckets = TextBuckets(limits, max_tokens, vocabulary)
    rows_of = {
        bucket.length: max(wider.rows for wider in buckets.largest if wider.length >= bucket.length)
        for bucket in buckets.largest
    }
    for longest in {*range(1, max_tokens + 1, 1 + max_tokens // 80), max_tokens}:
        most = min(limits.batch_rows, max(1, limits.batch_tokens // longest))
        for rows in {*range(1, most + 1, 5), most}:
            bucket = buckets.fit(rows, longest, 0, 1)
            assert rows <= bucket.rows <= min(limits.batch_rows, rows_of[bucket.length])
            assert longest <= bucket.length <= max_tokens
            assert bucket in buckets.captured or 2.25 * rows * (longest + 15) > CAPTURED_TOKENS
            assert bucket in buckets.captured or bucket.tokens < 1.27 * rows * (longest + 7)
    assert {bucket.masks for bucket in buckets.largest} == {buckets.most_masks}


def test_few_buckets_are_captured() -> None:
    captured = TextBuckets(GPU_BATCHES, 512, VOCABULARY).captured
    assert len(captured) == len(set(captured)) <= 110
    assert max(bucket.tokens for bucket in captured) <= CAPTURED_TOKENS
    assert [bucket.tokens for bucket in captured] == sorted((bucket.tokens for bucket in captured), reverse=True)
    assert {bucket.length for bucket in captured} == {16, 32, 48, 64, 96, 128, 192, 256, 384, 512}


def test_masks_and_candidates_are_rounded_up() -> None:
    buckets = TextBuckets(GPU_BATCHES, 512, VOCABULARY)
    usual = Bucket(4, 32, masks=4, k=8)
    assert buckets.fit(4, 20, 0, 1) == buckets.fit(4, 20, 4, 8) == usual
    assert buckets.fit(4, 20, 5, 1) == Bucket(4, 32, masks=5, k=8)
    assert buckets.fit(4, 20, 100, 9) == Bucket(4, 32, masks=104, k=16)
    assert buckets.fit(40, 200, 40, 5) == Bucket(40, 208, masks=40, k=8)
    assert buckets.fit(4, 20, 4, 1000) == Bucket(4, 32, masks=4, k=1024)
    assert buckets.fit(200, 80, 5_000, 1).masks == buckets.most_masks
    assert 4 * VOCABULARY * buckets.most_masks <= LOGIT_BYTES < 4 * VOCABULARY * (buckets.most_masks + 1)
    assert TextBuckets(GPU_BATCHES, 512, 9).fit(1, 1, 1, 100) == Bucket(1, 16, masks=1, k=9)
    assert TextBuckets(GPU_BATCHES, 512, 0).fit(1, 1, 0, 1) == Bucket(1, 16)


@pytest.mark.parametrize(("rows", "longest", "k"), [(12, 1, 1), (1, 513, 1), (2, 151, 1), (1, 1, 1025)])
def test_a_batch_above_the_limits_is_an_error(rows: int, longest: int, k: int) -> None:
    limit = r"the limit is 11 rows, 512 tokens \(300 in all\) and 1,024"
    with pytest.raises(ValueError, match=rf"a batch has {rows} rows of up to {longest} tokens and {k:,} candidates .* {limit}"):
        TextBuckets(SMALL, 512, VOCABULARY).fit(rows, longest, 1, k)


def test_a_row_may_be_longer_than_a_batch() -> None:
    assert TextBuckets(SMALL, 512, 0).fit(1, 500, 0, 1) == Bucket(1, 512)


def test_image_buckets() -> None:
    buckets = ImageBuckets(GPU_BATCHES, 196, 1000)
    assert [bucket.rows for bucket in buckets.captured] == [16, 12, 8, 6, 4, 3, 2, 1]
    assert {(bucket.length, bucket.k) for bucket in buckets.captured} == {(196, 8)}
    assert buckets.largest == (Bucket(83, 196, k=1000),)
    assert buckets.fit(5, 5) == Bucket(6, 196, k=8)
    assert buckets.fit(17, 9) == Bucket(18, 196, k=16)
    assert buckets.fit(83, 1000) == Bucket(83, 196, k=1000)
    assert ImageBuckets(GPU_BATCHES, 4, 3).fit(256, 3) == Bucket(256, 4, k=3)
    with pytest.raises(ValueError, match="a batch has 84 images, the limit is 83"):
        buckets.fit(84, 1)
