"""TLS credentials and API keys."""

import ipaddress
import os
from pathlib import Path
from typing import TypeAlias

import grpc

API_KEY_VARIABLE = "TRIPTYCH_API_KEY"
ChannelCredentials: TypeAlias = grpc.ChannelCredentials

LOCAL_SCHEMES = ("unix", "unix-abstract")


def tls_credentials(
    ca: str | Path | None = None, certificate: str | Path | None = None, key: str | Path | None = None
) -> ChannelCredentials:
    """Read TLS credentials from PEM files.

        Client("translate.example.com:8001", credentials=tls_credentials("ca.pem"))

    Args:
        ca: Certificates of the authorities to trust; by default those that gRPC trusts.
        certificate: Certificate of the client, for servers that require one, followed by intermediate certificates.
        key: Unencrypted key of `certificate`.

    Raises:
        OSError: A file cannot be read.
        ValueError: `certificate` without `key` or vice versa, or a file is not a PEM file of its kind.
    """
    if (certificate is None) != (key is None):
        raise ValueError("certificate and key are a pair: give both or neither")
    return grpc.ssl_channel_credentials(
        root_certificates=_read(ca, "CERTIFICATE"),
        private_key=_read(key, "PRIVATE KEY"),
        certificate_chain=_read(certificate, "CERTIFICATE"),
    )


def default_api_key() -> str:
    """Return the environment variable TRIPTYCH_API_KEY, or an empty string."""
    return os.environ.get(API_KEY_VARIABLE, "").strip()


def check_api_key(key: str) -> None:
    """Reject a key that a header cannot carry. Raises ValueError, without the key in its message."""
    if not all("!" <= letter <= "~" for letter in key):
        raise ValueError("api_key has white space or non-ASCII characters")


def is_local(address: str) -> bool:
    """Return whether the address is on this machine."""
    scheme, _, rest = address.partition(":")
    if scheme in LOCAL_SCHEMES:
        return True
    target = rest.lstrip("/").rpartition("/")[2] if scheme in ("dns", "ipv4", "ipv6") else address
    host = target.rpartition(":")[0] if has_port(target) else target
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def has_port(target: str) -> bool:
    """Return whether a port follows the host."""
    # IPv6 addresses contain colons; with a port, they are in brackets.
    return target.count(":") == 1 or "]:" in target


def _read(path: str | Path | None, label: str) -> bytes | None:
    if path is None:
        return None
    content = Path(path).read_bytes()
    # gRPC itself would fail at every call, without a reason.
    if f"{label}-----".encode() not in content:
        raise ValueError(f"{path}: no {label.lower()} in it; it must be a PEM file with a line -----BEGIN {label}-----")
    return content
