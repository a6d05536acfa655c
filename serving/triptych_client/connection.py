"""The connection to the server, with the same settings for both clients."""

import grpc

from triptych.v1.embedding_pb2_grpc import EmbeddingServiceStub
from triptych.v1.fill_mask_pb2_grpc import FillMaskServiceStub
from triptych.v1.image_classification_pb2_grpc import ImageClassificationServiceStub
from triptych.v1.model_pb2_grpc import ModelServiceStub
from triptych.v1.question_answering_pb2_grpc import QuestionAnsweringServiceStub
from triptych.v1.text_classification_pb2_grpc import TextClassificationServiceStub
from triptych.v1.token_classification_pb2_grpc import TokenClassificationServiceStub
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client.health import async_check_method, check_method
from triptych_client.settings import Settings


def channel_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """gRPC's options for a channel whose messages have at most `max_message_bytes` in either direction."""
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        # Servers close connections that ping more often than every five minutes, unless they are told not to. It also
        # makes the kernel give up, after the timeout, on a peer that no longer acknowledges what is sent to it.
        ("grpc.keepalive_time_ms", 300_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # gRPC would wait up to two minutes before it connects again, longer than any retry.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]


class Connection:
    """A channel and its services; it connects at the first call."""

    def __init__(self, settings: Settings) -> None:
        options = channel_options(settings.max_message_bytes)
        if settings.credentials is None:
            self.channel = grpc.insecure_channel(settings.address, options)
        else:
            self.channel = grpc.secure_channel(settings.address, settings.credentials, options)
        self.translation = TranslationServiceStub(self.channel)
        self.fill_mask = FillMaskServiceStub(self.channel)
        self.embedding = EmbeddingServiceStub(self.channel)
        self.text_classification = TextClassificationServiceStub(self.channel)
        self.token_classification = TokenClassificationServiceStub(self.channel)
        self.question_answering = QuestionAnsweringServiceStub(self.channel)
        self.image_classification = ImageClassificationServiceStub(self.channel)
        self.models = ModelServiceStub(self.channel)
        self.check_health = check_method(self.channel)


class AsyncConnection:
    """Connection for asyncio; it belongs to the event loop that is running now."""

    def __init__(self, settings: Settings) -> None:
        options = channel_options(settings.max_message_bytes)
        if settings.credentials is None:
            self.channel = grpc.aio.insecure_channel(settings.address, options)
        else:
            self.channel = grpc.aio.secure_channel(settings.address, settings.credentials, options)
        self.translation = TranslationServiceStub(self.channel)
        self.fill_mask = FillMaskServiceStub(self.channel)
        self.embedding = EmbeddingServiceStub(self.channel)
        self.text_classification = TextClassificationServiceStub(self.channel)
        self.token_classification = TokenClassificationServiceStub(self.channel)
        self.question_answering = QuestionAnsweringServiceStub(self.channel)
        self.image_classification = ImageClassificationServiceStub(self.channel)
        self.models = ModelServiceStub(self.channel)
        self.check_health = async_check_method(self.channel)
