"""How a task of the text family is asked."""

from collections.abc import Sequence
from typing import Any

from triptych_serving.models.text.task import TextInput, TextTask
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.task import Calls, Question, Results
from triptych_serving.services.text_calls import TextQuery


async def ask(
    calls: Calls, question: Question, context: GrpcContext, task: TextTask[Any], inputs: Sequence[TextInput], **options: Any
) -> Results:
    """Results of the task for these inputs and options."""
    query: TextQuery[Any, Any] = TextQuery(task, inputs, options, lambda result: result)
    answered = await calls.texts.answer(question.wish(), context, query)
    return answered.messages
