"""API keys: a file with one line per key, which has its hash.

    # name      role   hash                                                                      last day (UTC), optional
    frontend    infer  sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    operator    admin  sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9   2027-06-30

A key is 256 random bits, so its hash needs no salt and must not be slow: there is nothing to guess, and a hash that takes
milliseconds, as for passwords, would let anybody keep the server busy with wrong keys.

Changes replace the file as a whole: a server that reads it meanwhile sees the old file or the new one. Commands
change a file one after the other.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from triptych_serving.errors import SecurityError
from triptych_serving.security.secret_files import check_plain

PREFIX = "triptych_"  # lets secret scanners recognise a key
SECRET_BYTES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)
COMMENT = "#"
HEADER = "# name role hash [last day, UTC]; made by `triptych keys`\n"


class Role(StrEnum):
    """Permission of a key."""

    INFER = "infer"
    ADMIN = "admin"  # may also load and unload models


@dataclass(frozen=True)
class ApiKey:
    """One line of the file."""

    name: str
    role: Role
    digest: bytes = field(repr=False)  # SHA-256 of the key
    expires: datetime | None = None  # with a time zone

    def expired(self, now: datetime) -> bool:
        """Return True if the key is no longer valid."""
        return self.expires is not None and now >= self.expires


def new_secret() -> str:
    """Generate a key, as callers send it."""
    return PREFIX + secrets.token_hex(SECRET_BYTES)


def key_line(name: str, role: Role, secret: str, expires: str = "") -> str:
    """Format the line of a key. Raises ValueError: the name or the last day is invalid."""
    words = [name, role, f"sha256:{digest_of(secret).hex()}", *([expires] if expires else [])]
    parse_key(words)
    return " ".join(words)


def digest_of(secret: str) -> bytes:
    """Hash a key with SHA-256."""
    return hashlib.sha256(secret.encode()).digest()


def find_key(keys: Sequence[ApiKey], secret: str) -> ApiKey | None:
    """Find the key that a caller sent. The time taken reveals neither which key it was nor how much of it was right."""
    digest = digest_of(secret)
    matches = [key for key in keys if hmac.compare_digest(key.digest, digest)]
    return matches[0] if matches else None


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Read the keys of a file, which may have none.

    Raises:
        SecurityError: the file cannot be read, or some lines are wrong; their text is not repeated, as it may be a key.
    """
    return parse_keys(_read_lines(path), path)


def parse_keys(lines: Sequence[str], source: object) -> tuple[ApiKey, ...]:
    """Parse the lines of a file; `source` names it in errors. Raises SecurityError: some lines are wrong; lists all of them."""
    keys, faults = {}, []
    for number, line in enumerate(lines, 1):
        if words := line.partition(COMMENT)[0].split():
            try:
                keys[number] = parse_key(words)
            except ValueError as error:
                faults.append(f"line {number}: {error}")
    faults += _duplicates("name", {number: key.name for number, key in keys.items()})
    faults += _duplicates("hash", {number: key.digest for number, key in keys.items()})
    if faults:
        raise SecurityError(f"{source}: {'; '.join(faults)}")
    return tuple(keys.values())


def parse_key(words: Sequence[str]) -> ApiKey:
    """Parse the words of one line. Raises ValueError: a word is missing or invalid."""
    if len(words) not in (3, 4):
        raise ValueError(f"{len(words)} columns, expected name, role, hash and optionally last day")
    name, role, digest = words[:3]
    if not NAME.fullmatch(name):
        raise ValueError(
            "the name must be 1 to 64 letters, digits, dots, dashes or underscores, beginning with a letter or digit"
        )
    if role not in list(Role):
        raise ValueError(f"the role must be {' or '.join(Role)}")
    found = DIGEST.fullmatch(digest)
    if not found:
        raise ValueError(
            "the hash must be sha256: and 64 hexadecimal digits in lower case; `triptych keys create` writes such lines"
        )
    return ApiKey(name, Role(role), bytes.fromhex(found[1]), parse_expiry(words[3]) if words[3:] else None)


def parse_expiry(text: str) -> datetime:
    """Parse a last day, which ends at midnight UTC, or a moment with its time zone. Raises ValueError: it is neither."""
    try:
        if len(text) == len("2027-06-30"):
            return datetime.combine(date.fromisoformat(text) + timedelta(days=1), datetime.min.time(), UTC)
        moment = datetime.fromisoformat(text if "T" in text.upper() else "")  # a blank or a # would end the column
    except (ValueError, OverflowError) as error:
        raise ValueError("the last day must look like 2027-06-30, or like 2027-06-30T12:00:00Z for a moment") from error
    if moment.tzinfo is None:
        raise ValueError("the moment of expiry has no time zone; append Z for UTC")
    return moment


def add_key(path: Path, name: str, role: Role, expires: str = "") -> str:
    """Create a key and add its line to the file; return the key, which is stored nowhere.

    Raises:
        SecurityError: the file cannot be read or written.
        ValueError: the name is taken or invalid, or the last day is invalid or past.
    """
    if expires and parse_expiry(expires) <= datetime.now(UTC):
        raise ValueError(f"the last day, {expires}, is in the past")
    secret = new_secret()
    line = key_line(name, role, secret, expires)
    with _change_alone(path):
        lines = _read_lines(path) if path.exists() else [HEADER]
        if name in _names(lines, path):
            raise ValueError(f"{path}: key {name!r} exists; revoke it, or choose another name")
        _write(path, [*(each if each.endswith("\n") else f"{each}\n" for each in lines), f"{line}\n"])
    return secret


def remove_key(path: Path, name: str) -> None:
    """Remove the line of a key from the file.

    Raises:
        SecurityError: the file cannot be read or written.
        ValueError: there is no such key.
    """
    with _change_alone(path):
        lines = _read_lines(path)
        names = _names(lines, path)
        if name not in names:
            raise ValueError(f"{path}: no key {name!r}; there are: {', '.join(names) or 'none'}")
        _write(path, [line for line in lines if name not in _names([line], path)])


@contextlib.contextmanager
def _change_alone(path: Path) -> Iterator[None]:
    """Wait until no other command changes a file of this folder: of two changes at once one would be lost."""
    import fcntl  # noqa: PLC0415 Windows has none, and servers do not change the file

    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY)
    except OSError as error:
        raise SecurityError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _duplicates(column: str, values: dict[int, object]) -> list[str]:
    counts = Counter(values.values())
    return [f"line {number}: the {column} is in another line too" for number, value in values.items() if counts[value] > 1]


def _read_lines(path: Path) -> list[str]:
    try:
        check_plain(path)
        return path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SecurityError(f"{path}: not UTF-8 text") from error


def _names(lines: list[str], path: Path) -> list[str]:
    return [key.name for key in parse_keys(lines, path)]


def _write(path: Path, lines: Iterable[str]) -> None:
    """Replace the file, keeping owner and permissions; a new file is readable by its owner only."""
    target = path.resolve()  # a link stays a link
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        written = Path(name)
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.writelines(lines)
            _copy_permissions(target, written)
            written.replace(target)
        except BaseException:
            written.unlink()
            raise
    except OSError as error:
        raise SecurityError(f"{path}: cannot be written: {error.strerror}") from error


def _copy_permissions(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        found = source.stat()
        target.chmod(found.st_mode & 0o777)
        with contextlib.suppress(PermissionError):  # only root may change owners
            os.chown(target, found.st_uid, found.st_gid)
