"""Health, reflection and request ids."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from triptych.v1 import model_pb2, translation_pb2
from triptych.v1.model_pb2_grpc import ModelServiceStub
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client, ModelState, NotFoundError

from ..fixtures.toy import SOURCE
from .support.processes import ServerProcess

SERVICES = [
    "",
    "triptych.v1.TranslationService",
    "triptych.v1.FillMaskService",
    "triptych.v1.EmbeddingService",
    "triptych.v1.TextClassificationService",
    "triptych.v1.TokenClassificationService",
    "triptych.v1.QuestionAnsweringService",
    "triptych.v1.RerankService",
    "triptych.v1.NeighborService",
    "triptych.v1.ImageClassificationService",
    "triptych.v1.TextGenerationService",
    "triptych.v1.ImageGenerationService",
    "triptych.v1.AttentionService",
    "triptych.v1.ModelService",
    "inference.GRPCInferenceService",
]
UNANSWERED = ("triptych.v1.TextGenerationService", "triptych.v1.ImageGenerationService")  # the server has no model for them
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.mark.parametrize("service", SERVICES)
def test_health_is_checked_overall_and_by_service(server: ServerProcess, channel: grpc.Channel, service: str) -> None:
    status = NOT_SERVING if service in UNANSWERED else SERVING
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service=service)
    assert stub.Check(request).status == status
    watch = stub.Watch(request)
    assert next(watch).status == status
    watch.cancel()
    with Client(server.address) as client:
        assert client.is_ready(service) == (service not in UNANSWERED)


def test_health_of_an_unknown_service(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="no.such.Service")
    with pytest.raises(grpc.RpcError) as error:
        stub.Check(request)
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert "service 'no.such.Service' is unknown; there are: " in error.value.details()
    watch = stub.Watch(request)
    assert next(watch).status == SERVICE_UNKNOWN
    watch.cancel()


def test_reflection_lists_the_services_and_echoes_the_request_id(channel: grpc.Channel) -> None:
    requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(requests, metadata=(("x-request-id", "who-1"),))
    [response] = call
    others = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert {service.name for service in response.list_services_response.service} == {*SERVICES[1:], *others}
    assert dict(call.trailing_metadata())["x-request-id"] == "who-1"


def trailers(call: grpc.Call) -> dict[str, str]:
    return {key: value for key, value in call.trailing_metadata() if isinstance(value, str)}


def test_a_request_id_comes_back_with_answers_and_streams(translation: TranslationServiceStub) -> None:
    metadata = (("x-request-id", "good-1"),)
    _, call = translation.Translate.with_call(translation_pb2.TranslateRequest(contents=[SOURCE]), metadata=metadata)
    stream = translation.TranslateStream(translation_pb2.TranslateStreamRequest(contents=[SOURCE]), metadata=metadata)
    assert list(stream)
    assert trailers(call)["x-request-id"] == trailers(stream)["x-request-id"] == "good-1"


def test_without_a_request_id_each_call_gets_its_own(models: ModelServiceStub) -> None:
    request = model_pb2.ListModelsRequest()
    ids = [trailers(models.ListModels.with_call(request)[1])["x-request-id"] for _ in range(2)]
    assert all(ids)
    assert ids[0] != ids[1]


def test_models_are_described(server: ServerProcess) -> None:
    with Client(server.address) as client:
        [model] = [model for model in client.models() if model.name == "toy"]
        assert client.model("toy") == client.model("toy", "1") == model
        for name, version in (("foo", ""), ("toy", "2")):
            with pytest.raises(NotFoundError):
                client.model(name, version)
    assert (model.name, model.version, model.task, model.state) == ("toy", "1", "translation", ModelState.READY)
    assert (model.precision, set(model.available_precisions)) == ("fp32", {"fp32", "int8"})
    assert (model.source_languages, model.target_languages) == (("en",), ("de",))
    assert (model.max_source_tokens, model.max_target_tokens) == (64, 64)


def test_a_model_without_a_name_is_an_invalid_argument(models: ModelServiceStub) -> None:
    with pytest.raises(grpc.RpcError) as error:
        models.GetModel(model_pb2.GetModelRequest())
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
