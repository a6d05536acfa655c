"""The loaded models, for the APIs of other servers."""

from triptych.v1 import model_pb2
from triptych_serving.gateway.call import HttpCall


async def ready_models(call: HttpCall) -> list[model_pb2.Model]:
    """Return the models that are ready.

    Raises:
        RpcError: as ModelService/ListModels.
    """
    response = await call.unary(
        "/triptych.v1.ModelService/ListModels", model_pb2.ListModelsRequest(), model_pb2.ListModelsResponse()
    )
    return [one for one in response.models if one.state == model_pb2.MODEL_STATE_READY]
