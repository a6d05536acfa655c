"""The connection of a client: address, TLS, API key and other settings, its channels, and the description of an RPC method."""

import ipaddress
import os
import re
import ssl
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

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
        ValueError: `certificate` without `key` or vice versa, a file is not a PEM file of its kind, or `key` is encrypted or
            belongs to another certificate.
    """
    if (certificate is None) != (key is None):
        raise ValueError("certificate and key are a pair: give both or neither")
    roots, private, chain = _read(ca, "CERTIFICATE"), _read(key, "PRIVATE KEY"), _read(certificate, "CERTIFICATE")
    if certificate is not None and key is not None:
        _check_pair(certificate, key)
    return grpc.ssl_channel_credentials(root_certificates=roots, private_key=private, certificate_chain=chain)


def default_api_key() -> str:
    """Return the environment variable TRIPTYCH_API_KEY, or an empty string."""
    return os.environ.get(API_KEY_VARIABLE, "").strip()


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


def _check_pair(certificate: str | Path, key: str | Path) -> None:
    """Reject a key with which gRPC itself would fail at every call, without a reason. Raises ValueError."""

    def refuse_password() -> bytes:
        raise ValueError(f"{key}: encrypted; it must not be: openssl pkey -in {key} -out FILE")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"{key}: does not belong to the certificate {certificate}") from error
        if "PEM" in (error.reason or "PEM"):  # what else this library refuses, such as short keys, gRPC may accept
            raise ValueError(f"{certificate}, {key}: damaged: one of them cannot be decoded") from error


SERVER_VARIABLE = "TRIPTYCH_SERVER"
DEFAULT_SERVER = "localhost:8001"
DEFAULT_PORT = 8001
HIGHEST_PORT = 65_535
URL = re.compile(r"(?P<scheme>https?)://(?P<host>[^/]*)/?", re.IGNORECASE)
NAME_RESOLVER = re.compile(r"(?:unix|unix-abstract|vsock|dns|ipv4|ipv6|xds):")  # gRPC's own schemes
LONGEST_TIMEOUT_SECONDS = 1_000_000_000  # 32 years
DEFAULT_MESSAGE_BYTES = 64 * 1024 * 1024


def named_address(address: str | None) -> tuple[str, str]:
    """Return the address, by default of TRIPTYCH_SERVER, else localhost:8001, and what errors say about its origin."""
    if address or not (found := os.environ.get(SERVER_VARIABLE)):
        return address or DEFAULT_SERVER, ""
    return found, f"; the environment variable {SERVER_VARIABLE} has the address {found}"


def parse_address(address: str) -> tuple[str, bool | None]:
    """Return host and port as gRPC takes them, and whether the address asks for TLS; None: it does not say.

    Raises:
        ValueError: the address is malformed.
    """
    if not isinstance(address, str):
        raise ValueError(f"address is {address!r}, must be HOST:PORT, such as {DEFAULT_SERVER}")
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


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client. Raises ValueError, which names the setting, if one is out of range."""

    address: str = DEFAULT_SERVER
    hint: str = ""  # what errors of an unreachable server say about the address
    _: KW_ONLY
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
        for place, letter in enumerate(self.api_key, 1):
            if not "!" <= letter <= "~":  # a header cannot carry it; errors do not show the key
                problem = f"character {place} of {len(self.api_key)} is U+{ord(letter):04X}"
                raise ValueError(f"api_key: {problem}, keys are printable ASCII without spaces; copy the key again")
        if self.api_key and self.credentials is None and not (self.allow_plaintext_keys or is_local(self.address)):
            raise ValueError(
                f"without TLS the API key could be read on its way to {self.address}: use TLS (credentials; "
                "--tls) or, on a private network, allow it (allow_plaintext_keys; --allow-plaintext-keys)"
            )
        check_retries(self.retries)
        for name in ("concurrency", "texts_per_call", "max_message_bytes"):
            if not isinstance(value := getattr(self, name), Integral) or value < 1:
                raise ValueError(f"{name} is {value!r}, must be a whole number of 1 or more")

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


def check_timeout(seconds: float) -> float:
    """Return the timeout as Python's float: one of numpy's shorter floats would lose its value when added to a clock's time.

    Raises:
        ValueError: it is not positive, or so long that gRPC's clock could overflow.
    """
    if isinstance(seconds, Real) and 0 < seconds <= LONGEST_TIMEOUT_SECONDS:
        return float(seconds)
    raise ValueError(f"timeout_seconds is {seconds!r}, must be a number above 0 and at most {LONGEST_TIMEOUT_SECONDS:,}")


def check_retries(retries: int | None) -> None:
    """Reject a number of retries below 0. Raises ValueError."""
    if retries is not None and (not isinstance(retries, int) or retries < 0):
        raise ValueError(f"retries is {retries!r}, must be a whole number of 0 or more, or None")


Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True)
class RpcMethod(Generic[Request, Response]):
    """An RPC method: its path and the types of its messages."""

    path: str
    request: type[Request]
    response: type[Response]

    @property
    def codec(self) -> dict[str, Any]:
        """The (de)serializers that `grpc.Channel.unary_unary` and its siblings take."""
        return {"request_serializer": self.request.SerializeToString, "response_deserializer": self.response.FromString}


def open_channel(settings: Settings) -> grpc.Channel:
    """Make a blocking channel. It connects at the first call."""
    channel: grpc.Channel = _open(grpc, settings)
    return channel


def open_async_channel(settings: Settings) -> grpc.aio.Channel:
    """Make a channel that belongs to the running event loop. It connects at the first call."""
    channel: grpc.aio.Channel = _open(grpc.aio, settings)
    return channel


def _open(module: Any, settings: Settings) -> Any:
    options = [
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        # Servers close connections that ping more often than every five minutes, unless configured otherwise. The timeout
        # also makes the kernel drop a peer that no longer acknowledges packets.
        ("grpc.keepalive_time_ms", 300_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # gRPC would wait up to two minutes before it reconnects, longer than any retry.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]
    if is_local(settings.address):  # which a proxy does not reach; Docker may set the variable http_proxy in containers
        options.append(("grpc.enable_http_proxy", 0))
    if settings.credentials is None:
        return module.insecure_channel(settings.address, options)
    return module.secure_channel(settings.address, settings.credentials, options)
