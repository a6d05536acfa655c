"""Certificates are tried out before they are used."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from triptych_serving.errors import SecurityError
from triptych_serving.security.certificates import read_certificates

from ....fixtures.certificates import DAY, LOCAL, NOW, Authority, Pair

HOUR = timedelta(hours=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def fault_of(pair: Pair, client_ca: Path | None = None) -> str:
    with pytest.raises(SecurityError) as caught:
        read_certificates(pair.certificate, pair.key, client_ca)
    return str(caught.value)


def test_contents_and_names(authority: Authority) -> None:
    pair = authority.sign("server", *LOCAL)
    found = read_certificates(pair.certificate, pair.key, authority.file)
    assert (found.chain, found.key) == (pair.certificate.read_bytes(), pair.key.read_bytes())
    assert found.client_ca == authority.file.read_bytes()
    assert found.subject.startswith("localhost, 127.0.0.1 until ")
    assert found.warnings == ()
    assert "BEGIN PRIVATE KEY" not in repr(found)


def test_a_name_without_alternatives(authority: Authority) -> None:
    pair = authority.sign("server")
    assert read_certificates(pair.certificate, pair.key).subject.startswith("server until ")


@pytest.mark.parametrize(
    ("begin", "end", "warning"),
    [
        (NOW - 2 * DAY, NOW - DAY, "expired at"),
        (NOW + DAY, NOW + 2 * DAY, "is not valid before"),
        (NOW - DAY, NOW + HOUR, "expires at"),
    ],
)
def test_times_are_warned_of(authority: Authority, begin: datetime, end: datetime, warning: str) -> None:
    pair = authority.sign("server", *LOCAL, begin=begin, end=end)
    [found] = read_certificates(pair.certificate, pair.key).warnings
    assert found.startswith(f"{pair.certificate}: the certificate of localhost, 127.0.0.1 {warning} ")


def test_a_key_of_another_certificate(authority: Authority) -> None:
    first, second = authority.sign("first"), authority.sign("second")
    assert fault_of(Pair(first.certificate, second.key)) == f"{second.key}: not the key of the certificate {first.certificate}"


def test_files_that_are_not_there(authority: Authority, tmp_path: Path) -> None:
    pair, none = authority.sign("server"), tmp_path / "none"
    for missing in (Pair(none, pair.key), Pair(pair.certificate, none)):
        assert fault_of(missing) == f"{none}: No such file or directory"
    assert fault_of(pair, none) == f"{none}: No such file or directory"


def test_files_that_are_something_else(authority: Authority) -> None:
    pair = authority.sign("server")
    assert fault_of(Pair(pair.key, pair.certificate)).startswith(f"{pair.key}: no certificate in it; it must be a PEM file")
    assert fault_of(Pair(pair.certificate, pair.certificate)).startswith(f"{pair.certificate}: no private key in it")
    assert fault_of(pair, pair.key).startswith(f"{pair.key}: no certificate in it")


def test_a_damaged_certificate(authority: Authority) -> None:
    pair = authority.sign("server")
    lines = pair.certificate.read_text().splitlines(keepends=True)
    pair.certificate.write_text("".join(lines[:2] + lines[-1:]))
    assert fault_of(pair) == f"{pair.certificate}: a certificate in it is damaged: it cannot be decoded"


def test_an_encrypted_key(authority: Authority) -> None:
    pair = authority.sign("server")
    key = load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    assert fault_of(pair).startswith(f"{pair.key}: it is encrypted; the server needs it in the clear: openssl pkey")


def test_authorities_must_be_authorities(authority: Authority) -> None:
    pair = authority.sign("server")
    assert fault_of(pair, pair.certificate).startswith(f"{pair.certificate}: no certificate in it is an authority's")
