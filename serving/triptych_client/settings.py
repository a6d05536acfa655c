"""The settings of a client."""

import math
import os
from dataclasses import dataclass, field

import grpc

from triptych_client.credentials import check_api_key, is_local

SERVER_VARIABLE = "TRIPTYCH_SERVER"
DEFAULT_SERVER = "localhost:8001"
DEFAULT_MESSAGE_BYTES = 64 * 1024 * 1024


def default_address() -> str:
    """Return the environment variable TRIPTYCH_SERVER, else localhost:8001."""
    return os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a client. Raises ValueError, which names the setting, if one is out of range."""

    address: str = field(default_factory=default_address)
    credentials: grpc.ChannelCredentials | None = None
    api_key: str = field(default="", repr=False)
    allow_plaintext_keys: bool = False
    timeout_seconds: float = 60.0
    retries: int = 5
    concurrency: int = 4
    texts_per_call: int = 64
    max_message_bytes: int = DEFAULT_MESSAGE_BYTES

    def __post_init__(self) -> None:
        check_timeout(self.timeout_seconds)
        check_api_key(self.api_key)
        if self.api_key and self.credentials is None and not (self.allow_plaintext_keys or is_local(self.address)):
            raise ValueError(
                f"without TLS the API key could be read on its way to {self.address}: use TLS (credentials; "
                "--tls) or, on a private network, allow it (allow_plaintext_keys; --allow-plaintext-keys)"
            )
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}, must be 0 or more")
        for name in ("concurrency", "texts_per_call", "max_message_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be 1 or more")


def check_timeout(seconds: float) -> None:
    """Reject a timeout that is not positive and finite: every call has a deadline. Raises ValueError."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"timeout_seconds is {seconds}, must be above 0 and finite")
