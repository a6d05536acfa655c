"""Files that change under a server."""

import logging
import os
import time
from pathlib import Path

import pytest

from triptych_serving.errors import SecurityError
from triptych_serving.security.file_access import warn_if_open
from triptych_serving.security.reloading import Reloading

LONG_AGO = time.time() - 3600


def read(path: Path) -> str:
    try:
        text = path.read_text()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from error
    if "bad" in text:
        raise SecurityError(f"{path}: {text}")
    return text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("one")
    return path


@pytest.fixture
def reloading(path: Path) -> Reloading[str]:
    return Reloading("the file", [path], lambda: read(path))


def test_a_change_is_seen(path: Path, reloading: Reloading[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert reloading.get() == "one"
    path.write_text("two")
    assert [reloading.get(), reloading.get()] == ["two", "two"]
    assert caplog.messages == ["the file: read again, in force from now on"]


def test_a_change_of_equal_size_and_time_is_seen(path: Path, reloading: Reloading[str]) -> None:
    for text in ("two", "six", "ten"):
        path.write_text(text)
        os.utime(path, (LONG_AGO, LONG_AGO))
        assert reloading.get() == text


def test_a_link_that_is_turned_is_seen(tmp_path: Path) -> None:
    """As Kubernetes changes secrets."""
    link = tmp_path / "link"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    link.symlink_to("first")
    reloading = Reloading("", [link / "file"], lambda: read(link / "file"))
    assert reloading.get() == "first"
    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(link)
    assert reloading.get() == "second"


def test_a_bad_change_is_logged_once_and_not_used(
    path: Path, reloading: Reloading[str], caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("bad")
    assert [reloading.get() for _ in range(3)] == ["one"] * 3
    assert caplog.messages == [f"the file: a change is not used, what was read before stays in force: {path}: bad"]
    path.unlink()
    assert reloading.get() == "one"
    assert "No such file" in caplog.messages[-1]
    path.write_text("good")
    assert reloading.get() == "good"


def test_it_looks_no_more_often_than_told(path: Path) -> None:
    reloading = Reloading("", [path], lambda: read(path), every_seconds=3600)
    path.write_text("two")
    assert reloading.get() == "one"


def test_a_bad_beginning_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="No such file"):
        Reloading("", [tmp_path / "none"], lambda: read(tmp_path / "none"))


@pytest.mark.parametrize(
    ("mode", "words"),
    [(0o600, ""), (0o640, ""), (0o644, "may read it"), (0o646, "may read and change it"), (0o602, "may change it")],
)
def test_files_that_are_open_to_all_are_warned_of(path: Path, mode: int, words: str, caplog: pytest.LogCaptureFixture) -> None:
    path.chmod(mode)
    warn_if_open(path)
    assert [words in message for message in caplog.messages] == ([True] if words else [])


def test_a_file_that_could_not_be_read_for_a_moment_is_read_at_the_next_look(path: Path) -> None:
    faults: list[str] = []

    def unsteady() -> str:
        if faults:
            raise SecurityError(faults.pop())
        return read(path)

    reloading = Reloading("the file", [path], unsteady)
    path.write_text("two")
    os.utime(path, (LONG_AGO, LONG_AGO))
    faults.append("too many open files")
    assert reloading.get() == "one"
    assert reloading.get() == "two"
