"""Sentence pairs in files that are mapped into memory."""

from pathlib import Path

import numpy as np
import pytest

from triptych_training.data.batches import Example
from triptych_training.data.pair_arrays import open_pairs, write_pairs

PAIRS = [([5, 6, 2], [7, 2]), ([8, 2], [9] * 9), ([60_000, 2], [2])]


@pytest.mark.parametrize(("vocabulary", "kind"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_pairs_are_read_as_they_were_written(tmp_path: Path, vocabulary: int, kind: type) -> None:
    folder = tmp_path / "pairs"
    write_pairs(folder, (Example(*pair) for pair in PAIRS), 5, vocabulary, "made of this")
    pairs = open_pairs(folder, "made of this")
    assert pairs is not None
    assert [pairs.side(side, np.array([1, 0]), pad_id=1).tolist() for side in (0, 1)] == [
        [[60_000, 2, 1], [5, 6, 2]],
        [[2, 1], [7, 2]],
    ]
    assert (pairs.ids.dtype, pairs.left_out) == (kind, 1)
    assert pairs.sizes.tolist() == [[3, 3], [2, 2]]
    assert open_pairs(folder, "made of that") is None
    (folder / "ids.bin").write_bytes(b"")
    assert open_pairs(folder, "made of this") is None
    # The old arrays go first: there may be no space for both.
    write_pairs(folder, (pair for pair in [Example(*PAIRS[0])] if folder.exists()), 5, vocabulary, "")
    assert (none := open_pairs(folder, "")) is not None
    assert len(none.sizes) == 0
