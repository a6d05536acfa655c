"""triptych.v1.ModelService."""

from collections.abc import Callable, Sequence

from triptych.v1 import model_pb2, model_pb2_grpc
from triptych_serving.bundle.manifest import AnyTranslationManifest, TextManifest, TranslationManifest
from triptych_serving.repository.model_manager import ModelManager
from triptych_serving.repository.registry import ModelVersion, Registry, State
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.rpc.descriptors import services_of
from triptych_serving.services.model_calls import required_name

STATES = {
    State.LOADING: model_pb2.MODEL_STATE_LOADING,
    State.READY: model_pb2.MODEL_STATE_READY,
    State.UNLOADING: model_pb2.MODEL_STATE_UNLOADING,
    State.FAILED: model_pb2.MODEL_STATE_FAILED,
    State.UNLOADED: model_pb2.MODEL_STATE_UNLOADED,
}


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """List, load and unload the models of the repository.

    Args:
        registry: returns the loaded models, or raises UnavailableError while the server starts or stops.
    """

    def __init__(self, registry: Callable[[], Registry], manager: ModelManager) -> None:
        self._registry = registry
        self._manager = manager

    async def ListModels(self, request: model_pb2.ListModelsRequest, context: GrpcContext) -> model_pb2.ListModelsResponse:
        return model_pb2.ListModelsResponse(models=self._messages((await self._index()).models))

    async def GetModel(self, request: model_pb2.GetModelRequest, context: GrpcContext) -> model_pb2.GetModelResponse:
        index, name = await self._index(), required_name("name", request.name)
        return model_pb2.GetModelResponse(model=self._message(index.default(name, request.version)))

    async def LoadModel(self, request: model_pb2.LoadModelRequest, context: GrpcContext) -> model_pb2.LoadModelResponse:
        self._registry()  # rejects the call while the server starts or stops
        messages = self._messages(await self._manager.load(required_name("name", request.name), request.version))
        return model_pb2.LoadModelResponse(model=messages[-1], models=messages)

    async def UnloadModel(self, request: model_pb2.UnloadModelRequest, context: GrpcContext) -> model_pb2.UnloadModelResponse:
        self._registry()
        await self._manager.unload(required_name("name", request.name), request.version)
        return model_pb2.UnloadModelResponse()

    async def _index(self) -> Registry:
        """Return all models of the repository. Raises UnavailableError: the server starts or stops."""
        self._registry()
        return await self._manager.index()

    def _messages(self, versions: Sequence[ModelVersion]) -> list[model_pb2.Model]:
        return [self._message(version) for version in versions]

    def _message(self, version: ModelVersion) -> model_pb2.Model:
        message = model_to(version)
        message.default_version = version.model is not None and version.model is self._registry().serving(version.name)
        return message


def model_to(version: ModelVersion) -> model_pb2.Model:
    """Convert one version of a model of the repository."""
    message = model_pb2.Model(name=version.name, version=version.version, state=STATES[version.state])
    message.state_message = version.fault
    message.version_labels.extend(version.labels)
    model = version.model
    if model is None:
        return message
    manifest = model.manifest
    message.task = manifest.task
    message.precision = model.precision
    message.available_precisions.extend(manifest.precisions)
    message.devices.extend(map(str, model.devices))
    message.labels.extend(model.labels)
    message.services.extend(services_of(model.capabilities))
    if isinstance(manifest, AnyTranslationManifest):
        message.source_language_codes.extend(manifest.source_languages)
        message.target_language_codes.extend(manifest.target_languages)
    if isinstance(manifest, TranslationManifest):
        message.max_source_tokens = manifest.limits.max_source_tokens
        message.max_target_tokens = manifest.limits.max_target_tokens
    if isinstance(manifest, TextManifest):
        message.max_source_tokens = manifest.limits.max_tokens
    return message
