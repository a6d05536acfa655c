"""The server's certificate, its key, and the authorities of its clients: read and tried out before they are used.

Python's ssl does the trying: gRPC itself takes a key that is not the certificate's, and then fails with every client.
"""

import contextlib
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from triptych_serving.errors import SecurityError

NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which ssl has no name for
ED25519 = bytes.fromhex("06032b6570")  # its object identifier
ROUNDS = 4  # of a handshake, at most
DAY_SECONDS = 86_400
SOON_DAYS = 7

Decoded = Mapping[str, Any]  # a certificate as ssl shows it


@dataclass(frozen=True)
class Certificates:
    """What a server shows and asks for, as it stands in the files."""

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None = None
    subject: str = field(default="", compare=False)  # for the log
    warnings: tuple[str, ...] = field(default=(), compare=False)


def read_certificates(chain: Path, key: Path, client_ca: Path | None = None) -> Certificates:
    """The three files' contents.

    Raises:
        SecurityError: one cannot be read, is not what it should be, or the key is not that of the certificate.
    """
    contents = _read(chain, key)
    context = _context(chain, key)
    shown, binary = _try(context, chain)
    if contents != _read(chain, key):  # they were tried by name
        raise SecurityError(f"{chain}, {key}: replaced while they were read")
    authorities = None if client_ca is None else _pem(client_ca, "CERTIFICATE")
    warnings = [*_validity(shown, chain)]
    if ED25519 in binary:
        warnings.append(f"{chain}: clients made with gRPC's core (Python, C++ and others) do not take Ed25519 certificates")
    if client_ca is not None:
        warnings += [warning for authority in _authorities(client_ca) for warning in _validity(authority, client_ca)]
    return Certificates(
        contents[0],
        contents[1],
        authorities,
        f"{_names(shown)} until {shown['notAfter']}",
        tuple(warnings),
    )


def _read(chain: Path, key: Path) -> tuple[bytes, bytes]:
    return _pem(chain, "CERTIFICATE"), _pem(key, "PRIVATE KEY")


def _pem(path: Path, label: str) -> bytes:
    """A PEM file's contents, which have at least one object of a kind."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from error
    if f"{label}-----".encode() not in content:
        raise SecurityError(f"{path}: no {label.lower()} in it; it must be a PEM file, with a line -----BEGIN {label}-----")
    return content


def _context(chain: Path, key: Path) -> ssl.SSLContext:
    """A server's, with the pair."""

    def refuse() -> bytes:
        raise SecurityError(f"{key}: it is encrypted; the server needs it in the clear: openssl pkey -in {key} -out FILE")

    _trust(chain)  # of what is wrong then, the certificate is not the cause
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(chain, key, refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SecurityError(f"{key}: not the key of the certificate {chain}") from error
        raise SecurityError(f"{chain}, {key}: cannot be used: {_reason(error)}") from error
    return context


def _trust(authorities: Path) -> ssl.SSLContext:
    """A client's that takes what these have signed, at any time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise SecurityError(f"{authorities}: a certificate in it is damaged: {_reason(error)}") from error
    return context


def _try(server: ssl.SSLContext, chain: Path) -> tuple[Decoded, bytes]:
    """Shake hands with a client that trusts the certificate itself; that client can also say what is in it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = _trust(chain).wrap_bio(to_client, to_server)
    ends = [client, server.wrap_bio(to_server, to_client, server_side=True)]
    try:
        for end in ends * ROUNDS:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise SecurityError(f"{chain}: no client would take it: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise SecurityError(f"{chain}: no client would take it: {_reason(error)}") from error
    return client.getpeercert() or {}, client.getpeercert(binary_form=True) or b""


def _authorities(path: Path) -> list[Decoded]:
    found: list[Decoded] = list(_trust(path).get_ca_certs())
    if not found:
        raise SecurityError(f"{path}: no certificate in it is an authority's, so no client's could be verified")
    return found


def _validity(certificate: Decoded, path: Path) -> list[str]:
    """What is to be said of a certificate's time."""
    now = time.time()
    begin, end = (ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter"))
    which = f"{path}: the certificate of {_names(certificate)}"
    if now < begin:
        return [f"{which} is not valid before {certificate['notBefore']}; until then it is refused"]
    if now > end:
        return [f"{which} expired at {certificate['notAfter']}; it is refused"]
    if now > end - SOON_DAYS * DAY_SECONDS:
        return [f"{which} expires at {certificate['notAfter']}"]
    return []


def _names(certificate: Decoded) -> str:
    """Alternative names, else the subject's."""
    alternatives = [str(value) for _, value in certificate.get("subjectAltName", ())]
    subject = [str(value) for part in certificate.get("subject", ()) for _, value in part]
    return ", ".join(alternatives or subject[-1:]) or "nobody"


def _reason(error: ssl.SSLError) -> str:
    reason = (error.reason or "PEM").replace("_", " ")
    return "it cannot be decoded" if "PEM" in reason else reason.lower()
