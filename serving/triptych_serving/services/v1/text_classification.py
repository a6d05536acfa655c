"""triptych.v1.TextClassificationService."""

from triptych.v1 import text_classification_pb2, text_classification_pb2_grpc
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.text.tasks import TEXT_CLASSIFICATION_TASK
from triptych_serving.models.text.tasks import TextInput as TextOrPair
from triptych_serving.models.text.text_classification import ClassifiedText
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.options import optional_from
from triptych_serving.services.text_calls import TextCalls, TextQuery
from triptych_serving.services.v1.codec import wish_from
from triptych_serving.services.v1.labels import labels_to


class TextClassificationServicer(text_classification_pb2_grpc.TextClassificationServiceServicer):
    """ClassifyText."""

    def __init__(self, calls: TextCalls) -> None:
        self._calls = calls

    async def ClassifyText(
        self, request: text_classification_pb2.ClassifyTextRequest, context: GrpcContext
    ) -> text_classification_pb2.ClassifyTextResponse:
        if not request.inputs:
            raise InvalidInputError("inputs", "there are no texts")
        inputs, top_k = [_input_from(one) for one in request.inputs], optional_from(request, "top_k")
        query = TextQuery(TEXT_CLASSIFICATION_TASK, inputs, {"top_k": top_k}, _text_to)
        answered = await self._calls.answer(wish_from(request), context, query)
        return text_classification_pb2.ClassifyTextResponse(results=answered.messages, **answered.common)


def _input_from(message: text_classification_pb2.TextInput) -> TextOrPair:
    return (message.text, message.text_pair) if message.text_pair else message.text


def _text_to(classified: ClassifiedText) -> text_classification_pb2.ClassifiedText:
    labels = labels_to(classified.labels)
    return text_classification_pb2.ClassifiedText(labels=labels, token_count=classified.token_count)
