"""triptych.v1.TokenClassificationService."""

from triptych.v1 import token_classification_pb2, token_classification_pb2_grpc
from triptych_serving.models.text.tasks import TOKEN_CLASSIFICATION_TASK
from triptych_serving.models.text.token_classification import LabelledText
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.options import choice_from
from triptych_serving.services.text_calls import TextCalls, TextQuery
from triptych_serving.services.v1.codec import contents_from, wish_from

AGGREGATION = {
    token_classification_pb2.AGGREGATION_UNSPECIFIED: "simple",
    token_classification_pb2.AGGREGATION_NONE: "none",
    token_classification_pb2.AGGREGATION_SIMPLE: "simple",
}


class TokenClassificationServicer(token_classification_pb2_grpc.TokenClassificationServiceServicer):
    """ClassifyTokens."""

    def __init__(self, calls: TextCalls) -> None:
        self._calls = calls

    async def ClassifyTokens(
        self, request: token_classification_pb2.ClassifyTokensRequest, context: GrpcContext
    ) -> token_classification_pb2.ClassifyTokensResponse:
        texts, aggregation = contents_from(request), choice_from(request, "aggregation", AGGREGATION)
        query = TextQuery(TOKEN_CLASSIFICATION_TASK, texts, {"aggregation": aggregation}, _text_to)
        answered = await self._calls.answer(wish_from(request), context, query)
        return token_classification_pb2.ClassifyTokensResponse(results=answered.messages, **answered.common)


def _text_to(labelled: LabelledText) -> token_classification_pb2.LabelledText:
    entities = [
        token_classification_pb2.Entity(label=one.label, score=one.score, text=one.text, start=one.start, end=one.end)
        for one in labelled.entities
    ]
    return token_classification_pb2.LabelledText(entities=entities, token_count=labelled.token_count)
