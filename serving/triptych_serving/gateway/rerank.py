"""Reranking as Cohere's and Jina's clients, and those of vLLM, ask for it."""

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from triptych.v1 import rerank_pb2
from triptych_serving.gateway.call import HttpCall, as_object, invalid
from triptych_serving.gateway.route import Api, ApiRoute
from triptych_serving.rpc.direct_calls import RpcError

OPTIONS = {"model": ("model", str), "top_n": ("top_k", int), "truncate": ("truncate", bool)}  # the last one is ours
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("max_tokens_per_doc", "max_chunks_per_doc", "truncate_prompt_tokens", "max_doc_length"), ()),
    "rank_fields": (["text"],),
    "return_embeddings": (False,),
}


async def rerank(call: HttpCall, with_documents: bool) -> dict[str, Any]:
    """Rank `documents` by their relevance to `query`; `with_documents`: whether to return them if the request does not say."""
    given = await call.json()
    given.refuse(UNSUPPORTED)
    documents = given.get("documents")
    if not isinstance(documents, list) or not documents:
        raise invalid("documents: must be a list of strings, or of objects with a text, and not empty")
    texts = [
        one if isinstance(one, str) else as_object(one, f"documents[{index}]").take("text", str)
        for index, one in enumerate(documents)
    ]
    request = rerank_pb2.RerankRequest(query=given.take("query", str), documents=texts, **given.take_given(OPTIONS))
    with_documents = given.take("return_documents", bool, with_documents)
    response = await call.ask(request)

    def ranked(one: Any) -> dict[str, Any]:
        document = {"document": {"text": texts[one.index]}} if with_documents else {}
        return {"index": one.index, "relevance_score": one.score, **document}

    tokens = sum(one.token_count for one in response.results)
    return {
        "id": str(uuid.uuid4()),
        "model": response.model,
        "results": await call.convert(response, ranked),
        "usage": {"total_tokens": tokens},
        "meta": {"tokens": {"input_tokens": tokens}},  # Cohere's, without which Vercel's AI SDK refuses the response
    }


def error_body(error: RpcError, _: int) -> Mapping[str, Any]:
    return {"message": error.message, "detail": error.message}  # Cohere's name and Jina's


API = Api(
    "Cohere and Jina",
    (
        ApiRoute("/v1/rerank", partial(rerank, with_documents=True), summary="Rank texts by their relevance to a query."),
        ApiRoute("/v2/rerank", partial(rerank, with_documents=False), summary="Rank texts by their relevance to a query."),
    ),
    error_body,
    names={"top_k": "top_n"},
)
