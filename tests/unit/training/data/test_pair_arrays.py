"""Sentence pairs in files that are mapped into memory."""

from pathlib import Path

import numpy as np
import pytest

from triptych_training.data.pair_arrays import is_made_of, open_pairs, write_pairs
from triptych_training.errors import CorpusError

PAIRS = [([5, 6, 2], [7, 2]), ([8, 2], [9] * 9), ([60_000, 2], [2])]


@pytest.mark.parametrize(("vocabulary", "kind"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_pairs_are_read_as_they_were_written(tmp_path: Path, vocabulary: int, kind: type) -> None:
    parts = (tuple(zip(*part, strict=True)) for part in (PAIRS[:1], PAIRS[1:]))
    write_pairs(tmp_path / "pairs", parts, 5, vocabulary, "made of this")
    pairs = open_pairs(tmp_path / "pairs")
    assert [(list(pair.source), list(pair.target)) for pair in (pairs[i] for i in range(len(pairs)))] == [PAIRS[0], PAIRS[2]]
    assert (pairs.ids.dtype, pairs.left_out) == (kind, 1)
    assert pairs.sizes.tolist() == [[3, 3], [2, 2]]
    assert is_made_of(tmp_path / "pairs", "made of this")
    assert not is_made_of(tmp_path / "pairs", "made of that")
    (tmp_path / "pairs/ids.bin").write_bytes(b"")
    with pytest.raises(CorpusError, match=r"damaged .* remove it"):
        open_pairs(tmp_path / "pairs")


def test_no_pairs(tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs", [], 5, 100, "")
    assert len(open_pairs(tmp_path / "pairs").sizes) == 0
