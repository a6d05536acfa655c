"""Files appear whole or not at all."""

from pathlib import Path

import pytest

from triptych_cli.documents.writing import write_whole
from triptych_embedded.identity import digest


def test_a_file_is_known_before_it_is_put_in_its_place(tmp_path: Path) -> None:
    file, seen = tmp_path / "sub" / "a.txt", list[tuple[str, bool]]()
    write_whole(file, [b"on", b"e"], lambda hashed: seen.append((hashed, file.exists())))
    assert seen == [(digest("one"), False)]
    assert file.read_bytes() == b"one"


def test_what_was_there_stays_where_nobody_could_be_told(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_whole(file, b"old")
    with pytest.raises(KeyError):
        write_whole(file, b"new", lambda hashed: {}[hashed])
    assert file.read_bytes() == b"old"
