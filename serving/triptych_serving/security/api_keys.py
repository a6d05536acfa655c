"""API keys: a file of their hashes, one a line.

    # name      role   hash                                                                      last day (UTC), or none
    frontend    infer  sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae
    operator    admin  sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9   2027-06-30

A key is 256 random bits, so its hash needs no salt and must not be slow: there is nothing to guess, and a hash that takes
milliseconds, as passwords need it, would let anybody keep the server busy with wrong keys.
"""

import hashlib
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from triptych_serving.errors import SecurityError

PREFIX = "triptych_"  # by which scanners for secrets can tell what they found
SECRET_BYTES = 32
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)
COMMENT = "#"


class Role(StrEnum):
    """What a key is good for."""

    INFER = "infer"
    ADMIN = "admin"  # all that infer is, and models may be loaded and unloaded


@dataclass(frozen=True)
class ApiKey:
    """One line of the file."""

    name: str
    role: Role
    digest: bytes = field(repr=False)  # SHA-256 of the key
    expires: datetime | None = None  # with a time zone

    def expired(self, now: datetime) -> bool:
        """Whether it is no longer valid."""
        return self.expires is not None and now >= self.expires


def new_secret() -> str:
    """A key, as callers send it."""
    return PREFIX + secrets.token_hex(SECRET_BYTES)


def key_line(name: str, role: Role, secret: str, expires: str = "") -> str:
    """What the file has of a key. Raises ValueError: the name or the last day is none."""
    words = [name, role, f"sha256:{digest_of(secret).hex()}", *([expires] if expires else [])]
    parse_key(words)
    return " ".join(words)


def digest_of(secret: str) -> bytes:
    """What the file keeps of a key."""
    return hashlib.sha256(secret.encode()).digest()


def find_key(keys: Sequence[ApiKey], secret: str) -> ApiKey | None:
    """The key that a caller sent. How long it takes says nothing of which it was, or how much of one was right."""
    digest = digest_of(secret)
    matches = [key for key in keys if hmac.compare_digest(key.digest, digest)]
    return matches[0] if matches else None


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The keys of a file, of which there may be none.

    Raises:
        SecurityError: the file cannot be read, or says which lines are wrong. Of what stands in them it repeats nothing, as
            it may be a key.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SecurityError(f"{path}: not a text in UTF-8") from error
    return parse_keys(lines, path)


def parse_keys(lines: Sequence[str], where: object) -> tuple[ApiKey, ...]:
    """The keys of a file's lines. Raises SecurityError as `read_keys`."""
    keys, faults = {}, []
    for number, line in enumerate(lines, 1):
        if words := line.partition(COMMENT)[0].split():
            try:
                keys[number] = parse_key(words)
            except ValueError as error:
                faults.append(f"line {number}: {error}")
    faults += _repeated("name", {number: key.name for number, key in keys.items()})
    faults += _repeated("hash", {number: key.digest for number, key in keys.items()})
    if faults:
        raise SecurityError(f"{where}: {'; '.join(faults)}")
    return tuple(keys.values())


def parse_key(words: Sequence[str]) -> ApiKey:
    """One line's. Raises ValueError."""
    if len(words) not in (3, 4):
        raise ValueError(f"it has {len(words)} of the columns name, role, hash and, if there is one, last day")
    name, role, digest = words[:3]
    if not NAME.fullmatch(name):
        raise ValueError(
            "the name must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with one of the first two"
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
    """When the last day ends, or a moment with its time zone. Raises ValueError."""
    try:
        if len(text) == len("2027-06-30"):
            return datetime.combine(date.fromisoformat(text) + timedelta(days=1), datetime.min.time(), UTC)
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise ValueError("the last day must be as 2027-06-30, or a moment as 2027-06-30T12:00:00Z") from error
    if moment.tzinfo is None:
        raise ValueError("the moment at which it expires has no time zone; UTC is a Z at its end")
    return moment


def _repeated(what: str, values: dict[int, object]) -> list[str]:
    counts = Counter(values.values())
    return [f"line {number}: the {what} stands in another line too" for number, value in values.items() if counts[value] > 1]
