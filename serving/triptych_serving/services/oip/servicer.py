"""inference.GRPCInferenceService."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from importlib.metadata import PackageNotFoundError, version

from triptych.inference import open_inference_pb2 as pb
from triptych.inference import open_inference_pb2_grpc
from triptych_serving.errors import InvalidInputError, ServingError
from triptych_serving.models.model import Model
from triptych_serving.repository.model_manager import ModelManager
from triptych_serving.repository.registry import ModelSelector, Registry
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.health import HealthServicer
from triptych_serving.services.oip.inference import Inference
from triptych_serving.services.oip.metadata import PLATFORM, config_of, metadata_of
from triptych_serving.services.oip.repository import check_repository, index_to, version_from
from triptych_serving.services.oip.statistics import Statistics
from triptych_serving.services.oip.stream import InferStream

EXTENSIONS = ("model_repository", "model_configuration", "parameters", "statistics")


class OpenInferenceServicer(open_inference_pb2_grpc.GRPCInferenceServiceServicer):
    """The Open Inference Protocol v2, with those of Triton's extensions that are in EXTENSIONS.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
        manager: of the repository.
        inference: answers requests.
        statistics: observes all calls.
        health: says whether the server is ready.
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
            self._named(request)
        except ServingError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=True)

    async def ServerMetadata(self, request: pb.ServerMetadataRequest, context: GrpcContext) -> pb.ServerMetadataResponse:
        return pb.ServerMetadataResponse(name=PLATFORM, version=_version(), extensions=EXTENSIONS)

    async def ModelMetadata(self, request: pb.ModelMetadataRequest, context: GrpcContext) -> pb.ModelMetadataResponse:
        model = self._named(request)
        return metadata_of(model, self._versions(model.name))

    async def ModelConfig(self, request: pb.ModelConfigRequest, context: GrpcContext) -> pb.ModelConfigResponse:
        model = self._named(request)
        return pb.ModelConfigResponse(config=config_of(model, self._versions(model.name)))

    async def ModelInfer(self, request: pb.ModelInferRequest, context: GrpcContext) -> pb.ModelInferResponse:
        return await self._inference.answer(request, context)

    async def ModelStreamInfer(
        self, requests: AsyncIterator[pb.ModelInferRequest], context: GrpcContext
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        stream = InferStream(lambda request: self._inference.stream(request, context))
        async with aclosing(stream.responses(requests)) as responses:
            async for response in responses:
                yield response

    async def ModelStatistics(self, request: pb.ModelStatisticsRequest, context: GrpcContext) -> pb.ModelStatisticsResponse:
        models = [loaded.model for loaded in self._registry().select(request.name, request.version)]
        return pb.ModelStatisticsResponse(
            model_stats=[self._statistics.message(model) for model in models if model is not None]
        )

    async def RepositoryIndex(self, request: pb.RepositoryIndexRequest, context: GrpcContext) -> pb.RepositoryIndexResponse:
        self._registry()
        check_repository(request.repository_name)
        return index_to(await self._manager.index(), request.ready)

    async def RepositoryModelLoad(
        self, request: pb.RepositoryModelLoadRequest, context: GrpcContext
    ) -> pb.RepositoryModelLoadResponse:
        self._registry()  # a server that starts or ends loads nothing on request
        check_repository(request.repository_name)
        await self._manager.load(_name(request.model_name), version_from(request.parameters))
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(
        self, request: pb.RepositoryModelUnloadRequest, context: GrpcContext
    ) -> pb.RepositoryModelUnloadResponse:
        self._registry()
        check_repository(request.repository_name)
        await self._manager.unload(_name(request.model_name), version_from(request.parameters, ("unload_dependents",)))
        return pb.RepositoryModelUnloadResponse()

    def _named(self, request: pb.ModelReadyRequest | pb.ModelMetadataRequest | pb.ModelConfigRequest) -> Model:
        return self._registry().named(ModelSelector(_name(request.name, "name"), request.version))

    def _versions(self, name: str) -> list[str]:
        return [str(model.version) for model in self._registry().ready if model.name == name]


def _name(name: str, field: str = "model_name") -> str:
    if not name:
        raise InvalidInputError(field, "it is empty, name a model")
    return name


def _version() -> str:
    try:
        return version(PLATFORM)
    except PackageNotFoundError:  # run from a source tree that nobody installed
        return "unknown"
