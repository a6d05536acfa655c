"""Secret files: reloading after a change, and the warning about open permissions."""

import logging
import os
import time
from pathlib import Path

import pytest

from triptych_serving.errors import SecurityError
from triptych_serving.security import secret_files
from triptych_serving.security.secret_files import ReloadedFiles, warn_if_open

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
def files(path: Path) -> ReloadedFiles[str]:
    return ReloadedFiles("the file", [path], lambda: read(path))


def test_change_is_noticed(path: Path, files: ReloadedFiles[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert files.get() == "one"
    path.write_text("two")
    assert [files.get(), files.get()] == ["two", "two"]
    assert caplog.messages == ["the file: reloaded"]


def test_change_of_equal_size_and_time_is_noticed(
    path: Path, files: ReloadedFiles[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "REREAD_SECONDS", 0)
    for text in ("two", "six", "ten"):
        path.write_text(text)
        os.utime(path, (LONG_AGO, LONG_AGO))
        assert files.get() == text


def test_changed_link_is_noticed(tmp_path: Path) -> None:
    """Kubernetes changes secrets in this way."""
    link = tmp_path / "link"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    link.symlink_to("first")
    files = ReloadedFiles("", [link / "file"], lambda: read(link / "file"))
    assert files.get() == "first"
    (tmp_path / "new").symlink_to("second")
    (tmp_path / "new").rename(link)
    assert files.get() == "second"


def test_bad_change_is_logged_once_and_ignored(path: Path, files: ReloadedFiles[str], caplog: pytest.LogCaptureFixture) -> None:
    path.write_text("bad")
    assert [files.get() for _ in range(3)] == ["one"] * 3
    assert caplog.messages == [f"the file: reload failed, keeping the last good version: {path}: bad"]
    path.unlink()
    assert files.get() == "one"
    assert "No such file" in caplog.messages[-1]
    path.write_text("good")
    assert files.get() == "good"


def test_a_file_that_goes_while_it_is_read_is_a_bad_change(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = ReloadedFiles("the file", [path], path.read_text)
    path.unlink()
    assert files.get() == "one"
    assert "reload failed, keeping the last good version" in caplog.text


def test_least_time_between_checks(path: Path) -> None:
    files = ReloadedFiles("", [path], lambda: read(path), every_seconds=3600)
    path.write_text("two")
    assert files.get() == "one"


def test_bad_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="No such file"):
        ReloadedFiles("", [tmp_path / "none"], lambda: read(tmp_path / "none"))


@pytest.mark.parametrize("text", ["two", "bad"])
def test_files_with_unchanged_times_are_not_read_at_every_check(path: Path, text: str) -> None:
    reads: list[Path] = []

    def counted() -> str:
        reads.append(path)
        return read(path)

    files = ReloadedFiles("", [path], counted)
    path.write_text(text)
    for _ in range(100):
        files.get()
    assert len(reads) < 10  # one at the start, one for the change, and one for each second


def test_passing_fault_is_retried(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_files, "REREAD_SECONDS", 0)
    faults: list[str] = []

    def unsteady() -> str:
        if faults:
            raise SecurityError(faults.pop())
        return read(path)

    files = ReloadedFiles("the file", [path], unsteady)
    path.write_text("two")
    os.utime(path, (LONG_AGO, LONG_AGO))
    faults.append("too many open files")
    assert files.get() == "one"
    assert files.get() == "two"


@pytest.mark.parametrize(
    ("mode", "words"),
    [(0o600, ""), (0o640, ""), (0o644, "may read it"), (0o646, "may read and change it"), (0o602, "may change it")],
)
def test_warning_about_open_permissions(path: Path, mode: int, words: str, caplog: pytest.LogCaptureFixture) -> None:
    path.chmod(mode)
    warn_if_open(path)
    warn_if_open(Path("/dev/null"))  # nobody should change its mode
    assert [words in message for message in caplog.messages] == ([True] if words else [])
