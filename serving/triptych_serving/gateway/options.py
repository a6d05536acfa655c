"""Options of the HTTP gateway."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GatewayOptions:
    """Options of the gateway: where it listens, and what it allows."""

    host: str
    port: int  # 0: any free one
    origins: tuple[str, ...] = ()  # of web pages that may call it (CORS); "*" is all
    playground: bool = False
    connections: int = 1_024  # further ones replace idle ones, or get 503
    stored_bytes: int = 256 << 20  # translated documents that wait to be fetched
    glossaries: Path | None = None  # folder of DeepL's glossaries; None: there are none
    port_flag: str = "--http-port"  # names the port in errors
    is_shared: bool = False  # several processes listen on the port
    documents: Path | None = None  # folder that these processes share for the documents; None: they stay in memory
