"""triptych.v1.FillMaskService."""

from triptych.v1 import fill_mask_pb2, fill_mask_pb2_grpc
from triptych_serving.models.text.fill_mask import FilledMask, FilledText
from triptych_serving.models.text.tasks import FILL_MASK_TASK
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.options import optional_from
from triptych_serving.services.text_calls import TextCalls, TextQuery
from triptych_serving.services.v1.codec import contents_from, wish_from


class FillMaskServicer(fill_mask_pb2_grpc.FillMaskServiceServicer):
    """FillMask."""

    def __init__(self, calls: TextCalls) -> None:
        self._calls = calls

    async def FillMask(self, request: fill_mask_pb2.FillMaskRequest, context: GrpcContext) -> fill_mask_pb2.FillMaskResponse:
        texts, targets, top_k = contents_from(request), tuple(request.targets), optional_from(request, "top_k")
        query = TextQuery(FILL_MASK_TASK, texts, {"top_k": top_k, "targets": targets}, _text_to)
        answered = await self._calls.answer(wish_from(request), context, query)
        return fill_mask_pb2.FillMaskResponse(results=answered.messages, **answered.common)


def _text_to(filled: FilledText) -> fill_mask_pb2.FilledText:
    return fill_mask_pb2.FilledText(masks=[_mask_to(mask) for mask in filled.masks], token_count=filled.token_count)


def _mask_to(mask: FilledMask) -> fill_mask_pb2.FilledMask:
    candidates = [
        fill_mask_pb2.MaskCandidate(score=one.score, token=one.token, token_str=one.token_str, sequence=one.sequence)
        for one in mask.candidates
    ]
    return fill_mask_pb2.FilledMask(candidates=candidates)
