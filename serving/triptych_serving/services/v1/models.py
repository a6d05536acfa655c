"""triptych.v1.ModelService."""

from collections.abc import Callable, Sequence

from triptych.v1 import model_pb2, model_pb2_grpc
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.repository.model_manager import ModelManager
from triptych_serving.repository.registry import ModelVersion, Registry
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.v1.codec import model_to


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """What is in the repository, and what of it is loaded.

    Args:
        registry: returns the loaded models, or raises UnavailableError while there are none.
        manager: loads and unloads them; without, they stay as they are.
    """

    def __init__(self, registry: Callable[[], Registry], manager: ModelManager | None = None) -> None:
        self._registry = registry
        self._manager = manager

    async def ListModels(self, request: model_pb2.ListModelsRequest, context: GrpcContext) -> model_pb2.ListModelsResponse:
        return model_pb2.ListModelsResponse(models=self._messages((await self._present()).models))

    async def GetModel(self, request: model_pb2.GetModelRequest, context: GrpcContext) -> model_pb2.GetModelResponse:
        registry, name = await self._present(), _named(request.name)
        return model_pb2.GetModelResponse(model=self._message(registry.default(name, request.version)))

    async def LoadModel(self, request: model_pb2.LoadModelRequest, context: GrpcContext) -> model_pb2.LoadModelResponse:
        loaded = await self._control().load(_named(request.name), request.version)
        messages = self._messages(loaded)
        return model_pb2.LoadModelResponse(model=messages[-1], models=messages)

    async def UnloadModel(self, request: model_pb2.UnloadModelRequest, context: GrpcContext) -> model_pb2.UnloadModelResponse:
        await self._control().unload(_named(request.name), request.version)
        return model_pb2.UnloadModelResponse()

    async def _present(self) -> Registry:
        """With what has come to the repository since."""
        registry = self._registry()
        return registry if self._manager is None else Registry(await self._manager.index())

    def _control(self) -> ModelManager:
        self._registry()  # while the server starts or stops, it says so
        if self._manager is None:
            raise UnsupportedError("this server's models are loaded when it starts and stay until it stops")
        return self._manager

    def _messages(self, models: Sequence[ModelVersion]) -> list[model_pb2.Model]:
        return [self._message(loaded) for loaded in models]

    def _message(self, loaded: ModelVersion) -> model_pb2.Model:
        message = model_to(loaded)
        message.default_version = loaded.model is not None and loaded.model is self._registry().serving(loaded.name)
        return message


def _named(name: str) -> str:
    if not name:
        raise InvalidInputError("name", "it is empty, name a model")
    return name
