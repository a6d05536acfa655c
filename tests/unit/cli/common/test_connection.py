"""Connections to servers: credentials, and errors without them."""

from pathlib import Path
from typing import Any

import pytest

from triptych_client import Client

from ....fixtures.certificates import Authority
from ..conftest import Run

SERVER = ("--server", "example.com:1")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of the last client."""
    made: dict[str, Any] = {}

    def keep(self: Client, address: str, **settings: Any) -> None:
        made.update(settings, address=address)
        raise ValueError("made")

    monkeypatch.setattr(Client, "__init__", keep)
    return made


COMMANDS = [
    ("translate", "a"),
    ("score", "a", "b"),
    ("fill", "a"),
    ("answer", "a", "--context", "b"),
    ("models",),
    ("load", "toy"),
    ("unload", "toy"),
    ("health",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_for_servers_take_credentials(
    run: Run, made: dict[str, Any], tmp_path: Path, command: tuple[str, ...]
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "key").write_bytes(b"\xef\xbb\xbfsecret\r\n")  # as editors on Windows save it
    result = run(*command, *SERVER, "--tls-ca", authority.file, "--api-key-file", tmp_path / "key")
    assert result.error == "made"
    assert (made["address"], made["api_key"]) == ("example.com:1", "secret")
    assert made["credentials"] is not None
    assert made["allow_plaintext_keys"] is False


def test_variables(run: Run, made: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run("models", *SERVER)
    assert made["credentials"] is None
    for name, value in (("SERVER", "example.com:1"), ("TLS", "true"), ("ALLOW_PLAINTEXT_KEYS", "1")):
        monkeypatch.setenv(f"TRIPTYCH_{name}", value)
    run("models")
    assert made["credentials"] is not None
    assert made["allow_plaintext_keys"] is True
    assert made["api_key"] is None  # the client reads its variable itself


NOT_UTF8 = "a \udcff b"
LARGE = "99999999999"


@pytest.mark.parametrize(
    "command",
    [
        *(("attend", NOT_UTF8), ("rerank", NOT_UTF8, "a"), ("generate", NOT_UTF8), ("neighbors", NOT_UTF8)),
        *(("answer", "a", "--context", NOT_UTF8), ("fill", "a", "--targets", NOT_UTF8), ("load", NOT_UTF8)),
        *(("translate", "a", option, NOT_UTF8) for option in ("--target-prefix", "--suppress", "--target-language", "--model")),
        *(("translate", "--stream", "a", "--model", NOT_UTF8), ("translate-docs", __file__, "--out", "-", "--format", "text")),
        *(("fill", "a", "--top-k", LARGE), ("rerank", "a", "b", "--top-k", LARGE), ("generate", "a", "--max-tokens", LARGE)),
    ],
    ids=" ".join,
)
def test_arguments_that_cannot_be_sent_are_errors(run: Run, command: tuple[str, ...]) -> None:
    more = ("--model", NOT_UTF8) if command[0] == "translate-docs" else ()
    error = run(*command, *more, "--server", "localhost:1").error
    assert "surrogate" in error or f"is {LARGE}, must be from 0 to 4,294,967,295" in error


def test_unusable_credentials_are_errors(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Authority(tmp_path).file
    for options, fault in (
        (("--tls-ca", file), "--tls-ca is for a server: name it with --server"),
        ((*SERVER, "--no-tls", "--tls-ca", file), "--tls-ca has no effect with --no-tls"),
        ((*SERVER, "--tls-client-cert", file), "--tls-client-cert and --tls-client-key are a pair"),
        (("--server", "https://example.com", "--no-tls"), "https:// and --no-tls contradict each other"),
    ):
        result = run("models", *options)
        assert result.code == 2
        assert result.error.startswith(fault)
    missing, empty = tmp_path / "none", tmp_path / "empty"
    empty.touch()
    assert run("models", *SERVER, "--tls-ca", missing).error == f"{missing}: No such file or directory"
    assert run("models", *SERVER, "--tls-ca", empty).error.startswith(f"{empty}: no certificate in it")
    assert run("models", *SERVER, "--api-key-file", empty).error == f"{empty}: the file has no API key"
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff")
    assert run("models", *SERVER, "--api-key-file", binary).error == f"{binary}: not an API key, which is ASCII text"
    monkeypatch.setenv("TRIPTYCH_API_KEY", "secret")
    error = run("models", *SERVER).error
    assert error.startswith("without TLS the API key could be read on its way to example.com:1")
    assert "secret" not in error
