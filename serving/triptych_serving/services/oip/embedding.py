"""Texts as vectors."""

from triptych_serving.models.text.tasks import EMBEDDING_TASK
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.parameters import FLAG, choice
from triptych_serving.services.oip.task import TEXT_INPUT, TOKEN_COUNT, Calls, Output, Question, Results, Task
from triptych_serving.services.oip.tensors import FP32
from triptych_serving.services.oip.texts import ask


async def _answer(calls: Calls, question: Question, context: GrpcContext) -> Results:
    pooling, normalize = question.values.get("pooling"), question.values.get("normalize")
    texts = question.inputs.texts("text")
    return await ask(calls, question, context, EMBEDDING_TASK, texts, pooling=pooling, normalize=normalize)


EMBEDDING = Task(
    inputs=(TEXT_INPUT,),
    outputs=(Output("embedding", FP32, lambda result: result.values, (-1,), 1_000), TOKEN_COUNT),
    parameters={"pooling": choice(mean="mean", cls="cls"), "normalize": FLAG},
    answer=_answer,
)
