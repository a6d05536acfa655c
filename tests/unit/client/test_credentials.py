"""API keys and TLS."""

import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives import serialization

from triptych_client import Client, UnavailableError, tls_credentials
from triptych_client.call import is_transient
from triptych_client.connection import is_local
from triptych_client.status import Details, build_error

from ...fixtures.certificates import Authority
from .conftest import Ask
from .fake_server import FakeServer

KEY = "triptych_0123456789abcdef"


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIPTYCH_API_KEY", raising=False)


def sent(server: FakeServer, ask: Ask, question: Any, **settings: Any) -> Any:
    """Return the `authorization` metadata of a call."""
    ask(server.address, question, **settings)
    return server.metadata[-1].get("authorization")


@pytest.mark.parametrize(
    "question",
    [
        lambda client: client.translate("a"),
        lambda client: client.models(),
        lambda client: client.translate_document(b"a", format="text"),
    ],
)
def test_every_call_sends_the_key(server: FakeServer, ask: Ask, question: Any) -> None:
    assert sent(server, ask, question, api_key=KEY) == f"Bearer {KEY}"
    assert sent(server, ask, question) is None


def test_the_key_may_come_from_the_environment(server: FakeServer, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_API_KEY", f"{KEY}\n")
    assert sent(server, ask, lambda client: client.models()) == f"Bearer {KEY}"
    assert sent(server, ask, lambda client: client.models(), api_key="other") == "Bearer other"
    assert sent(server, ask, lambda client: client.models(), api_key="") is None


@pytest.mark.parametrize(
    ("key", "place"), [("two words", "4 of 9 is U+0020"), ("ends\n", "5 of 5 is U+000A"), ("schlüssel", "5 of 9 is U+00FC")]
)
def test_a_key_that_no_header_can_carry_is_rejected_with_the_position(key: str, place: str) -> None:
    with pytest.raises(ValueError, match=rf"api_key: character {re.escape(place)}") as caught:
        Client("localhost:1", api_key=key)
    assert key.strip() not in str(caught.value)


def test_keys_are_neither_sent_without_tls_nor_shown() -> None:
    with pytest.raises(ValueError, match=r"without TLS the API key could be read on its way to example.com:1") as caught:
        Client("example.com:1", api_key=KEY)
    assert KEY not in str(caught.value)
    Client("example.com:1", api_key=KEY, allow_plaintext_keys=True).close()
    Client("example.com:1", api_key=KEY, credentials=tls_credentials()).close()
    Client("example.com:1").close()
    with Client("localhost:1", api_key=KEY) as client:
        assert KEY not in repr(client._settings)
        assert KEY not in repr(client._call())


@pytest.mark.parametrize(
    ("address", "local"),
    [
        *((address, True) for address in ("localhost:1", "localhost", "127.0.0.1:1", "[::1]:1", "::1", "unix:/run/socket")),
        *((address, True) for address in ("ipv4:127.0.0.1:1", "ipv6:[::1]:1", "dns:///localhost:1", "dns:localhost:1")),
        *((address, False) for address in ("example.com:1", "10.0.0.1:1", "[2001:db8::1]:1", "localhost.example.com:1")),
        *((address, False) for address in ("ipv4:10.0.0.1:1", "dns:///example.com:1", "dns://127.0.0.1/example.com:1", "")),
    ],
)
def test_local_addresses(address: str, local: bool) -> None:
    assert is_local(address) is local


def test_tls_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("client")
    assert isinstance(tls_credentials(authority.file, pair.certificate, pair.key), grpc.ChannelCredentials)
    assert isinstance(tls_credentials(str(authority.file)), grpc.ChannelCredentials)
    with pytest.raises(ValueError, match="a pair: give both or neither"):
        tls_credentials(certificate=pair.certificate)
    with pytest.raises(ValueError, match=f"^{pair.key}: no certificate in it"):
        tls_credentials(pair.key)
    with pytest.raises(FileNotFoundError):
        tls_credentials(tmp_path / "none")


def test_keys_that_grpc_cannot_use_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.sign("client"), authority.sign("other")
    encrypted, damaged = tmp_path / "encrypted", tmp_path / "damaged"
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    password = serialization.BestAvailableEncryption(b"secret")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encrypted.write_bytes(key.private_bytes(pem, pkcs8, password))
    damaged.write_bytes(pair.key.read_bytes().replace(b"\nM", b"\n!"))
    for file, problem in (
        (other.key, f"{other.key}: does not belong to the certificate {pair.certificate}"),
        (encrypted, f"{encrypted}: encrypted; it must not be: openssl pkey -in {encrypted} -out FILE"),
        (damaged, f"{pair.certificate}, {damaged}: damaged: one of them cannot be decoded"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
            tls_credentials(authority.file, pair.certificate, file)


@pytest.mark.parametrize(
    ("message", "hint", "again"),
    [
        (
            "SSL routines:CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate: OK",
            "`tls_credentials(ca=...)`",
            False,
        ),
        ("CERTIFICATE_VERIFY_FAILED: self signed certificate: OK", "`tls_credentials(ca=...)`", False),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "expired: OK", False),
        ("UNAUTHENTICATED: Hostname Verification Check failed.", "does not have the host name", False),
        ("SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid", "does not speak TLS", False),
        (
            "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed",
            "it requires TLS",
            True,
        ),
        ("failed to connect to all addresses; Connection refused", "Connection refused", True),
        ("Socket closed", "Socket closed", True),
    ],
)
def test_tls_failures_have_a_hint_and_are_not_retried(message: str, hint: str, again: bool) -> None:
    error = build_error(grpc.StatusCode.UNAVAILABLE, message, Details(), "")
    assert isinstance(error, UnavailableError)
    assert hint in error.message
    assert is_transient(error) is again
