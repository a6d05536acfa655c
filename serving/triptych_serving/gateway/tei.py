"""The API of Text Embeddings Inference (https://huggingface.github.io/text-embeddings-inference): embed, predict, rerank."""

from collections.abc import Mapping
from typing import Any

from triptych.v1 import embedding_pb2, model_pb2, rerank_pb2, text_classification_pb2
from triptych.version import __version__
from triptych_serving.gateway.call import HttpCall, Json, invalid
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.rpc.direct_calls import RpcError

OPTIONS = {"model": ("model", str), "raw_scores": ("raw_scores", bool), "truncate": ("truncate", bool)}
RIGHT = {"truncation_direction": ("Right", "right")}  # only the end of a text is cut off
SERVICES = {f"triptych.v1.{name}Service" for name in ("Embedding", "TextClassification", "Rerank")}  # of this API
ERROR_TYPES = {400: "validation", 413: "validation", 429: "overloaded", 503: "unhealthy"}


async def embed(call: HttpCall) -> list[list[float]]:
    given = await call.json()
    return await embed_texts(call, given, given.take("model", str, ""))


async def embed_texts(call: HttpCall, given: Json, model: str) -> list[list[float]]:
    """Embed `inputs`, with the options beside them. Raises RpcError: as EmbeddingService/EmbedText."""
    given.refuse({"encoding_format": ("float",), **RIGHT})
    texts, _ = given.take_texts("inputs")
    request = embedding_pb2.EmbedTextRequest(
        contents=texts,
        model=model,
        normalize=given.take("normalize", bool, True),
        truncate=given.take("truncate", bool, False),
        **given.take_given({"dimensions": ("dimensions", int), "prompt_name": ("prompt_name", str)}),
    )
    response = await call.ask(request)
    size = sum(len(one.values) for one in response.embeddings)
    return await call.offload(32 * size, lambda: [list(one.values) for one in response.embeddings])


async def predict(call: HttpCall) -> list[Any]:
    given = await call.json()
    given.refuse(RIGHT)
    inputs, several = _inputs(given)
    response = await call.ask(text_classification_pb2.ClassifyTextRequest(inputs=inputs, **given.take_given(OPTIONS)))
    found = await call.convert(response, lambda result: [{"score": one.score, "label": one.label} for one in result.labels])
    return found if several else found[0]


async def rerank(call: HttpCall) -> list[dict[str, Any]]:
    given = await call.json()
    given.refuse(RIGHT)
    if "documents" in given and "texts" not in given:
        raise invalid("texts: missing; /v1/rerank and /v2/rerank take documents")
    texts, _ = given.take_texts("texts")
    with_text = given.take("return_text", bool, False)
    options = given.take_given(OPTIONS)
    response = await call.ask(rerank_pb2.RerankRequest(query=given.take("query", str), documents=texts, **options))

    def ranked(one: Any) -> dict[str, Any]:
        return {"index": one.index, "score": one.score, **({"text": texts[one.index]} if with_text else {})}

    return await call.convert(response, ranked)


async def info(call: HttpCall) -> dict[str, object]:
    models = [
        {
            "model_id": one.name,
            "model_sha": None,
            "model_dtype": one.precision,
            "model_type": _model_type(one),
            "max_input_length": one.max_source_tokens or None,
            "auto_truncate": False,
        }
        for one in sorted(await call.ready_models(), key=lambda one: SERVICES.isdisjoint(one.services))
    ]
    return {**(models[0] if models else {}), "version": __version__, "sha": None, "docker_label": None, "models": models}


def _model_type(model: model_pb2.Model) -> dict[str, object] | str:
    """Describe what a model does, as Text Embeddings Inference has it; others by their task."""
    if model.task == "text-classification":
        labels = {str(number): label for number, label in enumerate(model.labels)}
        name = "reranker" if "triptych.v1.RerankService" in model.services else "classifier"
        return {name: {"id2label": labels, "label2id": {label: int(number) for number, label in labels.items()}}}
    return {"embedding": {"pooling": "default"}} if "triptych.v1.EmbeddingService" in model.services else model.task


def _inputs(given: Json) -> tuple[list[text_classification_pb2.TextInput], bool]:
    """Return the inputs, and whether they are a batch: a list of lists. Otherwise: a text, or one or two in a list."""
    value = given.get("inputs")
    if isinstance(value, list) and value and all(isinstance(one, list) for one in value):
        return [_input(one) for one in value], True
    return [_input(value)], False


def _input(value: object) -> text_classification_pb2.TextInput:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not 1 <= len(texts) <= 2 or not all(isinstance(text, str) for text in texts):
        raise invalid("inputs: each must be a text, or a list of a text and its pair")
    return text_classification_pb2.TextInput(text=texts[0], text_pair=texts[1] if len(texts) == 2 else "")


def error_body(error: RpcError, status: int) -> Mapping[str, Any]:
    return {"error": error.message, "error_type": ERROR_TYPES.get(status, "backend")}


API = Api(
    "Text Embeddings Inference",
    (
        ApiRoute("/embed", embed, summary="Embed texts."),
        ApiRoute("/predict", predict, summary="Classify texts or pairs of texts."),
        ApiRoute("/rerank", rerank, summary="Rank texts by their relevance to a query."),
        ApiRoute("/info", info, ("GET",), "Describe the models."),
    ),
    error_body,
    names={"contents": "inputs", "documents": "texts"},
)
