"""The services of the text tasks: one servicer, whose methods convert messages to a TextQuery and results to messages."""

from collections.abc import Callable
from dataclasses import replace
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
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.embedding import TextEmbedding
from triptych_serving.models.text.fill_mask import FilledMask, FilledText
from triptych_serving.models.text.neighbors import NearestWords
from triptych_serving.models.text.question_answering import AnsweredQuestion
from triptych_serving.models.text.rerank import RankedDocument
from triptych_serving.models.text.tasks import (
    EMBEDDING_TASK,
    FILL_MASK_TASK,
    NEIGHBORS_TASK,
    QUESTION_ANSWERING_TASK,
    RERANK_TASK,
    TEXT_CLASSIFICATION_TASK,
    TOKEN_CLASSIFICATION_TASK,
)
from triptych_serving.models.text.text_classification import ClassifiedText
from triptych_serving.models.text.token_classification import LabelledText
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.text_calls import TextCalls, TextQuery
from triptych_serving.services.v1.codec import (
    ModelRequest,
    choice_from,
    contents_from,
    joined,
    labels_to,
    optional_from,
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
    token_classification_pb2.AGGREGATION_UNSPECIFIED: "simple",
    token_classification_pb2.AGGREGATION_NONE: "none",
    token_classification_pb2.AGGREGATION_SIMPLE: "simple",
}


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
        query = TextQuery(FILL_MASK_TASK, contents_from(request), options, _filled_text_to)
        return await self._run(request, context, query, fill_mask_pb2.FillMaskResponse)

    async def EmbedText(self, request: embedding_pb2.EmbedTextRequest, context: GrpcContext) -> Any:
        options: dict[str, Any] = {name: optional_from(request, name) for name in ("normalize", "dimensions")}
        options["truncate"] = request.truncate
        options["pooling"] = choice_from(request, "pooling", POOLING)
        query = TextQuery(EMBEDDING_TASK, contents_from(request), options, _embedding_to)
        return await self._run(request, context, query, embedding_pb2.EmbedTextResponse, "embeddings")

    async def ClassifyText(self, request: text_classification_pb2.ClassifyTextRequest, context: GrpcContext) -> Any:
        if not request.inputs:
            raise InvalidInputError("inputs", "there are no texts")
        inputs = [(one.text, one.text_pair) if one.text_pair else one.text for one in request.inputs]
        options = {"top_k": optional_from(request, "top_k"), "raw_scores": request.raw_scores, "truncate": request.truncate}
        query = TextQuery(TEXT_CLASSIFICATION_TASK, inputs, options, _classified_text_to)
        return await self._run(request, context, query, text_classification_pb2.ClassifyTextResponse)

    async def ClassifyTokens(self, request: token_classification_pb2.ClassifyTokensRequest, context: GrpcContext) -> Any:
        options = {"aggregation": choice_from(request, "aggregation", AGGREGATION), "truncate": request.truncate}
        query = TextQuery(TOKEN_CLASSIFICATION_TASK, contents_from(request), options, _labelled_text_to)
        return await self._run(request, context, query, token_classification_pb2.ClassifyTokensResponse)

    async def AnswerQuestion(self, request: question_answering_pb2.AnswerQuestionRequest, context: GrpcContext) -> Any:
        if not request.inputs:
            raise InvalidInputError("inputs", "there are no questions")
        inputs = [(one.question, one.context) for one in request.inputs]
        options = {name: optional_from(request, name) for name in ("top_k", "max_answer_length")}
        query = TextQuery(QUESTION_ANSWERING_TASK, inputs, options, _answered_question_to)
        return await self._run(request, context, query, question_answering_pb2.AnswerQuestionResponse)

    async def Rerank(self, request: rerank_pb2.RerankRequest, context: GrpcContext) -> Any:
        if not request.documents:
            raise InvalidInputError("documents", "there are no documents")
        pairs = [(request.query, document) for document in request.documents]
        options = {"top_k": optional_from(request, "top_k"), "raw_scores": request.raw_scores, "truncate": request.truncate}
        query = TextQuery(RERANK_TASK, pairs, options, _ranked_document_to)
        return await self._run(request, context, query, rerank_pb2.RerankResponse)

    async def FindNeighbors(self, request: neighbors_pb2.FindNeighborsRequest, context: GrpcContext) -> Any:
        query = TextQuery(NEIGHBORS_TASK, contents_from(request), {"top_k": optional_from(request, "top_k")}, _nearest_words_to)
        return await self._run(request, context, query, neighbors_pb2.FindNeighborsResponse)

    async def _run(
        self,
        request: ModelRequest,
        context: GrpcContext,
        query: TextQuery[Any, Any],
        response: Callable[..., Message],
        field: str = "results",
    ) -> Any:
        query = replace(query, convert=packer(response, field, query.convert))
        parts, use = await self._calls.run(selector_from(request), query, context)
        return joined(parts, response(**served_by(use)))


def _filled_text_to(filled: FilledText) -> fill_mask_pb2.FilledText:
    return fill_mask_pb2.FilledText(masks=[_mask_to(mask) for mask in filled.masks], token_count=filled.token_count)


def _mask_to(mask: FilledMask) -> fill_mask_pb2.FilledMask:
    candidates = [
        fill_mask_pb2.MaskCandidate(score=one.score, token=one.token, token_str=one.token_str, sequence=one.sequence)
        for one in mask.candidates
    ]
    return fill_mask_pb2.FilledMask(candidates=candidates)


def _embedding_to(embedding: TextEmbedding) -> embedding_pb2.Embedding:
    return embedding_pb2.Embedding(values=embedding.values, token_count=embedding.token_count, truncated=embedding.truncated)


def _classified_text_to(classified: ClassifiedText) -> text_classification_pb2.ClassifiedText:
    labels = labels_to(classified.labels)
    return text_classification_pb2.ClassifiedText(
        labels=labels, token_count=classified.token_count, truncated=classified.truncated
    )


def _labelled_text_to(labelled: LabelledText) -> token_classification_pb2.LabelledText:
    entities = [
        token_classification_pb2.Entity(label=one.label, score=one.score, text=one.text, start=one.start, end=one.end)
        for one in labelled.entities
    ]
    return token_classification_pb2.LabelledText(
        entities=entities, token_count=labelled.token_count, truncated=labelled.truncated
    )


def _answered_question_to(answered: AnsweredQuestion) -> question_answering_pb2.AnsweredQuestion:
    answers = [
        question_answering_pb2.Answer(text=one.text, score=one.score, start=one.start, end=one.end) for one in answered.answers
    ]
    return question_answering_pb2.AnsweredQuestion(answers=answers, token_count=answered.token_count)


def _ranked_document_to(ranked: RankedDocument) -> rerank_pb2.RankedDocument:
    return rerank_pb2.RankedDocument(
        index=ranked.index, score=ranked.score, token_count=ranked.token_count, truncated=ranked.truncated
    )


def _nearest_words_to(nearest: NearestWords) -> neighbors_pb2.NearestWords:
    neighbors = [neighbors_pb2.Neighbor(score=one.score, token=one.token, token_str=one.token_str) for one in nearest.neighbors]
    return neighbors_pb2.NearestWords(neighbors=neighbors, token_count=nearest.token_count)
