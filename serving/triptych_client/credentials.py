"""How a client shows who it is, and makes sure of the server."""

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
    """Credentials for TLS, from PEM files.

        Client("translate.example.com:8001", credentials=tls_credentials("ca.pem"))

    Args:
        ca: The authorities that may have signed the server's certificate; by default those that are commonly trusted.
        certificate: The client's own, for servers that ask for one, with the certificates between it and the authority's.
        key: The key of `certificate`, not encrypted.

    Raises:
        OSError: A file cannot be read.
        ValueError: `certificate` without `key`, or the other way about, or a file is not a PEM file of its kind.
    """
    if (certificate is None) != (key is None):
        raise ValueError("certificate and key are a pair: give both or neither")
    return grpc.ssl_channel_credentials(
        root_certificates=_read(ca, "CERTIFICATE"),
        private_key=_read(key, "PRIVATE KEY"),
        certificate_chain=_read(certificate, "CERTIFICATE"),
    )


def default_api_key() -> str:
    """The key in the environment variable TRIPTYCH_API_KEY, if there is one."""
    return os.environ.get(API_KEY_VARIABLE, "").strip()


def check_api_key(key: str) -> None:
    """Raises ValueError unless the key can stand in a header; does not repeat it."""
    if not all("!" <= letter <= "~" for letter in key):
        raise ValueError("api_key has white space, or characters beyond ASCII")


def is_local(address: str) -> bool:
    """Whether what is sent there stays on this machine."""
    scheme, _, rest = address.partition(":")
    if scheme in LOCAL_SCHEMES:
        return True
    target = rest.lstrip("/").rpartition("/")[2] if scheme in ("dns", "ipv4", "ipv6") else address
    host = target.rpartition(":")[0] if _has_port(target) else target
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _has_port(target: str) -> bool:
    """An IPv6 address has colons of its own, and then stands in brackets."""
    return target.count(":") == 1 or "]:" in target


def _read(path: str | Path | None, label: str) -> bytes | None:
    """A PEM file: gRPC itself would fail with every call, and not say why."""
    if path is None:
        return None
    content = Path(path).read_bytes()
    if f"{label}-----".encode() not in content:
        raise ValueError(f"{path}: no {label.lower()} in it; it must be a PEM file, with a line -----BEGIN {label}-----")
    return content
