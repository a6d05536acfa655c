"""triptych.v1.TranslationService."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from triptych.v1 import translation_pb2, translation_pb2_grpc
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.services.documents.calls import DocumentCalls
from triptych_serving.services.documents.codec import event_to
from triptych_serving.services.translation_calls import TextPiece, TranslationCalls, TranslationQuery, TranslationResult
from triptych_serving.services.v1.codec import (
    TranslateRequest,
    contents_from,
    options_from,
    pairs_from,
    score_to,
    translation_to,
    translation_wish_from,
)
from triptych_serving.services.v1.served import served_by


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Translate, TranslateStream, ScoreTranslations and TranslateDocument."""

    def __init__(self, calls: TranslationCalls, documents: DocumentCalls) -> None:
        self._calls = calls
        self._documents = documents

    async def Translate(
        self, request: translation_pb2.TranslateRequest, context: GrpcContext
    ) -> translation_pb2.TranslateResponse:
        outputs, use = await self._calls.translate(_texts_from(request), context)
        return translation_pb2.TranslateResponse(translations=map(translation_to, outputs), **served_by(use))

    async def TranslateStream(
        self, request: translation_pb2.TranslateStreamRequest, context: GrpcContext
    ) -> AsyncIterator[translation_pb2.TranslateStreamResponse]:
        async with aclosing(self._calls.stream(_texts_from(request), context)) as events:
            async for event in events:
                yield _event_to(event)

    async def ScoreTranslations(
        self, request: translation_pb2.ScoreTranslationsRequest, context: GrpcContext
    ) -> translation_pb2.ScoreTranslationsResponse:
        scores, use = await self._calls.score(translation_wish_from(request), pairs_from(request), context)
        return translation_pb2.ScoreTranslationsResponse(scores=map(score_to, scores), **served_by(use))

    async def TranslateDocument(
        self, requests: AsyncIterator[translation_pb2.TranslateDocumentRequest], context: GrpcContext
    ) -> AsyncIterator[translation_pb2.TranslateDocumentResponse]:
        async with aclosing(self._documents.translate(requests, context)) as events:
            async for event in events:
                yield event_to(event)


def _texts_from(request: TranslateRequest) -> TranslationQuery:
    return TranslationQuery(translation_wish_from(request), contents_from(request), options_from(request.options))


def _event_to(event: TextPiece | TranslationResult | ModelUse) -> translation_pb2.TranslateStreamResponse:
    response = translation_pb2.TranslateStreamResponse
    if isinstance(event, TextPiece):
        return response(piece=translation_pb2.TranslationPiece(content_index=event.index, text=event.text))
    if isinstance(event, TranslationResult):
        result = translation_pb2.TranslationResult(content_index=event.index, translation=translation_to(event.output))
        return response(result=result)
    return response(summary=translation_pb2.StreamSummary(**served_by(event)))
