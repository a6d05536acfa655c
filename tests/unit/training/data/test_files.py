"""Files that are replaced in one move."""

import errno
import os
import re
from pathlib import Path

import pytest
from safetensors import SafetensorError

from triptych_training.data.files import replacing
from triptych_training.errors import CheckpointError


def fail(path: Path, error: Exception) -> None:
    with replacing(path) as partial:
        partial.write_text("ne")
        raise error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left"), "; is the disk full? ([Errno 28] No space left)"),
        (RuntimeError("[enforce fail] . unexpected pos 704 vs 598\nstack"), "; is the disk full? (["),
        (SafetensorError("I/O error: No space left on device (os error 28)"), "; is the disk full? (I/O"),
        (SafetensorError("I/O error: File too large (os error 27)"), " (I/O error: File too large"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), " ([Errno 5] Input/output error)"),
    ],
)
def test_an_error_keeps_the_old_file_and_leaves_no_other(tmp_path: Path, error: Exception, reason: str) -> None:
    path = tmp_path / "config.json"
    path.write_text("old")
    with pytest.raises(CheckpointError, match=re.escape(f"config.json: cannot be written{reason}")):
        fail(path, error)
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: out of memory"), FileNotFoundError(errno.ENOENT, "No such file", "input.txt")]
)
def test_errors_of_other_work_stay_as_they_are(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        fail(tmp_path / "config.json", error)
    assert caught.value is error
    assert not [*tmp_path.iterdir()]


def test_a_folder_and_a_missing_parent_are_named(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "kept").touch()
    for path in (tmp_path / "old", tmp_path / "missing" / "file"):
        with pytest.raises(CheckpointError, match=f"{path}: cannot be written "), replacing(path) as partial:
            partial.touch()
    assert (tmp_path / "old" / "kept").exists()
