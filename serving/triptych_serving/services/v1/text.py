"""The services of the text tasks: one servicer, whose methods convert messages to a TextQuery."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import Message

from triptych.v1 import (
    embedding_pb2,
    embedding_pb2_grpc,
    fill_mask_pb2,
    fill_mask_pb2_grpc,
    neighbors_pb2,
    neighbors_pb2_grpc,
    question_answering_pb2,
    question_answering_pb2_grpc,
    rerank_pb2,
    rerank_pb2_grpc,
    text_classification_pb2,
    text_classification_pb2_grpc,
    token_classification_pb2,
    token_classification_pb2_grpc,
)
from triptych_serving.bundle.manifest import AGGREGATIONS
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text import tasks
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.text_calls import TextCalls, TextQuery
from triptych_serving.services.v1.codec import (
    ModelRequest,
    choice_from,
    contents_from,
    joined,
    optional_from,
    packed_embedding,
    packer,
    selector_from,
    served_by,
)

POOLING = {
    embedding_pb2.POOLING_UNSPECIFIED: None,
    embedding_pb2.POOLING_MEAN: "mean",
    embedding_pb2.POOLING_CLS: "cls",
}
AGGREGATION = {
    token_classification_pb2.AGGREGATION_UNSPECIFIED: None,
    **{getattr(token_classification_pb2, f"AGGREGATION_{name.upper()}"): name for name in AGGREGATIONS},
}

RESPONSES: Mapping[str, type[Message]] = {
    tasks.EMBEDDING_TASK.name: embedding_pb2.EmbedTextResponse,
    tasks.FILL_MASK_TASK.name: fill_mask_pb2.FillMaskResponse,
    tasks.NEIGHBORS_TASK.name: neighbors_pb2.FindNeighborsResponse,
    tasks.QUESTION_ANSWERING_TASK.name: question_answering_pb2.AnswerQuestionResponse,
    tasks.RERANK_TASK.name: rerank_pb2.RerankResponse,
    tasks.TEXT_CLASSIFICATION_TASK.name: text_classification_pb2.ClassifyTextResponse,
    tasks.TOKEN_CLASSIFICATION_TASK.name: token_classification_pb2.ClassifyTokensResponse,
}
PACKERS = {name: packer(response) for name, response in RESPONSES.items()} | {tasks.EMBEDDING_TASK.name: packed_embedding}


class TextServicer(
    embedding_pb2_grpc.EmbeddingServiceServicer,
    fill_mask_pb2_grpc.FillMaskServiceServicer,
    neighbors_pb2_grpc.NeighborServiceServicer,
    question_answering_pb2_grpc.QuestionAnsweringServiceServicer,
    rerank_pb2_grpc.RerankServiceServicer,
    text_classification_pb2_grpc.TextClassificationServiceServicer,
    token_classification_pb2_grpc.TokenClassificationServiceServicer,
):
    """Serve every text task. The methods return packed responses."""

    def __init__(self, calls: TextCalls) -> None:
        self._calls = calls

    async def FillMask(self, request: fill_mask_pb2.FillMaskRequest, context: GrpcContext) -> Any:
        options = {"top_k": optional_from(request, "top_k"), "targets": tuple(request.targets)}
        return await self._run(request, context, tasks.FILL_MASK_TASK, contents_from(request), options)

    async def EmbedText(self, request: embedding_pb2.EmbedTextRequest, context: GrpcContext) -> Any:
        options: dict[str, Any] = {name: optional_from(request, name) for name in ("normalize", "dimensions")}
        options |= {"truncate": request.truncate, "pooling": choice_from(request, "pooling", POOLING)}
        options |= {"token_vectors": request.token_vectors, "prompt_name": request.prompt_name}
        return await self._run(request, context, tasks.EMBEDDING_TASK, contents_from(request), options)

    async def ClassifyText(self, request: text_classification_pb2.ClassifyTextRequest, context: GrpcContext) -> Any:
        if not request.inputs:
            raise InvalidInputError("inputs", "there are no texts")
        inputs = [(one.text, one.text_pair) if one.text_pair else one.text for one in request.inputs]
        options = {"top_k": optional_from(request, "top_k"), "raw_scores": request.raw_scores, "truncate": request.truncate}
        return await self._run(request, context, tasks.TEXT_CLASSIFICATION_TASK, inputs, options)

    async def ClassifyTokens(self, request: token_classification_pb2.ClassifyTokensRequest, context: GrpcContext) -> Any:
        options = {"aggregation": choice_from(request, "aggregation", AGGREGATION), "truncate": request.truncate}
        return await self._run(request, context, tasks.TOKEN_CLASSIFICATION_TASK, contents_from(request), options)

    async def AnswerQuestion(self, request: question_answering_pb2.AnswerQuestionRequest, context: GrpcContext) -> Any:
        if not request.inputs:
            raise InvalidInputError("inputs", "there are no questions")
        inputs = [(one.question, one.context) for one in request.inputs]
        options = {name: optional_from(request, name) for name in ("top_k", "max_answer_length")}
        return await self._run(request, context, tasks.QUESTION_ANSWERING_TASK, inputs, options)

    async def Rerank(self, request: rerank_pb2.RerankRequest, context: GrpcContext) -> Any:
        if not request.documents:
            raise InvalidInputError("documents", "there are no documents")
        pairs = [(request.query, document) for document in request.documents]
        options = {"top_k": optional_from(request, "top_k"), "raw_scores": request.raw_scores, "truncate": request.truncate}
        return await self._run(request, context, tasks.RERANK_TASK, pairs, options)

    async def FindNeighbors(self, request: neighbors_pb2.FindNeighborsRequest, context: GrpcContext) -> Any:
        options = {"top_k": optional_from(request, "top_k")}
        return await self._run(request, context, tasks.NEIGHBORS_TASK, contents_from(request), options)

    async def _run(
        self,
        request: ModelRequest,
        context: GrpcContext,
        task: tasks.TextTask[Any],
        inputs: Sequence[tasks.TextInput],
        options: Mapping[str, Any],
    ) -> Any:
        query = TextQuery(task, inputs, options, PACKERS[task.name])
        parts, use = await self._calls.run(selector_from(request), query, context)
        return joined(parts, RESPONSES[task.name](**served_by(use)))
