"""How a task of the text family is asked."""

from collections.abc import Callable
from typing import Any

from triptych_serving.encoding.options import Work
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.task import Calls, Question, Results
from triptych_serving.services.text_calls import Asked


async def ask(
    calls: Calls,
    question: Question,
    context: GrpcContext,
    capability: str,
    prepare: Callable[..., Work[Any]],
    *content: Any,
) -> Results:
    """Results of `prepare(model, *content)`; the content is all that they depend on."""
    size = sum(map(len, (text for texts in question.inputs.elements.values() for text in texts)))

    def prepared(model: TextModel) -> Work[Any]:
        return prepare(model, *content)

    asked: Asked[Any, Any] = Asked(capability, size, prepared, _same, len(content[0]), content)
    answered = await calls.texts.answer(question.wish(), context, asked)
    return answered.messages


def _same(result: Any) -> Any:
    return result
