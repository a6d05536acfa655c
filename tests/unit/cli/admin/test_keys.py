"""`triptych keys`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from triptych_serving.security.api_keys import find_key, read_keys

from ..conftest import Run


@pytest.fixture
def keys(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys"
    monkeypatch.setenv("TRIPTYCH_API_KEYS", str(path))
    return path


def test_keys_are_printed_once_listed_and_revoked(run: Run, keys: Path) -> None:
    result = run("keys", "create", "app", "--expires", "2999-12-30")
    assert (result.code, result.err) == (0, "")
    secret = result.out.strip()
    found = find_key(read_keys(keys), secret)
    assert found is not None
    assert (found.name, found.role) == ("app", "infer")
    assert secret not in keys.read_text()
    assert run("keys", "list").out.splitlines() == [
        "name  role   expires                    state",
        "app   infer  2999-12-31T00:00:00+00:00  valid",
    ]
    keys.write_text(f"old admin sha256:{'a' * 64} 2020-01-01\n")
    assert json.loads(run("keys", "list", "--json").out) == [
        {"name": "old", "role": "admin", "expires": "2020-01-02T00:00:00+00:00", "state": "expired"}
    ]
    keys.unlink()
    run("keys", "create", "app")
    run("keys", "create", "ops", "--role", "admin")
    assert run("keys", "revoke", "app").code == 0
    assert [key.name for key in read_keys(keys)] == ["ops"]
    assert run("keys", "revoke", "app").error == f"{keys}: no key 'app'; there are: ops"


def test_a_key_that_cannot_be_shown_is_not_kept(run: Run, keys: Path) -> None:
    run("keys", "create", "app")
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "triptych_cli", "keys", "create", "other"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, "Error: standard output: No space left on device\n")
    assert [key.name for key in read_keys(keys)] == ["app"]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["create", "app"], "key 'app' exists"),
        (["create", "a b"], "the name must be 1 to 64 letters"),
        (["create", "b", "--expires", "soon"], "the last day must look like 2027-06-30"),
        (["create", "b", "--expires", "2020-01-01"], "the last day, 2020-01-01, is in the past"),
        (["create", "b", "--role", "root"], "'root' is not one of 'infer', 'admin'"),
    ],
)
def test_mistakes_are_one_line(run: Run, keys: Path, arguments: list[str], fault: str) -> None:
    run("keys", "create", "app")
    assert fault in run("keys", *arguments).error


def test_the_file_must_be_named_and_exist(run: Run, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("keys", "list").error == f"{keys}: No such file or directory"
    monkeypatch.delenv("TRIPTYCH_API_KEYS")
    assert run("keys", "list").error.startswith("Missing option '--api-keys'")
