"""TLS of the server's port: certificates are checked before they are used, and reloaded while the server runs.

Python's ssl does the checks: gRPC itself accepts a key of another certificate, and then fails with every client.
"""

import codecs
import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc

from triptych_serving.errors import SecurityError
from triptych_serving.security.options import SecurityOptions
from triptych_serving.security.secret_files import ReloadedFiles, check_plain, warn_if_open

logger = logging.getLogger(__name__)

NO_CHECK_TIME = ssl.VerifyFlags(0x200000)  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which ssl has no name
ED25519 = bytes.fromhex("06032b6570")  # object identifier
HANDSHAKE_ROUNDS = 4  # at most
DAY_SECONDS = 86_400
EXPIRES_SOON_DAYS = 7

DecodedCertificate = Mapping[str, Any]  # in the form of ssl's getpeercert()


@dataclass(frozen=True)
class Certificates:
    """The contents of a server's certificate files, PEM."""

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    subject: str = field(compare=False)  # for the log
    warnings: tuple[str, ...] = field(compare=False)
    context: ssl.SSLContext = field(compare=False, repr=False)  # for a server without gRPC


def open_certificates(options: SecurityOptions) -> ReloadedFiles[Certificates] | None:
    """Open the certificate files of all ports of a server; None without TLS.

    Raises:
        SecurityError: a file cannot be used.
    """
    if options.tls_certificate is None or options.tls_key is None:
        return None
    chain, key, client_ca = options.tls_certificate, options.tls_key, options.tls_client_ca
    warn_if_open(key)
    paths = [chain, key, *([client_ca] if client_ca else [])]
    read = partial(read_certificates, chain, key, client_ca)
    files = ReloadedFiles(f"TLS certificate {chain}", paths, read, on_change=_describe)
    _describe(files.get())
    return files


def server_credentials(files: ReloadedFiles[Certificates]) -> grpc.ServerCredentials:
    """Make the credentials of gRPC's port. New certificates are used at the next connection."""
    given = first = files.get()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Return new certificates, or None if nothing has changed. gRPC calls it at every connection, in its own threads."""
        nonlocal given
        found = files.get()
        if found is given:
            return None
        given = found
        return _configuration(found)

    # The type stubs do not know that None means no change.
    fetch_new = cast("Callable[[], grpc.ServerCertificateConfiguration]", fetch)
    return grpc.dynamic_ssl_server_credentials(
        _configuration(first), fetch_new, require_client_authentication=first.client_ca is not None
    )


def server_context(files: ReloadedFiles[Certificates]) -> ssl.SSLContext:
    """Make the context of a port without gRPC. New certificates are used at the next connection."""
    first, changed = files.get(), False

    def use_newest(connection: ssl.SSLObject | ssl.SSLSocket, _name: object, _context: ssl.SSLContext) -> int | None:
        nonlocal changed
        newest = files.get()
        connection.context = newest.context
        changed = changed or newest.client_ca != first.client_ca
        # The first context keeps the sessions, and a resumed one (of TLS 1.2, see below) is not verified again.
        return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE if changed and connection.session_reused else None

    first.context.sni_callback = use_newest
    first.context.sslobject_class = _LoggedConnection
    return first.context


class _LoggedConnection(ssl.SSLObject):
    """A connection whose failed handshake is logged: asyncio closes it without a word."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLCertVerificationError as error:
            logger.info("TLS handshake failed: the client's certificate is rejected: %s", error.verify_message)
            raise
        except ssl.SSLError as error:
            logger.info("TLS handshake failed: %s", _reason(error))
            raise


def certificate_names_of(connection: ssl.SSLObject | None) -> tuple[bytes, ...]:
    """Return the names in the client's verified certificate."""
    certificate: DecodedCertificate = (connection and connection.getpeercert()) or {}
    return tuple(name.encode() for name in _names(certificate))


def read_certificates(chain: Path, key: Path, client_ca: Path | None = None) -> Certificates:
    """Read and check certificate, key and the authorities of clients.

    Raises:
        SecurityError: a file cannot be read or has other contents, or the key does not belong to the certificate.
    """
    contents = _read_pair(chain, key)
    context = _server_context(chain, key)
    decoded, binary = _handshake(context, chain)
    if contents != _read_pair(chain, key):  # the checks opened the files by name
        raise SecurityError(f"{chain}, {key}: replaced while they were read")
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0  # no resumption in TLS 1.3: it would not verify a client whose authority was removed meanwhile
    authorities = None if client_ca is None else _read_pem(client_ca, "CERTIFICATE")
    warnings = [*_validity_warnings(decoded, chain)]
    if ED25519 in binary:
        warnings.append(f"{chain}: clients based on gRPC's core (Python, C++ and others) reject Ed25519 certificates")
    if client_ca is not None:
        warnings += [each for authority in _authorities(client_ca) for each in _validity_warnings(authority, client_ca)]
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    subject = f"{_subject(decoded)} until {decoded['notAfter']}"
    return Certificates(*contents, authorities, subject, tuple(warnings), context)


def _describe(certificates: Certificates) -> None:
    for warning in certificates.warnings:
        logger.warning("%s", warning)
    logger.info("TLS certificate: %s", certificates.subject)


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(certificates.key, certificates.chain)], certificates.client_ca)


def _read_pair(chain: Path, key: Path) -> tuple[bytes, bytes]:
    return _read_pem(chain, "CERTIFICATE"), _read_pem(key, "PRIVATE KEY")


def _read_pem(path: Path, label: str) -> bytes:
    try:
        check_plain(path)
        content = path.read_bytes()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from error
    if f"{label}-----".encode() not in content:
        raise SecurityError(f"{path}: no {label.lower()} found; it must be a PEM file with a line -----BEGIN {label}-----")
    return content.removeprefix(codecs.BOM_UTF8)  # with it gRPC finds no certificate, but ssl does


def _server_context(chain: Path, key: Path) -> ssl.SSLContext:
    def refuse_password() -> bytes:
        raise SecurityError(f"{key}: encrypted; the server needs it unencrypted: openssl pkey -in {key} -out FILE")

    _client_context(chain)  # after this, errors are not the certificate's fault
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(chain, key, refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SecurityError(f"{key}: does not belong to the certificate {chain}") from error
        raise SecurityError(f"{chain}, {key}: cannot be used: {_reason(error)}") from error
    return context


def _client_context(authorities: Path) -> ssl.SSLContext:
    """Make the context of a client that trusts these authorities, at any time."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    try:
        context.load_verify_locations(authorities)
    except ssl.SSLError as error:
        raise SecurityError(f"{authorities}: damaged certificate: {_reason(error)}") from error
    return context


def _handshake(server: ssl.SSLContext, chain: Path) -> tuple[DecodedCertificate, bytes]:
    """Shake hands with a client that trusts the certificate itself; return the certificate, decoded and binary."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = _client_context(chain).wrap_bio(to_client, to_server)
    ends = [client, server.wrap_bio(to_server, to_client, server_side=True)]
    try:
        for end in ends * HANDSHAKE_ROUNDS:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise SecurityError(f"{chain}: clients would reject it: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise SecurityError(f"{chain}: clients would reject it: {_reason(error)}") from error
    return client.getpeercert() or {}, client.getpeercert(binary_form=True) or b""


def _authorities(path: Path) -> list[DecodedCertificate]:
    found: list[DecodedCertificate] = list(_client_context(path).get_ca_certs())
    if not found:
        raise SecurityError(f"{path}: no certificate of an authority found, so no client could be verified")
    return found


def _validity_warnings(certificate: DecodedCertificate, path: Path) -> list[str]:
    now = time.time()
    begin, end = (ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter"))
    subject = f"{path}: the certificate of {_subject(certificate)}"
    if now < begin:
        return [f"{subject} is not valid before {certificate['notBefore']}; clients reject it until then"]
    if now > end:
        return [f"{subject} expired at {certificate['notAfter']}; clients reject it"]
    if now > end - EXPIRES_SOON_DAYS * DAY_SECONDS:
        return [f"{subject} expires at {certificate['notAfter']}"]
    return []


def _subject(certificate: DecodedCertificate) -> str:
    return ", ".join(_names(certificate)) or "(no name)"


def _names(certificate: DecodedCertificate) -> list[str]:
    """Return the alternative names, or else the subject's common name, as gRPC does."""
    alternatives = [str(value) for _, value in certificate.get("subjectAltName", ())]
    common = [str(value) for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return alternatives or common[-1:]


def _reason(error: ssl.SSLError) -> str:
    reason = (error.reason or "PEM").replace("_", " ")
    return "it cannot be decoded" if "PEM" in reason else reason.lower()
