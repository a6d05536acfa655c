"""Changes to a file of API keys, each made as a whole: a server that reads meanwhile sees the old file or the new one."""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from triptych_serving.errors import SecurityError
from triptych_serving.security.api_keys import Role, key_line, new_secret, parse_expiry, parse_keys

HEADER = "# name role hash [last day, UTC]; made by `triptych keys`\n"


def add_key(path: Path, name: str, role: Role, expires: str = "") -> str:
    """Make a key and write its line; returns the key, which is kept nowhere.

    Raises:
        SecurityError: the file cannot be read or written.
        ValueError: the name is taken or none, or the last day is none or over.
    """
    if expires and parse_expiry(expires) <= datetime.now(UTC):
        raise ValueError(f"the last day, {expires}, is over")
    secret = new_secret()
    line = key_line(name, role, secret, expires)
    lines = _read(path) if path.exists() else [HEADER]
    if name in _names(lines, path):
        raise ValueError(f"{path}: there is a key {name!r} already; revoke it, or take another name")
    _write(path, [*_ended(lines), f"{line}\n"])
    return secret


def remove_key(path: Path, name: str) -> None:
    """Take a key's line out.

    Raises:
        SecurityError: the file cannot be read or written.
        ValueError: there is no such key.
    """
    lines = _read(path)
    names = _names(lines, path)
    if name not in names:
        raise ValueError(f"{path}: no key {name!r} in it; there are: {', '.join(names) or 'none'}")
    _write(path, [line for line in lines if name not in _names([line], path)])


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SecurityError(f"{path}: not a text in UTF-8") from error


def _names(lines: list[str], path: Path) -> list[str]:
    return [key.name for key in parse_keys(lines, path)]


def _ended(lines: list[str]) -> list[str]:
    """An editor may have left the last one without its end."""
    return [line if line.endswith("\n") else f"{line}\n" for line in lines]


def _write(path: Path, lines: Iterable[str]) -> None:
    """With the owner and the rights that the file has; a new one is its owner's alone."""
    target = path.resolve()  # a link stays one
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        written = Path(name)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.writelines(lines)
            _take_over_rights(target, written)
            written.replace(target)
        except BaseException:
            written.unlink()
            raise
    except OSError as error:
        raise SecurityError(f"{path}: cannot be written: {error.strerror}") from error


def _take_over_rights(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        found = source.stat()
        target.chmod(found.st_mode & 0o777)
        with contextlib.suppress(PermissionError):  # only root may give files away
            os.chown(target, found.st_uid, found.st_gid)
