"""The file of API keys: what its lines mean, and what is said of wrong ones."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from triptych_serving.errors import SecurityError
from triptych_serving.security.api_keys import ApiKey, Role, digest_of, find_key, key_line, new_secret, parse_keys, read_keys
from triptych_serving.security.key_file import add_key, remove_key

HASH = f"sha256:{'a' * 64}"
OTHER = f"sha256:{'b' * 64}"


def moment(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[misc, arg-type]


def test_lines_comments_and_blank_ones() -> None:
    [first, second] = parse_keys(
        ["# name role hash", "", f"app infer {HASH} # the app's", f"  ops\tadmin {OTHER} 2027-06-30"], ""
    )
    assert first == ApiKey("app", Role.INFER, b"\xaa" * 32)
    assert second == ApiKey("ops", Role.ADMIN, b"\xbb" * 32, moment(2027, 7, 1))


@pytest.mark.parametrize(
    ("expires", "last", "first"),
    [
        ("2027-06-30", moment(2027, 6, 30, 23, 59, 59), moment(2027, 7, 1)),
        ("2027-06-30T12:00:00Z", moment(2027, 6, 30, 11, 59, 59), moment(2027, 6, 30, 12)),
        ("2027-06-30T12:00:00+02:00", moment(2027, 6, 30, 9, 59, 59), moment(2027, 6, 30, 10)),
    ],
)
def test_a_key_expires(expires: str, last: datetime, first: datetime) -> None:
    [key] = parse_keys([f"app infer {HASH} {expires}"], "")
    assert not key.expired(last)
    assert key.expired(first)


def test_a_key_without_a_last_day_stays() -> None:
    [key] = parse_keys([f"app infer {HASH}"], "")
    assert not key.expired(moment(9999, 1, 1))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("app infer", "it has 2 of the columns name, role, hash and, if there is one, last day"),
        (f"app infer {HASH} 2027-06-30 more", "it has 5 of the columns"),
        (f"-app infer {HASH}", "the name must be 1 to 64 letters"),
        (f"{'a' * 65} infer {HASH}", "the name must be 1 to 64 letters"),
        (f"app root {HASH}", "the role must be infer or admin"),
        (f"app infer {HASH.upper()}", "the hash must be sha256: and 64 hexadecimal digits in lower case"),
        (f"app infer {HASH[:-1]}", "the hash must be sha256: and 64"),
        (f"app infer {HASH} tomorrow", "the last day must be as 2027-06-30"),
        (f"app infer {HASH} 2027-02-30", "the last day must be as 2027-06-30"),
        (f"app infer {HASH} 9999-12-31", "the last day must be as 2027-06-30"),
        (f"app infer {HASH} 2027-06-30T12:00:00", "the moment at which it expires has no time zone"),
    ],
)
def test_a_faulty_line(line: str, fault: str) -> None:
    with pytest.raises(SecurityError, match=f"^keys: line 2: {fault}"):
        parse_keys([f"good infer {OTHER}", line], "keys")


def test_all_faulty_lines_are_listed_and_none_is_repeated() -> None:
    secret = new_secret()
    lines = [f"app infer {secret}", "x", f"app infer {HASH}", f"app admin {OTHER}", f"ops admin {HASH}"]
    with pytest.raises(SecurityError) as caught:
        parse_keys(lines, "keys")
    faults = str(caught.value).removeprefix("keys: ").split("; line ")
    assert [fault.removeprefix("line ").partition(":")[0] for fault in faults] == ["1", "2", "3", "4", "3", "5"]
    assert secret not in str(caught.value)


def test_the_hash_is_the_keys_sha256() -> None:
    secret = new_secret()
    assert key_line("app", Role.ADMIN, secret) == f"app admin sha256:{hashlib.sha256(secret.encode()).hexdigest()}"


def test_only_the_very_key_is_found() -> None:
    secrets = [new_secret() for _ in range(5)]
    keys = [ApiKey(str(index), Role.INFER, digest_of(secret)) for index, secret in enumerate(secrets)]
    assert [find_key(keys, secret) for secret in secrets] == keys
    for wrong in ("", "triptych_", secrets[0][:-1], secrets[0].upper(), new_secret(), keys[0].digest.hex()):
        assert find_key(keys, wrong) is None


def test_a_key_does_not_show_its_hash() -> None:
    assert HASH[-8:] not in repr(parse_keys([f"app infer {HASH}"], ""))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=f"^{tmp_path}/none: No such file"):
        read_keys(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SecurityError, match="not a text in UTF-8"):
        read_keys(tmp_path / "binary")


def test_keys_come_and_go(tmp_path: Path) -> None:
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


def test_what_else_stands_in_the_file_stays(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("name", "expires", "fault"),
    [("app", "", "there is a key 'app' already"), ("a b", "", "the name must be"), ("new", "2020-01-01", "is over")],
)
def test_a_key_that_cannot_be_made_changes_nothing(tmp_path: Path, name: str, expires: str, fault: str) -> None:
    path = tmp_path / "keys"
    add_key(path, "app", Role.INFER)
    before = path.read_text()
    with pytest.raises(ValueError, match=fault):
        add_key(path, name, Role.INFER, expires)
    assert path.read_text() == before


def test_a_key_that_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    add_key(path, "app", Role.INFER)
    with pytest.raises(ValueError, match="no key 'ops' in it; there are: app"):
        remove_key(path, "ops")


def test_a_damaged_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("app infer x\n")
    for change in (lambda: add_key(path, "new", Role.INFER), lambda: remove_key(path, "app")):
        with pytest.raises(SecurityError, match="line 1: the hash must be"):
            change()
    assert path.read_text() == "app infer x\n"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="cannot be written: No such file"):
        add_key(tmp_path / "none" / "keys", "app", Role.INFER)
