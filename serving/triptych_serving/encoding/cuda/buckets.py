"""The shapes that batches are padded to on a device, where a graph is bound to memory once per shape and run many times.

A device finishes a small batch sooner than its operators can be launched. So small batches get few shapes, each captured
beforehand: powers of two and the middles between them. For larger batches padding costs time: their shapes are an eighth of
an octave apart, and bound when they are first needed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from triptych_serving.runtime.arrays import Array, ArrayLayout, ArraySpec
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits

CAPTURED_TOKENS = 4096  # padded; a larger batch takes a device longer than launching the next one's operators
CAPTURED_CANDIDATES = 8  # a usual request needs five
MOST_CANDIDATES = 1024  # above the limit of a request
COARSE, FINE = 2, 8  # steps in an octave
COARSE_LENGTH, FINE_LENGTH = 16, 8  # lengths are multiples
LOGIT_BYTES = 64 << 20  # limit of one run's array of [masks, vocabulary], fp32


@dataclass(frozen=True, slots=True)
class Bucket:
    """The shape of one run."""

    rows: int
    length: int = 1  # positions of a row, or the tokens that an image counts as
    masks: int = 0  # of all rows; 0 where the graph fills none
    k: int = 0  # candidates of a mask, or labels of an image; 0 where the graph ranks nothing

    @property
    def tokens(self) -> int:
        """Padded tokens."""
        return self.rows * self.length


class Buckets:
    """The buckets of one graph."""

    captured: tuple[Bucket, ...]  # small ones, captured at the start; the largest first
    largest: tuple[Bucket, ...]  # of which one takes the most memory of all; the largest first


class TextBuckets(Buckets):
    """Buckets for graphs of the text family.

    Args:
        max_tokens: limit of a row.
        vocabulary: number of candidates for a mask; 0: the graph fills no masks.
    """

    def __init__(self, limits: BatchLimits, max_tokens: int, vocabulary: int) -> None:
        self._limits = limits
        self._max_tokens = max_tokens
        self._vocabulary = vocabulary
        places = max(max_tokens, limits.batch_tokens)
        self.most_masks = max(1, min(places, LOGIT_BYTES // (4 * vocabulary))) if vocabulary else 0
        self._most_candidates = min(MOST_CANDIDATES, vocabulary)
        self.captured = tuple(sorted(self._coarse_buckets(), key=_weight, reverse=True))
        self.largest = tuple(sorted(self._widest_buckets(), key=_weight, reverse=True))

    def fit(self, rows: int, longest: int, masks: int, k: int) -> Bucket:
        """Return the bucket for a batch; more masks than `most_masks` take several runs of it.

        Args:
            rows: at least 1.
            longest: number of tokens of the longest row.
            masks: number in all rows.
            k: highest number of candidates of a mask; limited to the vocabulary.

        Raises:
            ValueError: no bucket is large enough.
        """
        k = min(k, max(1, self._vocabulary))
        self._check(rows, longest, k)
        bucket = self._coarse(rows, longest)
        if bucket.tokens <= CAPTURED_TOKENS and masks <= bucket.masks and k <= max(1, bucket.k):
            return bucket
        if bucket.tokens > CAPTURED_TOKENS:
            bucket = self._fine(rows, longest)
        return self._with_masks(bucket, masks, k)

    def _check(self, rows: int, longest: int, k: int) -> None:
        limits, most_k = self._limits, max(1, self._most_candidates)
        padded = rows * longest if rows > 1 else 0
        if rows > limits.batch_rows or longest > self._max_tokens or padded > limits.batch_tokens or k > most_k:
            raise ValueError(
                f"a batch has {rows:,} rows of up to {longest:,} tokens and {k:,} candidates for a mask, the limit is "
                f"{limits.batch_rows:,} rows, {self._max_tokens:,} tokens ({limits.batch_tokens:,} in all) and {most_k:,}"
            )

    def _coarse(self, rows: int, longest: int) -> Bucket:
        padded = self._rows(rows, COARSE)
        masks, k = min(padded, self.most_masks), min(CAPTURED_CANDIDATES, self._most_candidates)
        return Bucket(padded, self._length(longest, COARSE, COARSE_LENGTH), masks, k)

    def _fine(self, rows: int, longest: int) -> Bucket:
        return Bucket(self._rows(rows, FINE), self._length(longest, FINE, FINE_LENGTH))

    def _with_masks(self, bucket: Bucket, masks: int, k: int) -> Bucket:
        if not self._vocabulary:
            return bucket
        wanted = CAPTURED_CANDIDATES * rung(-(-k // CAPTURED_CANDIDATES), 1)
        return replace(
            bucket,
            masks=min(max(bucket.masks, rung(max(1, masks), FINE)), self.most_masks),
            k=min(max(bucket.k, wanted), self._most_candidates),
        )

    def _rows(self, rows: int, steps: int) -> int:
        return min(rung(rows, steps), self._limits.batch_rows)

    def _length(self, longest: int, steps: int, unit: int) -> int:
        return min(unit * rung(-(-longest // unit), steps), self._max_tokens)

    def _coarse_buckets(self) -> Iterator[Bucket]:
        for shortest in self._shortest(COARSE, COARSE_LENGTH):
            for fewest in _fewest(self._most_rows(shortest)):
                bucket = self._coarse(fewest, shortest)
                if bucket.tokens <= CAPTURED_TOKENS:
                    yield bucket

    def _widest_buckets(self) -> Iterator[Bucket]:
        """Yield for each length the bucket with the most rows, masks and candidates."""
        widest = {bucket.length: bucket for bucket in reversed(self.captured)}
        for shortest in self._shortest(FINE, FINE_LENGTH):
            bucket = self._fine(self._most_rows(shortest), shortest)
            widest[bucket.length] = max(bucket, widest.get(bucket.length, bucket), key=_weight)
        for bucket in widest.values():
            yield replace(bucket, masks=self.most_masks, k=self._most_candidates)

    def _shortest(self, steps: int, unit: int) -> Iterator[int]:
        """Yield for each length of a bucket the shortest row that is padded to it."""
        shortest = 1
        while shortest <= self._max_tokens:
            yield shortest
            shortest = self._length(shortest, steps, unit) + 1

    def _most_rows(self, longest: int) -> int:
        return min(self._limits.batch_rows, max(1, self._limits.batch_tokens // longest))


class ImageBuckets(Buckets):
    """Buckets for graphs of the image family.

    Args:
        row_size: tokens that an image counts as.
        labels: number of labels of the model.
    """

    def __init__(self, limits: BatchLimits, row_size: int, labels: int) -> None:
        self._row_size = row_size
        self._labels = labels
        self._most_rows = min(limits.batch_rows, max(1, limits.batch_tokens // row_size))
        coarse = [self._rows(fewest, COARSE) for fewest in _fewest(self._most_rows)]
        buckets = [Bucket(rows, row_size, k=min(CAPTURED_CANDIDATES, labels)) for rows in coarse]
        self.captured = tuple(bucket for bucket in reversed(buckets) if bucket.tokens <= CAPTURED_TOKENS)
        self.largest = (Bucket(self._most_rows, row_size, k=labels),)

    def fit(self, images: int, k: int) -> Bucket:
        """Return the bucket for a batch.

        Args:
            images: at least 1.
            k: highest number of labels of an image.

        Raises:
            ValueError: no bucket is large enough.
        """
        if images > self._most_rows:
            raise ValueError(f"a batch has {images:,} images, the limit is {self._most_rows:,}")
        rows = self._rows(images, COARSE)
        if rows * self._row_size > CAPTURED_TOKENS:
            rows = self._rows(images, FINE)
        return Bucket(rows, self._row_size, k=min(CAPTURED_CANDIDATES * rung(-(-k // CAPTURED_CANDIDATES), 1), self._labels))

    def _rows(self, images: int, steps: int) -> int:
        return min(rung(images, steps), self._most_rows)


def rung(size: int, steps: int) -> int:
    """Round up to the next of `steps` numbers in each octave: with 2 steps these are 1, 2, 3, 4, 6, 8, 12, ..."""
    octave = 1 << max(0, (size - 1).bit_length() - 1)
    step = max(1, octave // steps)
    return -(-size // step) * step


def _fewest(most: int) -> Iterator[int]:
    """Yield for each coarse rung up to that of `most` the smallest number that is rounded up to it."""
    fewest = 1
    while fewest <= most:
        yield fewest
        fewest = rung(fewest, COARSE) + 1


def _weight(bucket: Bucket) -> tuple[int, int]:
    return bucket.tokens, bucket.length


@dataclass(frozen=True)
class Shapes:
    """Memory layouts of a graph's inputs and outputs for one bucket."""

    inputs: ArrayLayout
    outputs: ArrayLayout
    results: ArrayLayout  # outputs with room in page-locked memory; the others are rarely requested
    scalars: Mapping[str, Array]  # inputs that the runtime reads on the host; a captured run keeps their values


MakeShapes = Callable[[Bucket], Shapes]
CACHED_SHAPES = 512  # buckets


class GraphInterface:
    """Shapes and types of a session's inputs and outputs, without a reference to the session."""

    def __init__(self, session: Session) -> None:
        self.inputs, self.outputs = session.inputs, session.outputs
        self._parts = {name: (session.shape(name), session.dtype(name)) for name in (*self.inputs, *self.outputs)}

    def part(self, name: str, *sizes: int) -> ArraySpec:
        """Return an input or output with these sizes for its free dimensions, in order; surplus sizes are ignored."""
        shape, dtype = self._parts[name]
        free = iter(sizes)
        return ArraySpec(tuple(size if isinstance(size, int) else next(free) for size in shape), dtype)


def cached_shapes(make: Callable[[GraphInterface, Bucket], Shapes], interface: GraphInterface) -> MakeShapes:
    """Cache the shapes of a graph's buckets."""
    return lru_cache(CACHED_SHAPES)(partial(make, interface))
