"""Documents and images from bytes, paths and files."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triptych_client.files import read_file, read_image, write_document


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, io.BytesIO])
def test_bytes_and_unnamed_files(kind: Callable[[bytes], Any]) -> None:
    assert read_file(kind(b"abc"), "a document") == (b"abc", "")
    assert read_image(kind(b"abc")) == b"abc"


@pytest.mark.parametrize("kind", [str, Path, lambda path: path.open("rb")])
def test_paths_and_named_files(tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    (tmp_path / "a.md").write_bytes(b"abc")
    assert read_file(kind(tmp_path / "a.md"), "a document") == (b"abc", "a.md")
    assert read_image(kind(tmp_path / "a.md")) == b"abc"


@pytest.mark.parametrize(("source", "message"), [(7, "not int"), (io.StringIO("a"), "must be opened in binary mode")])
def test_other_sources_are_rejected(source: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"an image.*{message}"):
        read_image(source)


def test_a_document_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"before")
    target.chmod(0o640)
    write_document(target, b"after")
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"after", 0o640)
    with pytest.raises(OSError, match="Not a directory"):
        write_document(tmp_path / "a.txt" / "b.txt", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    file = io.BytesIO()
    write_document(file, b"abc")
    assert file.getvalue() == b"abc"


def test_the_file_behind_a_link_is_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("file")
    write_document(link, b"abc")
    assert (link.readlink(), (tmp_path / "file").read_bytes()) == (Path("file"), b"abc")
