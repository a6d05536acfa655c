"""Masked-token fill. A tensor has as many masks of each text as the text with most of them; others are filled up."""

from collections.abc import Callable
from typing import Any

from triptych_serving.models.text.fill_mask import FilledText, MaskCandidate
from triptych_serving.models.text.tasks import FILL_MASK_TASK
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.parameters import TEXTS, WHOLE
from triptych_serving.services.oip.task import TEXT_INPUT, TOKEN_COUNT, Calls, Output, Question, Results, Task
from triptych_serving.services.oip.tensors import BYTES, FP32, INT64, UINT32
from triptych_serving.services.oip.texts import ask


def _of_each(part: Callable[[MaskCandidate], Any]) -> Callable[[FilledText], list[list[Any]]]:
    return lambda text: [[part(candidate) for candidate in mask.candidates] for mask in text.masks]


async def _answer(calls: Calls, question: Question, context: GrpcContext) -> Results:
    top_k, targets = question.values.get("top_k"), question.values.get("targets", ())
    texts = question.inputs.texts("text")
    return await ask(calls, question, context, FILL_MASK_TASK, texts, top_k=top_k, targets=targets)


FILL_MASK = Task(
    inputs=(TEXT_INPUT,),
    outputs=(
        Output("sequence", BYTES, _of_each(lambda one: one.sequence), (-1, -1), 500),
        Output("token_str", BYTES, _of_each(lambda one: one.token_str), (-1, -1), 50),
        Output("token", INT64, _of_each(lambda one: one.token), (-1, -1), 50),
        Output("score", FP32, _of_each(lambda one: one.score), (-1, -1), 50),
        Output("mask_count", UINT32, lambda text: len(text.masks), asked_by=None),
        TOKEN_COUNT,
    ),
    parameters={"top_k": WHOLE, "targets": TEXTS},
    answer=_answer,
)
