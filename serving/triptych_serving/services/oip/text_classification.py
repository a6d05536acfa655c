"""Labels of whole texts, or of pairs of texts."""

from triptych_serving.models.text.tasks import TEXT_CLASSIFICATION_TASK, TextInput
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.parameters import WHOLE
from triptych_serving.services.oip.task import LABELS, TEXT_INPUT, TOKEN_COUNT, Calls, Question, Results, Task
from triptych_serving.services.oip.tensors import TensorInput
from triptych_serving.services.oip.texts import ask

PAIR = TensorInput("text_pair", optional=True)


async def _answer(calls: Calls, question: Question, context: GrpcContext) -> Results:
    texts, pairs = question.inputs.texts("text"), question.inputs.texts("text_pair")
    # An empty second text is none, so that a model that takes both is asked for both in one request.
    given: list[TextInput] = [(one, two) if two else one for one, two in zip(texts, pairs or [""] * len(texts), strict=True)]
    top_k = question.values.get("top_k")
    return await ask(calls, question, context, TEXT_CLASSIFICATION_TASK, given, top_k=top_k)


TEXT_CLASSIFICATION = Task(
    inputs=(TEXT_INPUT, PAIR), outputs=(*LABELS, TOKEN_COUNT), parameters={"top_k": WHOLE}, answer=_answer
)
