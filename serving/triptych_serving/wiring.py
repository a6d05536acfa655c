"""All services, on one gRPC server."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from grpc_health.v1 import health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc  # type: ignore[import-untyped]

from triptych.inference import open_inference_pb2_grpc
from triptych.v1 import (
    embedding_pb2_grpc,
    fill_mask_pb2_grpc,
    image_classification_pb2_grpc,
    model_pb2_grpc,
    question_answering_pb2_grpc,
    text_classification_pb2_grpc,
    token_classification_pb2_grpc,
    translation_pb2_grpc,
)
from triptych_serving.repository.model_manager import ModelManager
from triptych_serving.repository.registry import Registry
from triptych_serving.response_cache.cached_calls import CachedCalls
from triptych_serving.rpc import descriptors as services
from triptych_serving.rpc.descriptors import DESCRIPTORS
from triptych_serving.rpc.dispatch import Router
from triptych_serving.rpc.limits import LimitOptions
from triptych_serving.services.documents.calls import DocumentCalls, DocumentThreads
from triptych_serving.services.health import HEALTH, HealthServicer
from triptych_serving.services.image_calls import ImageCalls
from triptych_serving.services.oip.inference import Inference
from triptych_serving.services.oip.servicer import OpenInferenceServicer
from triptych_serving.services.oip.statistics import Statistics
from triptych_serving.services.oip.task import Calls
from triptych_serving.services.text_calls import TextCalls
from triptych_serving.services.translation_calls import TranslationCalls
from triptych_serving.services.v1.embedding import EmbeddingServicer
from triptych_serving.services.v1.fill_mask import FillMaskServicer
from triptych_serving.services.v1.image_classification import ImageClassificationServicer
from triptych_serving.services.v1.models import ModelServicer
from triptych_serving.services.v1.question_answering import QuestionAnsweringServicer
from triptych_serving.services.v1.text_classification import TextClassificationServicer
from triptych_serving.services.v1.token_classification import TokenClassificationServicer
from triptych_serving.services.v1.translation import TranslationServicer


@dataclass(frozen=True)
class Parts:
    """What the services answer with."""

    registry: Callable[[], Registry]  # the loaded models; raises UnavailableError where nothing can be asked of them
    manager: ModelManager
    health: HealthServicer
    statistics: Statistics
    repeated: CachedCalls
    pool: Executor  # threads for long work
    documents: DocumentThreads
    limits: LimitOptions


def add_services(routes: Router, parts: Parts) -> None:
    """Add all but reflection."""
    server: Any = routes  # the stubs' types know servers of gRPC alone
    texts = TextCalls(parts.registry, parts.pool, parts.repeated)
    translations = TranslationCalls(parts.registry, parts.pool, parts.repeated)
    documents = DocumentCalls(translations, parts.limits, parts.documents)
    images = ImageCalls(parts.registry, parts.repeated)
    inference = Inference(parts.registry, Calls(translations, texts, images), parts.pool)
    open_inference = OpenInferenceServicer(parts.registry, parts.manager, inference, parts.statistics, parts.health)
    translation_pb2_grpc.add_TranslationServiceServicer_to_server(TranslationServicer(translations, documents), server)
    fill_mask_pb2_grpc.add_FillMaskServiceServicer_to_server(FillMaskServicer(texts), server)
    embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(EmbeddingServicer(texts), server)
    text_classification_pb2_grpc.add_TextClassificationServiceServicer_to_server(TextClassificationServicer(texts), server)
    token_classification_pb2_grpc.add_TokenClassificationServiceServicer_to_server(TokenClassificationServicer(texts), server)
    question_answering_pb2_grpc.add_QuestionAnsweringServiceServicer_to_server(QuestionAnsweringServicer(texts), server)
    image_classification_pb2_grpc.add_ImageClassificationServiceServicer_to_server(ImageClassificationServicer(images), server)
    model_pb2_grpc.add_ModelServiceServicer_to_server(ModelServicer(parts.registry, parts.manager), server)
    open_inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(open_inference, server)
    health_pb2_grpc.add_HealthServicer_to_server(parts.health, server)


def add_reflection(routes: Router) -> None:
    """Let clients such as grpcurl list all services."""
    servicer = reflection.aio.ReflectionServicer((*services.ALL_SERVICES, HEALTH, reflection.SERVICE_NAME), DESCRIPTORS)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, routes)
