"""triptych.v1.ModelService."""

from collections.abc import Callable

from triptych.v1 import model_pb2, model_pb2_grpc
from triptych_serving.errors import InvalidInputError, UnsupportedError
from triptych_serving.registry import Registry
from triptych_serving.servicers.codec import model_to
from triptych_serving.servicers.rpc import Context


class ModelServicer(model_pb2_grpc.ModelServiceServicer):
    """What is loaded."""

    def __init__(self, registry: Callable[[], Registry]) -> None:
        self._registry = registry

    async def ListModels(self, request: model_pb2.ListModelsRequest, context: Context) -> model_pb2.ListModelsResponse:
        return model_pb2.ListModelsResponse(models=[model_to(model) for model in self._registry().models])

    async def GetModel(self, request: model_pb2.GetModelRequest, context: Context) -> model_pb2.GetModelResponse:
        if not request.name:
            raise InvalidInputError("name", "it is empty, name a model")
        found = self._registry().select(request.name, request.version)
        return model_pb2.GetModelResponse(model=model_to(found[-1]))

    async def LoadModel(self, request: model_pb2.LoadModelRequest, context: Context) -> model_pb2.LoadModelResponse:
        raise UnsupportedError("LoadModel is not available in this release; models are loaded when the server starts")

    async def UnloadModel(self, request: model_pb2.UnloadModelRequest, context: Context) -> model_pb2.UnloadModelResponse:
        raise UnsupportedError("UnloadModel is not available in this release; models stay until the server stops")
