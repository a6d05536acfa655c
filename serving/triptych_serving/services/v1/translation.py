"""triptych.v1.TranslationService."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from itertools import chain
from typing import Any

from triptych.v1 import translation_pb2, translation_pb2_grpc
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.translation.postprocess import Translation
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.rpc.wire import Parts, nested
from triptych_serving.services.decode_calls import DecodeEvent, FinishedText, TextPiece
from triptych_serving.services.documents.calls import DocumentCalls
from triptych_serving.services.translation_calls import ScoreQuery, TranslationCalls, TranslationQuery
from triptych_serving.services.v1.codec import (
    PLAIN_TEXT,
    contents_from,
    joined,
    options_from,
    packed_score,
    packed_translation,
    served_by,
    translation_selector_from,
)

StreamResponse = translation_pb2.TranslateStreamResponse


class TranslationServicer(translation_pb2_grpc.TranslationServiceServicer):
    """Serve Translate, TranslateStream, ScoreTranslations and TranslateDocument. Responses are returned in parts."""

    def __init__(self, calls: TranslationCalls, documents: DocumentCalls) -> None:
        self._calls = calls
        self._documents = documents

    async def Translate(self, request: translation_pb2.TranslateRequest, context: GrpcContext) -> Any:
        if request.glossary or request.mime_type not in ("", PLAIN_TEXT):
            return await self._documents.translate_texts(request, context)
        translations, use = await self._calls.run(_query_from(request, _packed_element), context)
        return joined(chain.from_iterable(translations), translation_pb2.TranslateResponse(**served_by(use)))

    async def TranslateStream(
        self, request: translation_pb2.TranslateStreamRequest, context: GrpcContext
    ) -> AsyncIterator[Any]:
        async with aclosing(self._calls.stream(_query_from(request, packed_translation), context)) as events:
            async for event in events:
                yield _event_to(event)

    async def ScoreTranslations(self, request: translation_pb2.ScoreTranslationsRequest, context: GrpcContext) -> Any:
        if not request.pairs:
            raise InvalidInputError("pairs", "there are no pairs")
        pairs = [(pair.source, pair.target) for pair in request.pairs]
        scores, use = await self._calls.score(ScoreQuery(translation_selector_from(request), pairs, packed_score), context)
        return joined(scores, translation_pb2.ScoreTranslationsResponse(**served_by(use)))

    def TranslateDocument(
        self, requests: AsyncIterator[translation_pb2.TranslateDocumentRequest], context: GrpcContext
    ) -> AsyncIterator[translation_pb2.TranslateDocumentResponse]:
        return self._documents.translate(requests, context)


def _query_from(
    request: translation_pb2.TranslateRequest | translation_pb2.TranslateStreamRequest, convert: Callable[[Translation], Any]
) -> TranslationQuery:
    options = options_from(request.options)
    return TranslationQuery(translation_selector_from(request), contents_from(request), options, convert)


def _packed_element(translation: Translation) -> Parts:
    return nested(translation_pb2.TranslateResponse.TRANSLATIONS_FIELD_NUMBER, packed_translation(translation))


def _event_to(event: DecodeEvent) -> StreamResponse | Parts:
    if isinstance(event, TextPiece):
        return StreamResponse(piece=translation_pb2.TranslationPiece(content_index=event.index, text=event.text))
    if isinstance(event, FinishedText):
        index = translation_pb2.TranslationResult(content_index=event.index).SerializeToString()
        translation = nested(translation_pb2.TranslationResult.TRANSLATION_FIELD_NUMBER, event.result)
        return nested(StreamResponse.RESULT_FIELD_NUMBER, [index, *translation])
    return StreamResponse(summary=translation_pb2.StreamSummary(**served_by(event)))
