"""OpenAI's API (https://platform.openai.com/docs/api-reference), as far as models can serve it: embeddings, generated text."""

import base64
import time
from array import array
from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from triptych.v1 import embedding_pb2, model_pb2
from triptych_serving.gateway.call import HttpCall, invalid
from triptych_serving.gateway.openai_generation import OPTIONS, chat_completions, completions, error_body
from triptych_serving.gateway.route import Api, ApiRoute

STARTED = int(time.time())  # "created" of the models, whose age is unknown


async def embeddings(call: HttpCall) -> Response:
    given = await call.json()
    texts, _ = given.take_texts("input")
    encoding = given.take("encoding_format", str, "float")
    if encoding not in ("float", "base64"):
        raise invalid(f"encoding_format: {encoding[:40]!r} is not float or base64")
    options = given.take_given({"model": ("model", str), "dimensions": ("dimensions", int)})
    response = await call.ask(embedding_pb2.EmbedTextRequest(contents=texts, **options))
    size = sum(len(one.values) for one in response.embeddings)
    return JSONResponse(await call.offload(32 * size, _embeddings, response, encoding == "base64"))


async def models(call: HttpCall) -> dict[str, object]:
    return {"object": "list", "data": [_model(one) for one in await call.ready_models()]}


async def model(call: HttpCall) -> dict[str, object]:
    response = await call.ask(model_pb2.GetModelRequest(name=call.request.path_params["model"]))
    return _model(response.model)


def _model(found: model_pb2.Model) -> dict[str, object]:
    return {"id": found.name, "object": "model", "created": STARTED, "owned_by": "triptych"}


def _embeddings(response: embedding_pb2.EmbedTextResponse, packed: bool) -> dict[str, Any]:
    tokens = sum(one.token_count for one in response.embeddings)
    data = [
        {"object": "embedding", "index": index, "embedding": _base64(one.values) if packed else list(one.values)}
        for index, one in enumerate(response.embeddings)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": response.model, "usage": usage}


def _base64(values: Sequence[float]) -> str:
    return base64.b64encode(array("f", values).tobytes()).decode()  # little-endian on all supported processors


API = Api(
    "OpenAI",
    (
        ApiRoute("/v1/models", models, ("GET",), "List models."),
        ApiRoute("/v1/models/{model}", model, ("GET",), "Describe a model."),
        ApiRoute("/v1/embeddings", embeddings, summary="Embed texts."),
        ApiRoute("/v1/completions", completions, summary="Continue texts."),
        ApiRoute("/v1/chat/completions", chat_completions, summary="Answer a chat."),
    ),
    error_body,
    names={
        "contents": "input",
        "prompts": "prompt",
        "options.sampling_temperature": "temperature",
        **{f"options.{field}": name for name, (field, _) in OPTIONS.items()},
    },
)
