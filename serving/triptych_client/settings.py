"""The settings of a client."""

import math
import os
import re
from dataclasses import dataclass, field
from typing import TypedDict

import grpc

from triptych_client.credentials import check_api_key, has_port, is_local, tls_credentials

SERVER_VARIABLE = "TRIPTYCH_SERVER"
DEFAULT_SERVER = "localhost:8001"
DEFAULT_PORT = 8001
HIGHEST_PORT = 65_535
URL = re.compile(r"(?P<scheme>https?)://(?P<host>[^/]*)/?", re.IGNORECASE)
NAME_RESOLVER = re.compile(r"(?:unix|unix-abstract|vsock|dns|ipv4|ipv6|xds):")  # gRPC's own schemes
DEFAULT_MESSAGE_BYTES = 64 * 1024 * 1024


class NamedAddress(TypedDict):
    """An address, and what errors say about its origin."""

    address: str
    hint: str


def named_address(address: str | None) -> NamedAddress:
    """Return the address; without one, the environment variable TRIPTYCH_SERVER, else localhost:8001."""
    if address or not (found := os.environ.get(SERVER_VARIABLE)):
        return {"address": address or DEFAULT_SERVER, "hint": ""}
    return {"address": found, "hint": f"; the environment variable {SERVER_VARIABLE} has the address {found}"}


def parse_address(address: str) -> tuple[str, bool | None]:
    """Return host and port as gRPC takes them, and whether the address asks for TLS; None: it does not say.

    Raises:
        ValueError: the address is malformed.
    """
    url = URL.fullmatch(address)
    tls = None if url is None else url["scheme"].lower() == "https"
    target = address if url is None else url["host"]
    if NAME_RESOLVER.match(target):
        return target, tls
    if not target or re.search(r"[\s/@]", target):
        raise ValueError(f"the address {address!r} is not HOST:PORT, such as {DEFAULT_SERVER}")
    if not has_port(target):
        return f"[{target}]:{DEFAULT_PORT}" if target.count(":") > 1 and target[0] != "[" else f"{target}:{DEFAULT_PORT}", tls
    host, _, port = target.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= HIGHEST_PORT:
        raise ValueError(f"the address {address!r} is not HOST:PORT with a port of 1 to {HIGHEST_PORT:,}")
    return target, tls


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a client. Raises ValueError, which names the setting, if one is out of range."""

    address: str = DEFAULT_SERVER
    hint: str = ""  # what errors of an unreachable server say about the address
    credentials: grpc.ChannelCredentials | None = None
    api_key: str = field(default="", repr=False)
    allow_plaintext_keys: bool = False
    timeout_seconds: float = 60.0
    retries: int | None = None
    concurrency: int = 4
    texts_per_call: int = 64
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES

    def __post_init__(self) -> None:
        check_timeout(self.timeout_seconds)
        self._settle_address()
        check_api_key(self.api_key)
        if self.api_key and self.credentials is None and not (self.allow_plaintext_keys or is_local(self.address)):
            raise ValueError(
                f"without TLS the API key could be read on its way to {self.address}: use TLS (credentials; "
                "--tls) or, on a private network, allow it (allow_plaintext_keys; --allow-plaintext-keys)"
            )
        if self.retries is not None and self.retries < 0:
            raise ValueError(f"retries is {self.retries}, must be 0 or more")
        for name in ("concurrency", "texts_per_call", "max_message_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be 1 or more")

    def _settle_address(self) -> None:
        try:
            address, tls = parse_address(self.address)
        except ValueError as error:
            raise ValueError(f"{error}{self.hint}") from None
        object.__setattr__(self, "address", address)
        if tls and self.credentials is None:
            object.__setattr__(self, "credentials", tls_credentials())
        if tls is False and self.credentials is not None:
            raise ValueError(f"http:// and TLS contradict each other; write https:// or {address}")


def check_timeout(seconds: float) -> None:
    """Reject a timeout that is not positive and finite: every call has a deadline. Raises ValueError."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"timeout_seconds is {seconds}, must be above 0 and finite")
