"""Sentence pairs as ids in files that are mapped into memory: a corpus takes little more memory than the ids in use.

ids.bin       ids of all pairs, source before target
offsets.npy   `[2 N + 1]`: pair i has its source at `offsets[2 i]` and its target at `offsets[2 i + 1]`
pairs.json    what the arrays were made from, as a digest; type of the ids; number of pairs left out
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych_training.data.batches import Example, Indices, Sizes
from triptych_training.data.files import replacing

IDS, OFFSETS, LISTING = "ids.bin", "offsets.npy", "pairs.json"
AT_ONCE = 10_000  # pairs


@dataclass(frozen=True)
class PairArrays:
    """Encoded sentence pairs."""

    ids: NDArray[np.unsignedinteger]
    lengths: Sizes  # `[N, 2]`: tokens of source and target
    offsets: NDArray[np.int64]
    left_out: int  # pairs that were too long

    def __len__(self) -> int:
        return len(self.lengths)

    def side(self, side: int, rows: Indices, pad_id: int) -> Tensor:
        """Return the sources (0) or targets (1) of some pairs as one tensor `[B, longest]`, padded on the right."""
        lengths, positions = self.lengths[rows, side], np.arange(self.lengths[rows, side].max())
        inside = positions < lengths[:, None]
        padded = np.full(inside.shape, pad_id, np.int64)
        padded[inside] = self.ids[(self.offsets[2 * rows + side][:, None] + positions)[inside]]
        return torch.from_numpy(padded)

    @property
    def sizes(self) -> Sizes:
        """`[N, 2]`, for `plan_batches`."""
        return np.column_stack((self.lengths.max(1), self.lengths[:, 0]))


def write_pairs(folder: Path, pairs: Iterator[Example], limit: int, vocabulary_size: int, digest: str) -> None:
    """Write the pairs with at most `limit` tokens a side; the folder appears in one move, complete."""
    kind = np.uint16 if vocabulary_size <= 1 << 16 else np.uint32
    lengths, left_out = [np.zeros(0, np.int32)], 0
    shutil.rmtree(folder, ignore_errors=True)  # first: there may be no space for both
    with replacing(folder) as partial:
        partial.mkdir()
        with open(partial / IDS, "wb") as file:
            while part := list(islice(pairs, AT_ONCE)):
                sides = [side for pair in part if pair.size() <= limit for side in (pair.source, pair.target)]
                left_out += len(part) - len(sides) // 2
                np.fromiter(chain.from_iterable(sides), kind).tofile(file)
                lengths.append(np.array(list(map(len, sides)), np.int32))
        np.save(partial / OFFSETS, np.concatenate(([0], np.concatenate(lengths).cumsum(dtype=np.int64))))
        listing = {"digest": digest, "type": np.dtype(kind).name, "left_out": left_out}
        (partial / LISTING).write_text(json.dumps(listing), encoding="utf-8")


def open_pairs(folder: Path, digest: str) -> PairArrays | None:
    """Map the files of `write_pairs` into memory; None if they are missing, damaged or made of something else."""
    try:
        listing = json.loads((folder / LISTING).read_text(encoding="utf-8"))
        offsets = np.load(folder / OFFSETS, mmap_mode="r")
        size = int(offsets[-1])
        ids = np.memmap(folder / IDS, listing["type"], "r", shape=(size,)) if size else np.zeros(0, listing["type"])
        if listing["digest"] != digest:
            return None
        return PairArrays(ids, np.diff(offsets).astype(np.int32).reshape(-1, 2), offsets, listing["left_out"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
