"""Channels to the server, and the description of an RPC method."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from triptych_client.settings import Settings

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
    if settings.credentials is None:
        return module.insecure_channel(settings.address, options)
    return module.secure_channel(settings.address, settings.credentials, options)
