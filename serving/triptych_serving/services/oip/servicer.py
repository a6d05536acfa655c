"""inference.GRPCInferenceService."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from triptych.inference import open_inference_pb2 as pb
from triptych.inference import open_inference_pb2_grpc
from triptych.version import __version__
from triptych_serving.errors import InvalidInputError, ServingError
from triptych_serving.models.model import Model
from triptych_serving.repository.model_manager import ModelManager
from triptych_serving.repository.registry import ModelSelector, ModelVersion, Registry, State
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.rpc.request_stream import RequestStream
from triptych_serving.services.health import HealthServicer
from triptych_serving.services.model_calls import required_name
from triptych_serving.services.oip.inference import Inference
from triptych_serving.services.oip.metadata import PLATFORM, config_of, metadata_of
from triptych_serving.services.oip.statistics import Statistics

EXTENSIONS = ("model_repository", "model_configuration", "parameters", "statistics")
READY, UNAVAILABLE = "READY", "UNAVAILABLE"
STATES = {
    State.LOADING: "LOADING",
    State.READY: READY,
    State.UNLOADING: "UNLOADING",
    State.FAILED: UNAVAILABLE,
    State.UNLOADED: UNAVAILABLE,
}
VERSION = "version"
UNLOAD_DEPENDENTS = "unload_dependents"  # accepted and ignored: models have no dependents


class OpenInferenceServicer(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Serve the Open Inference Protocol v2, and Triton's extensions in EXTENSIONS.

    Args:
        registry: returns the loaded models, or raises UnavailableError while the server starts or stops.
        health: tells whether the server is ready.
    """

    def __init__(
        self,
        registry: Callable[[], Registry],
        manager: ModelManager,
        inference: Inference,
        statistics: Statistics,
        health: HealthServicer,
    ) -> None:
        self._registry = registry
        self._manager = manager
        self._inference = inference
        self._statistics = statistics
        self._health = health

    async def ServerLive(self, request: pb.ServerLiveRequest, context: GrpcContext) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: pb.ServerReadyRequest, context: GrpcContext) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._health.ready)

    async def ModelReady(self, request: pb.ModelReadyRequest, context: GrpcContext) -> pb.ModelReadyResponse:
        try:
            self._find(request)
        except ServingError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=True)

    async def ServerMetadata(self, request: pb.ServerMetadataRequest, context: GrpcContext) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name=PLATFORM, version=__version__, extensions=EXTENSIONS)

    async def ModelMetadata(self, request: pb.ModelMetadataRequest, context: GrpcContext) -> pb.ModelMetadataResponse:
        model = self._find(request)
        return metadata_of(model, self._versions(model.name))

    async def ModelConfig(self, request: pb.ModelConfigRequest, context: GrpcContext) -> pb.ModelConfigResponse:
        model = self._find(request)
        return pb.ModelConfigResponse(config=config_of(model, self._versions(model.name)))

    async def ModelInfer(self, request: pb.ModelInferRequest, context: GrpcContext) -> Any:  # serialized in a thread
        return await self._inference.infer(request, context)

    def ModelStreamInfer(
        self, requests: AsyncIterator[pb.ModelInferRequest], context: GrpcContext
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        # Requests without an id, whose responses the caller could not match, are answered in their order, as Triton does.
        stream = RequestStream[pb.ModelInferRequest, pb.ModelStreamInferResponse](
            lambda request: self._inference.stream(request, context), lambda request: not request.id
        )
        return stream.responses(requests)

    async def ModelStatistics(self, request: pb.ModelStatisticsRequest, context: GrpcContext) -> pb.ModelStatisticsResponse:
        models = [version.model for version in self._registry().select(request.name, request.version)]
        return pb.ModelStatisticsResponse(
            model_stats=[self._statistics.message(model) for model in models if model is not None]
        )

    async def RepositoryIndex(self, request: pb.RepositoryIndexRequest, context: GrpcContext) -> pb.RepositoryIndexResponse:
        self._check_repository(request.repository_name)
        rows = [_index_row(version) for version in (await self._manager.index()).models]
        return pb.RepositoryIndexResponse(models=[row for row in rows if not request.ready or row.state == READY])

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: GrpcContext
    ) -> pb.RepositoryModelLoadResponse:
        self._check_repository(request.repository_name)
        await self._manager.load(required_name("model_name", request.model_name), _version_from(request.parameters))
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: GrpcContext
    ) -> pb.RepositoryModelUnloadResponse:
        self._check_repository(request.repository_name)
        version = _version_from(request.parameters, (UNLOAD_DEPENDENTS,))
        await self._manager.unload(required_name("model_name", request.model_name), version)
        return pb.RepositoryModelUnloadResponse()

    def _find(self, request: pb.ModelReadyRequest | pb.ModelMetadataRequest | pb.ModelConfigRequest) -> Model:
        return self._registry().named(ModelSelector(required_name("name", request.name), request.version))

    def _versions(self, name: str) -> list[str]:
        return [str(model.version) for model in self._registry().ready if model.name == name]

    def _check_repository(self, name: str) -> None:
        """Reject a call while the server starts or stops, or if it names a repository."""
        self._registry()
        if name:
            raise InvalidInputError("repository_name", f"{name!r} is unknown, the server has one repository: leave it empty")


def _version_from(given: Mapping[str, pb.ModelRepositoryParameter], ignored: tuple[str, ...] = ()) -> str:
    """Return the version in the parameters of a request; empty if there is none."""
    for name in given:
        if name not in (VERSION, *ignored):
            known = ", ".join((VERSION, *ignored))
            raise InvalidInputError(f"parameters.{name}", f"there is no such parameter; there are: {known}")
    if VERSION in given and given[VERSION].WhichOneof("parameter_choice") != "string_param":
        raise InvalidInputError(f"parameters.{VERSION}", "not a string")
    return given[VERSION].string_param if VERSION in given else ""


def _index_row(version: ModelVersion) -> pb.RepositoryIndexResponse.ModelIndex:
    reason = version.fault or ("unloaded" if version.state is State.UNLOADED else "")
    return pb.RepositoryIndexResponse.ModelIndex(
        name=version.name, version=version.version, state=STATES[version.state], reason=reason
    )
