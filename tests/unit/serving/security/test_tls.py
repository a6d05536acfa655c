"""Certificates are checked before they are used."""

import codecs
import logging
import os
import ssl
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, load_pem_private_key

from triptych_serving.errors import SecurityError
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.tls import open_certificates, read_certificates, server_context, server_credentials

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
    unnamed = authority.sign("server")
    assert read_certificates(unnamed.certificate, unnamed.key).subject.startswith("server until ")


def test_a_byte_order_mark_is_left_out(authority: Authority) -> None:
    pair = authority.sign("server", *LOCAL)
    content = pair.certificate.read_bytes()
    pair.certificate.write_bytes(codecs.BOM_UTF8 + content)
    assert read_certificates(pair.certificate, pair.key).chain == content


@pytest.mark.parametrize(
    ("begin", "end", "warning"),
    [
        (NOW - 2 * DAY, NOW - DAY, "expired at"),
        (NOW + DAY, NOW + 2 * DAY, "is not valid before"),
        (NOW - DAY, NOW + HOUR, "expires at"),
    ],
)
def test_validity_warnings(authority: Authority, begin: datetime, end: datetime, warning: str) -> None:
    pair = authority.sign("server", *LOCAL, begin=begin, end=end)
    [found] = read_certificates(pair.certificate, pair.key).warnings
    assert found.startswith(f"{pair.certificate}: the certificate of localhost, 127.0.0.1 {warning} ")


def test_wrong_files(authority: Authority, tmp_path: Path) -> None:
    pair, other, none = authority.sign("server"), authority.sign("other"), tmp_path / "none"
    chain, key = pair.certificate, pair.key
    assert fault_of(Pair(chain, other.key)) == f"{other.key}: does not belong to the certificate {chain}"
    for missing in (Pair(none, key), Pair(chain, none)):
        assert fault_of(missing) == f"{none}: No such file or directory"
    assert fault_of(pair, none) == f"{none}: No such file or directory"
    os.mkfifo(fifo := tmp_path / "fifo")
    for pipe in (Pair(fifo, key), Pair(chain, fifo)):
        assert fault_of(pipe) == f"{fifo}: not a plain file"
    assert fault_of(pair, fifo) == f"{fifo}: not a plain file"
    assert fault_of(Pair(key, chain)).startswith(f"{key}: no certificate found; it must be a PEM file")
    assert fault_of(Pair(chain, chain)).startswith(f"{chain}: no private key found")
    assert fault_of(pair, key).startswith(f"{key}: no certificate found")
    assert fault_of(pair, chain).startswith(f"{chain}: no certificate of an authority found")


def test_damaged_certificate(authority: Authority) -> None:
    pair = authority.sign("server")
    lines = pair.certificate.read_text().splitlines(keepends=True)
    pair.certificate.write_text("".join(lines[:2] + lines[-1:]))
    assert fault_of(pair) == f"{pair.certificate}: damaged certificate: it cannot be decoded"


def test_encrypted_key(authority: Authority) -> None:
    pair = authority.sign("server")
    key = load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    assert fault_of(pair).startswith(f"{pair.key}: encrypted; the server needs it unencrypted: openssl pkey")


def test_new_certificates_are_logged_once_for_all_ports(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    pair = authority.sign("server", *LOCAL)
    files = open_certificates(SecurityOptions(tls_certificate=pair.certificate, tls_key=pair.key))
    assert files is not None
    server_credentials(files)
    server_context(files)
    caplog.set_level(logging.INFO)
    caplog.clear()
    authority.sign("server", "other.example", end=NOW + DAY)
    assert [files.get(), files.get()] == [files.get()] * 2
    messages = [message.split(" ", 2)[1:] for message in caplog.messages]
    assert [begin for begin, _ in messages] == ["certificate", "the", "certificate:"]  # reloaded, expires soon, names
    assert messages[0][1] == f"{pair.certificate}: reloaded"
    assert messages[2][1].startswith("other.example until ")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_not_resumed_after_its_authority_was_removed(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """The client of a resumed session is not verified again."""
    pair, own = authority.sign("server", *LOCAL), authority.sign("client")
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(authority.file.read_bytes())
    files = open_certificates(SecurityOptions(tls_certificate=pair.certificate, tls_key=pair.key, tls_client_ca=trusted))
    assert files is not None
    server = server_context(files)
    client = ssl.create_default_context(cafile=str(authority.file))
    client.load_cert_chain(own.certificate, own.key)
    client.maximum_version = version
    session = None

    def connect() -> ssl.SSLSession | None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        connection = client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session)
        accepted = server.wrap_bio(to_server, to_client, server_side=True)
        for end in (connection, accepted) * 3:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        accepted.write(b"x")
        assert connection.read(1) == b"x"  # after the tickets of TLS 1.3
        kept = connection.session
        for end in (connection, accepted, connection):  # otherwise OpenSSL drops the session
            with suppress(ssl.SSLWantReadError):
                end.unwrap()
        return kept

    for _ in range(2):
        session = connect()
    trusted.write_bytes(Authority(tmp_path, "new").file.read_bytes())
    with pytest.raises(ssl.SSLError):
        connect()
