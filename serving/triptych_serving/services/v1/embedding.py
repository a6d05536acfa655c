"""triptych.v1.EmbeddingService."""

from triptych.v1 import embedding_pb2, embedding_pb2_grpc
from triptych_serving.models.text.embedding import TextEmbedding
from triptych_serving.models.text.tasks import EMBEDDING_TASK
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.options import choice_from
from triptych_serving.services.text_calls import TextCalls, TextQuery
from triptych_serving.services.v1.codec import contents_from, wish_from

POOLING = {
    embedding_pb2.POOLING_UNSPECIFIED: None,
    embedding_pb2.POOLING_MEAN: "mean",
    embedding_pb2.POOLING_CLS: "cls",
}


class EmbeddingServicer(embedding_pb2_grpc.EmbeddingServiceServicer):
    """EmbedText."""

    def __init__(self, calls: TextCalls) -> None:
        self._calls = calls

    async def EmbedText(self, request: embedding_pb2.EmbedTextRequest, context: GrpcContext) -> embedding_pb2.EmbedTextResponse:
        texts, pooling = contents_from(request), choice_from(request, "pooling", POOLING)
        normalize = request.normalize if request.HasField("normalize") else None
        query = TextQuery(EMBEDDING_TASK, texts, {"pooling": pooling, "normalize": normalize}, _embedding_to)
        answered = await self._calls.answer(wish_from(request), context, query)
        return embedding_pb2.EmbedTextResponse(embeddings=answered.messages, **answered.common)


def _embedding_to(embedding: TextEmbedding) -> embedding_pb2.Embedding:
    return embedding_pb2.Embedding(values=embedding.values, token_count=embedding.token_count)
