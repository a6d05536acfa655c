"""The loaded models, for the APIs of other servers."""

from triptych.v1 import model_pb2
from triptych_serving.gateway.call import HttpCall


async def ready_models(call: HttpCall) -> list[model_pb2.Model]:
    """Return the models that are ready.

    Raises:
        RpcError: as ModelService/ListModels.
    """
    response = await call.ask(model_pb2.ListModelsRequest())
    return [one for one in response.models if one.state == model_pb2.MODEL_STATE_READY]
