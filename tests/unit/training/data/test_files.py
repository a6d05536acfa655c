"""Files that are replaced in one move."""

from pathlib import Path

import pytest

from triptych_training.data.files import replacing
from triptych_training.errors import CheckpointError


def test_an_error_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("old")
    message = r"config\.json: cannot be written; is the disk full\? \(No space left\)$"

    def fail() -> None:
        with replacing(path) as partial:
            partial.write_text("ne")
            raise OSError("No space left\nat byte 2")

    with pytest.raises(CheckpointError, match=message):
        fail()
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]
