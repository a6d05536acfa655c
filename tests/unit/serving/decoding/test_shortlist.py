"""Shortlists: the ids of a source, and faults of files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych_serving.decoding.shortlist import read_shortlist
from triptych_serving.errors import BundleError

SIZE = 12
END, UNKNOWN = 2, 3
LISTS: dict[int, list[int]] = {END: [2, 5], 4: [9, 8], 6: [10, 9, 5], 7: [11]}  # source token -> targets
ALWAYS = [0, 2]


def make_arrays() -> dict[str, Any]:
    lists = [LISTS.get(token, []) for token in range(SIZE)]
    return {
        "offsets": np.cumsum([0, *map(len, lists)]).astype(np.uint32),
        "targets": np.array([target for targets in lists for target in targets], np.uint16),
        "always": np.array(ALWAYS, np.uint16),
    }


def write(folder: Path, **changes: Any) -> Path:
    """Write a valid file with changes; None leaves an array out."""
    path = folder / "shortlist.npz"
    arrays = {name: array for name, array in {**make_arrays(), **changes}.items() if array is not None}
    np.savez_compressed(path, **arrays)
    return path


def faults_of(path: Path, size: int = SIZE) -> tuple[str, ...]:
    with pytest.raises(BundleError) as error:
        read_shortlist(path, size)
    return error.value.faults


@pytest.mark.parametrize(
    ("banned", "source", "extra", "expected"),
    [
        pytest.param((), [4, END], (), [0, 2, 4, 5, 8, 9], id="the source, its translations and common tokens"),
        pytest.param((), [6, 4, 6, END], (), [0, 2, 4, 5, 6, 8, 9, 10], id="sorted and unique"),
        pytest.param((), [7, END], (1, 3), [0, 1, 2, 3, 5, 7, 11], id="extra ids"),
        pytest.param((), [4, UNKNOWN, END], (), None, id="an unknown token"),
        pytest.param((), [4, 0, END], (), None, id="a common target, but a source without a list"),
        pytest.param({0, 9, 4}, [4, END], (), [2, 5, 8], id="banned ids"),
        pytest.param({0, 9, 4}, [4, END], (9, 7), [2, 5, 7, 8, 9], id="banned ids are allowed in a prefix"),
    ],
)
@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_ids_of_a_source(
    tmp_path: Path, kind: type, banned: set[int], source: list[int], extra: tuple[int, ...], expected: list[int] | None
) -> None:
    path = write(tmp_path, **{name: make_arrays()[name].astype(kind) for name in ("targets", "always")})
    ids = read_shortlist(path, SIZE, banned).ids(source, extra)
    assert (None if ids is None else ids.tolist()) == expected
    assert ids is None or ids.dtype == np.int64


def test_all_wrong_types_and_missing_arrays_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path, offsets=np.zeros(SIZE + 1, np.int64), targets=np.zeros((2, 3), np.uint16), always=None)
    assert faults_of(path) == (
        "always is missing",
        "offsets is int64 [13], expected uint32 [n]",
        "targets is uint16 [2, 3], expected uint16 or uint32 [n]",
    )


def test_all_inconsistencies_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path, targets=np.array([1, 99], np.uint16), always=np.array([12], np.uint16))
    assert faults_of(path, size=11) == (
        "offsets has 13 numbers, expected 12 for a vocabulary of 11",
        "offsets must ascend from 0 to 2, the size of targets",
        "targets has id 99, but the vocabulary has 11 tokens",
        "always has id 12, but the vocabulary has 11 tokens",
    )


@pytest.mark.parametrize("offsets", [[], [1] * 12 + [8], [0, 3, 2, *[8] * 10], [0] * 13])
def test_offsets_must_ascend_over_all_targets(tmp_path: Path, offsets: list[int]) -> None:
    path = write(tmp_path, offsets=np.array(offsets, np.uint32))
    assert any("must ascend from 0 to 8" in fault for fault in faults_of(path))


def test_unreadable_files_are_faults(tmp_path: Path) -> None:
    path = tmp_path / "shortlist.npz"
    for content in (None, b"", b"PK\x03\x04 no archive", b"text"):
        if content is not None:
            path.write_bytes(content)
        assert "cannot be read" in faults_of(path)[0]
    assert "cannot be read" in faults_of(write(tmp_path, always=np.array([{}], object)))[0]
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    assert faults_of(path) == ("not an archive of arrays (.npz)",)
