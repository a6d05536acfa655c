"""The file of API keys: parsing, errors, and changes."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from triptych_serving.errors import SecurityError
from triptych_serving.security.api_keys import (
    ApiKey,
    Role,
    add_key,
    digest_of,
    find_key,
    key_line,
    new_secret,
    parse_keys,
    read_keys,
    remove_key,
)

HASH = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"


def moment(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[misc, arg-type]


def test_parse() -> None:
    [first, second] = parse_keys(
        ["# name role hash", "", f"app infer {HASH} # the app's", f"  ops\tadmin {OTHER} 2027-06-30"], ""
    )
    assert first == ApiKey("app", Role.INFER, b"\xaa" * 32)
    assert second == ApiKey("ops", Role.ADMIN, b"\xbb" * 32, moment(2027, 7, 1))
    assert not first.expired(moment(9999, 1, 1))
    assert HASH[-8:] not in repr(first)


@pytest.mark.parametrize(
    ("expires", "last", "first"),
    [
        ("2027-06-30", moment(2027, 6, 30, 23, 59, 59), moment(2027, 7, 1)),
        ("2027-06-30T12:00:00Z", moment(2027, 6, 30, 11, 59, 59), moment(2027, 6, 30, 12)),
        ("2027-06-30T12:00:00+02:00", moment(2027, 6, 30, 9, 59, 59), moment(2027, 6, 30, 10)),
    ],
)
def test_expiry(expires: str, last: datetime, first: datetime) -> None:
    [key] = parse_keys([f"app infer {HASH} {expires}"], "")
    assert not key.expired(last)
    assert key.expired(first)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("app infer", "2 columns, expected name, role, hash and optionally last day"),
        (f"app infer {HASH} 2027-06-30 more", "5 columns, expected"),
        (f"-app infer {HASH}", "the name must be 1 to 64 letters"),
        (f"{'a' * 65} infer {HASH}", "the name must be 1 to 64 letters"),
        (f"app root {HASH}", "the role must be infer or admin"),
        (f"app infer {HASH.upper()}", "the hash must be sha256: and 64 hexadecimal digits in lower case"),
        (f"app infer {HASH[:-1]}", "the hash must be sha256: and 64"),
        (f"app infer {HASH} tomorrow", "the last day must look like 2027-06-30"),
        (f"app infer {HASH} 2027-02-30", "the last day must look like 2027-06-30"),
        (f"app infer {HASH} 2027-06-30;12:00:00Z", "the last day must look like 2027-06-30"),
        (f"app infer {HASH} 9999-12-31", "the last day must look like 2027-06-30"),
        (f"app infer {HASH} 2027-06-30T12:00:00", "the moment of expiry has no time zone"),
    ],
)
def test_wrong_line(line: str, fault: str) -> None:
    with pytest.raises(SecurityError, match=f"^keys: line 2: {fault}"):
        parse_keys([f"good infer {OTHER}", line], "keys")


def test_all_wrong_lines_are_listed_without_their_text() -> None:
    secret = new_secret()
    lines = [f"app infer {secret}", "x", f"app infer {HASH}", f"app admin {OTHER}", f"ops admin {HASH}"]
    with pytest.raises(SecurityError) as caught:
        parse_keys(lines, "keys")
    faults = str(caught.value).removeprefix("keys: ").split("; line ")
    assert [fault.removeprefix("line ").partition(":")[0] for fault in faults] == ["1", "2", "3", "4", "3", "5"]
    assert secret not in str(caught.value)


def test_find_key() -> None:
    secrets = [new_secret() for _ in range(5)]
    keys = [ApiKey(str(index), Role.INFER, digest_of(secret)) for index, secret in enumerate(secrets)]
    assert [find_key(keys, secret) for secret in secrets] == keys
    for wrong in ("", "triptych_", secrets[0][:-1], secrets[0].upper(), new_secret(), keys[0].digest.hex()):
        assert find_key(keys, wrong) is None
    digest = hashlib.sha256(secrets[0].encode()).hexdigest()
    assert key_line("app", Role.ADMIN, secrets[0]) == f"app admin sha256:{digest}"


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=f"^{tmp_path}/none: No such file"):
        read_keys(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SecurityError, match="not UTF-8 text"):
        read_keys(tmp_path / "binary")
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(SecurityError, match=f"^{path}: not a plain file$"):
            read_keys(path)


def test_add_and_remove(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    app, ops = add_key(path, "app", Role.INFER), add_key(path, "ops", Role.ADMIN, "2999-01-31")
    assert app != ops
    assert path.stat().st_mode & 0o777 == 0o600
    assert app not in path.read_text()
    found = read_keys(path)
    assert [(key.name, key.role) for key in found] == [("app", Role.INFER), ("ops", Role.ADMIN)]
    assert find_key(found, ops) == found[1]
    remove_key(path, "app")
    assert [key.name for key in read_keys(path)] == ["ops"]
    assert path.read_text().startswith("#")
    assert list(tmp_path.iterdir()) == [path]


def test_changes_keep_other_lines_permissions_and_links(tmp_path: Path) -> None:
    path, link = tmp_path / "keys", tmp_path / "link"
    path.write_text(f"# ours\n\napp infer {HASH}  # of the app\nold infer {OTHER}")
    path.chmod(0o640)
    link.symlink_to(path)
    add_key(link, "new", Role.INFER)
    remove_key(link, "old")
    lines = path.read_text().splitlines()
    assert lines[:3] == ["# ours", "", f"app infer {HASH}  # of the app"]
    assert [line.split()[0] for line in lines[3:]] == ["new"]
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640


def test_no_change_is_lost_to_another_one(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"old infer {HASH}\n", encoding="utf-8-sig")
    names = [f"k{number}" for number in range(8)]
    with ThreadPoolExecutor(len(names) + 1) as pool:
        changes = [pool.submit(add_key, path, name, Role.INFER) for name in names] + [pool.submit(remove_key, path, "old")]
        for change in changes:
            change.result()
    assert sorted(key.name for key in read_keys(path)) == names


@pytest.mark.parametrize(
    ("name", "expires", "fault"),
    [("app", "", "key 'app' exists"), ("a b", "", "the name must be"), ("new", "2020-01-01", "is in the past")]
    + [("new", f"2999-01-31{mark}12:00:00Z", "the last day must look like") for mark in " #\u2028"],
)
def test_invalid_new_key_changes_nothing(tmp_path: Path, name: str, expires: str, fault: str) -> None:
    path = tmp_path / "keys"
    add_key(path, "app", Role.INFER)
    before = path.read_text()
    with pytest.raises(ValueError, match=fault):
        add_key(path, name, Role.INFER, expires)
    with pytest.raises(ValueError, match="no key 'ops'; there are: app"):
        remove_key(path, "ops")
    assert path.read_text() == before


def test_damaged_or_missing_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("app infer x\n")
    for change in (lambda: add_key(path, "new", Role.INFER), lambda: remove_key(path, "app")):
        with pytest.raises(SecurityError, match="line 1: the hash must be"):
            change()
    assert path.read_text() == "app infer x\n"
    with pytest.raises(SecurityError, match="cannot be written: No such file"):
        add_key(tmp_path / "none" / "keys", "app", Role.INFER)
