"""Construction of all services of a server."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from grpc_health.v1 import health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc  # type: ignore[import-untyped]

from triptych.inference import open_inference_pb2_grpc
from triptych.v1 import (
    attention_pb2_grpc,
    image_classification_pb2_grpc,
    image_generation_pb2_grpc,
    model_pb2_grpc,
    text_generation_pb2_grpc,
    translation_pb2_grpc,
)
from triptych_serving.models.text.tasks import TEXT_TASKS
from triptych_serving.repository.model_manager import ModelManager
from triptych_serving.repository.registry import Registry
from triptych_serving.response_cache.cached_calls import CachedCalls
from triptych_serving.response_cache.response_cache import ResponseCache
from triptych_serving.rpc.descriptors import ALL_SERVICES, DESCRIPTOR_BY_CAPABILITY, DESCRIPTORS, stub_module
from triptych_serving.rpc.dispatch import Router
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.services.decode_calls import DecodeCalls
from triptych_serving.services.documents.calls import DocumentCalls
from triptych_serving.services.documents.workers import DocumentWorkers
from triptych_serving.services.health import HEALTH_SERVICE, HealthServicer
from triptych_serving.services.image_calls import ImageCalls, LatentCalls
from triptych_serving.services.oip.inference import Inference
from triptych_serving.services.oip.servicer import OpenInferenceServicer
from triptych_serving.services.oip.statistics import Statistics
from triptych_serving.services.oip.task import TaskCalls
from triptych_serving.services.text_calls import TextCalls
from triptych_serving.services.translation_calls import TranslationCalls
from triptych_serving.services.v1.attention import AttentionServicer
from triptych_serving.services.v1.image_classification import ImageClassificationServicer
from triptych_serving.services.v1.image_generation import ImageGenerationServicer
from triptych_serving.services.v1.models import ModelServicer
from triptych_serving.services.v1.text import TextServicer
from triptych_serving.services.v1.text_generation import TextGenerationServicer
from triptych_serving.services.v1.translation import TranslationServicer


@dataclass(frozen=True)
class ServerParts:
    """The parts of a server that its services use."""

    registry: Callable[[], Registry]  # the loaded models; raises UnavailableError while the server starts or stops
    manager: ModelManager
    health: HealthServicer
    statistics: Statistics
    cache: ResponseCache
    pool: Executor  # threads for long work
    documents: DocumentWorkers
    limits: LimitOptions


def add_services(router: Router, parts: ServerParts) -> None:
    """Add all services but reflection. Without a response cache, requests do not pass through it."""
    server: Any = router  # the type stubs know only gRPC's own servers
    cached = CachedCalls(parts.cache, parts.pool) if parts.cache.is_on else None
    texts = TextCalls(parts.registry, parts.pool, cached)
    translations = TranslationCalls(parts.registry, parts.pool, cached)
    documents = DocumentCalls(translations, parts.limits, parts.documents)
    images = ImageCalls(parts.registry, parts.pool, cached)
    latents = LatentCalls(parts.registry, parts.pool, cached)
    generations = DecodeCalls(parts.registry, parts.pool, cached)
    calls = TaskCalls(translations, texts, images, latents, generations, parts.limits.message_bytes)
    inference = Inference(parts.registry, calls, parts.pool)
    open_inference = OpenInferenceServicer(parts.registry, parts.manager, inference, parts.statistics, parts.health)
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(TranslationServicer(translations, documents), server)
    for name in TEXT_TASKS:
        add = f"add_{DESCRIPTOR_BY_CAPABILITY[name].name}Servicer_to_server"
        getattr(stub_module(name, "_pb2_grpc"), add)(TextServicer(texts), server)
    image_classification_pb2_grpc.add_ImageClassificationServiceServicer_to_server(ImageClassificationServicer(images), server)
    text_generation_pb2_grpc.add_TextGenerationServiceServicer_to_server(TextGenerationServicer(generations), server)
    generation = ImageGenerationServicer(generations, latents)
    image_generation_pb2_grpc.add_ImageGenerationServiceServicer_to_server(generation, server)
    attention = AttentionServicer(parts.registry, translations, parts.pool)
    attention_pb2_grpc.add_AttentionServiceServicer_to_server(attention, server)
    model_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(parts.registry, parts.manager), server)
    open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(open_inference, server)
    health_pb2_grpc.add_HealthServicer_to_server(parts.health, server)


def add_reflection(router: Router) -> None:
    """Add reflection, with which clients such as grpcurl list all services."""
    servicer = reflection.aio.ReflectionServicer((*ALL_SERVICES, HEALTH_SERVICE, reflection.SERVICE_NAME), DESCRIPTORS)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, router)
