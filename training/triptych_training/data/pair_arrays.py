"""Sentence pairs as ids in files that are mapped into memory: a corpus takes little more memory than the ids in use.

ids.bin       ids of all pairs, source before target
offsets.npy   `[2 N + 1]`: pair i has its source at `offsets[2 i]` and its target at `offsets[2 i + 1]`
pairs.json    what the arrays were made from, as a digest; type of the ids; number of pairs left out
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triptych_training.data.batches import Example, Sizes
from triptych_training.errors import CorpusError

IDS, OFFSETS, LISTING = "ids.bin", "offsets.npy", "pairs.json"
Encoded = tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]  # ids of the sources and targets of some pairs


@dataclass(frozen=True)
class PairArrays:
    """Encoded sentence pairs."""

    ids: NDArray[np.unsignedinteger]
    lengths: Sizes  # `[N, 2]`: tokens of source and target
    offsets: NDArray[np.int64]
    left_out: int  # pairs that were too long

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Example:
        start, middle, end = self.offsets[2 * index : 2 * index + 3].tolist()
        return Example(self.ids[start:middle], self.ids[middle:end])

    @property
    def sizes(self) -> Sizes:
        """`[N, 2]`, for `plan_batches`."""
        return np.column_stack((self.lengths.max(1), self.lengths[:, 0])) if len(self) else self.lengths


def write_pairs(folder: Path, parts: Iterable[Encoded], limit: int, vocabulary_size: int, digest: str) -> None:
    """Write the pairs with at most `limit` tokens a side; the folder appears in one move, complete."""
    partial = folder.with_name(f"{folder.name}.partial")
    for path in (folder, partial):
        shutil.rmtree(path, ignore_errors=True)
    partial.mkdir()
    kind = np.uint16 if vocabulary_size <= 1 << 16 else np.uint32
    lengths, left_out = [np.zeros((0, 2), np.int32)], 0
    with open(partial / IDS, "wb") as file:
        for sources, targets in parts:
            kept = [pair for pair in zip(sources, targets, strict=True) if max(map(len, pair)) <= limit]
            left_out += len(sources) - len(kept)
            np.fromiter(chain.from_iterable(chain.from_iterable(kept)), kind).tofile(file)
            lengths.append(np.array([(len(source), len(target)) for source, target in kept], np.int32).reshape(-1, 2))
    offsets = np.concatenate(([0], np.concatenate(lengths).reshape(-1).cumsum(dtype=np.int64)))
    np.save(partial / OFFSETS, offsets)
    listing = {"digest": digest, "type": np.dtype(kind).name, "left_out": left_out}
    (partial / LISTING).write_text(json.dumps(listing), encoding="utf-8")
    partial.replace(folder)


def open_pairs(folder: Path) -> PairArrays:
    """Map the files of `write_pairs` into memory.

    Raises:
        CorpusError: a file is missing or damaged.
    """
    try:
        listing = json.loads((folder / LISTING).read_text(encoding="utf-8"))
        offsets = np.load(folder / OFFSETS, mmap_mode="r")
        size = int(offsets[-1])
        ids = np.memmap(folder / IDS, listing["type"], "r", shape=(size,)) if size else np.zeros(0, listing["type"])
        lengths = np.diff(offsets).astype(np.int32).reshape(-1, 2)
        return PairArrays(ids, lengths, offsets, listing["left_out"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorpusError(f"{folder}: damaged ({error}); remove it, it is made again") from error


def is_made_of(folder: Path, digest: str) -> bool:
    """Return whether the folder has the pairs of this digest."""
    try:
        return bool(json.loads((folder / LISTING).read_text(encoding="utf-8"))["digest"] == digest)
    except (OSError, ValueError, KeyError, TypeError):
        return False
