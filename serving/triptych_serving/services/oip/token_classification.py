"""Labels of a text's parts, such as names of people and places: as many as there are, so a text's are one JSON array."""

import json
from dataclasses import asdict

from triptych_serving.models.text.tasks import TOKEN_CLASSIFICATION_TASK
from triptych_serving.models.text.token_classification import NONE, SIMPLE, LabelledText
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.parameters import choice
from triptych_serving.services.oip.task import TEXT_INPUT, TOKEN_COUNT, Calls, Output, Question, Results, Task
from triptych_serving.services.oip.tensors import BYTES
from triptych_serving.services.oip.texts import ask


def _entities(text: LabelledText) -> str:
    return json.dumps([asdict(entity) for entity in text.entities], ensure_ascii=False)


async def _answer(calls: Calls, question: Question, context: GrpcContext) -> Results:
    texts, aggregation = question.inputs.texts("text"), question.values.get("aggregation", SIMPLE)
    return await ask(calls, question, context, TOKEN_CLASSIFICATION_TASK, texts, aggregation=aggregation)


TOKEN_CLASSIFICATION = Task(
    inputs=(TEXT_INPUT,),
    outputs=(Output("entities", BYTES, _entities, weight=500), TOKEN_COUNT),
    parameters={"aggregation": choice(none=NONE, simple=SIMPLE)},
    answer=_answer,
)
