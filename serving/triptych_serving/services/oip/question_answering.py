"""Extractive question answering: the best answer as tensors, and all of a question's answers as one JSON array."""

import json
from dataclasses import asdict

from triptych_serving.models.text.question_answering import AnsweredQuestion
from triptych_serving.models.text.tasks import QUESTION_ANSWERING_TASK
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.parameters import WHOLE
from triptych_serving.services.oip.task import TOKEN_COUNT, Calls, Output, Question, Results, Task
from triptych_serving.services.oip.tensors import BYTES, FP32, TensorInput
from triptych_serving.services.oip.texts import ask


def _best(answered: AnsweredQuestion) -> str:
    return answered.answers[0].text if answered.answers else ""


def _score(answered: AnsweredQuestion) -> float:
    return answered.answers[0].score if answered.answers else 0.0


def _answers(answered: AnsweredQuestion) -> str:
    return json.dumps([asdict(answer) for answer in answered.answers], ensure_ascii=False)


async def _answer(calls: Calls, question: Question, context: GrpcContext) -> Results:
    inputs = list(zip(question.inputs.texts("question"), question.inputs.texts("context"), strict=True))
    top_k, length = question.values.get("top_k"), question.values.get("max_answer_length")
    return await ask(calls, question, context, QUESTION_ANSWERING_TASK, inputs, top_k=top_k, max_answer_length=length)


QUESTION_ANSWERING = Task(
    inputs=(TensorInput("question"), TensorInput("context")),
    outputs=(
        Output("answer", BYTES, _best),
        Output("score", FP32, _score),
        Output("answers", BYTES, _answers, weight=200),
        TOKEN_COUNT,
    ),
    parameters={"top_k": WHOLE, "max_answer_length": WHOLE},
    answer=_answer,
)
