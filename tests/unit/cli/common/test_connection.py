"""How a command reaches a server."""

from pathlib import Path
from typing import Any

import pytest

from triptych_client import Client

from ....fixtures.certificates import Authority
from ..conftest import Run


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a client was made with."""
    made: dict[str, Any] = {}

    def keep(self: Client, address: str, **settings: Any) -> None:
        made.update(settings, address=address)
        raise ValueError("made")

    monkeypatch.setattr(Client, "__init__", keep)
    return made


VERBS = [
    ("translate", "a"),
    ("score", "a", "b"),
    ("fill", "a"),
    ("embed", "a"),
    ("classify-text", "a"),
    ("classify-tokens", "a"),
    ("answer", "a", "--context", "b"),
    ("models",),
    ("load", "toy"),
    ("unload", "toy"),
    ("health",),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_every_verb_that_asks_a_server_takes_credentials(
    run: Run, made: dict[str, Any], tmp_path: Path, verb: tuple[str, ...]
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "key").write_text("secret\n")
    result = run(*verb, "--server", "example.com:1", "--tls-ca", authority.file, "--api-key-file", tmp_path / "key")
    assert result.error == "made"
    assert (made["address"], made["api_key"]) == ("example.com:1", "secret")
    assert made["credentials"] is not None
    assert made["allow_plaintext_keys"] is False


def test_variables(run: Run, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SERVER", "example.com:1"), ("TLS", "true"), ("ALLOW_PLAINTEXT_KEYS", "1")):
        monkeypatch.setenv(f"TRIPTYCH_{name}", value)
    run("models")
    assert made["credentials"] is not None
    assert made["allow_plaintext_keys"] is True
    assert made["api_key"] is None  # the client looks for its variable itself


def test_nothing_is_encrypted_unasked(run: Run, made: dict[str, Any]) -> None:
    run("models", "--server", "example.com:1")
    assert made["credentials"] is None


def test_contradictions(run: Run, tmp_path: Path) -> None:
    file = Authority(tmp_path).file
    server = ("--server", "example.com:1")
    for options, fault in (
        (("--tls-ca", file), "--tls-ca is for a server: name it with --server"),
        ((*server, "--no-tls", "--tls-ca", file), "--tls-ca has no effect with --no-tls"),
        ((*server, "--tls-client-cert", file), "--tls-client-cert and --tls-client-key are a pair"),
    ):
        result = run("models", *options)
        assert result.code == 2
        assert result.error.startswith(fault)


def test_files_that_are_wrong(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    server = ("--server", "example.com:1")
    assert run("models", *server, "--tls-ca", tmp_path / "none").error == f"{tmp_path / 'none'}: No such file or directory"
    assert run("models", *server, "--tls-ca", tmp_path / "empty").error.startswith(
        f"{tmp_path / 'empty'}: no certificate in it"
    )
    assert run("models", *server, "--api-key-file", tmp_path / "empty").error == f"{tmp_path / 'empty'}: no API key in it"


def test_a_key_does_not_go_in_the_clear(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_API_KEY", "secret")
    error = run("models", "--server", "example.com:1").error
    assert error.startswith("without TLS the API key could be read on its way to example.com:1")
    assert "secret" not in error
