"""Translation."""

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from triptych_serving.models.translation.options import DecodingOptions, SplitSentences
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.parameters import FLAG, NUMBER, SEED, TEXT, TEXTS, WHOLE, Parameters, choice
from triptych_serving.services.oip.task import TEXT_INPUT, Calls, Events, Output, Question, Results, Task
from triptych_serving.services.oip.tensors import BYTES, FP32, UINT32
from triptych_serving.services.translation_calls import TextPiece, TranslationQuery

LANGUAGES: Parameters = {"source_language_code": TEXT, "target_language_code": TEXT}
KINDS = {
    int: WHOLE,
    float: NUMBER,
    bool: FLAG,
    str: TEXTS,
    SplitSentences: choice(auto=SplitSentences.AUTO, off=SplitSentences.OFF),
}
OPTIONS: Parameters = {field.name: KINDS[field.metadata["kind"]] for field in fields(DecodingOptions)} | {"seed": SEED}
SCORE, ALIGNMENT = "score", "alignment"


def _of_each(part: Callable[[TranslationHypothesis], Any]) -> Callable[[Translation], list[Any]]:
    return lambda output: [part(hypothesis) for hypothesis in output.hypotheses]


def _alignment(hypothesis: TranslationHypothesis) -> str:
    assert hypothesis.alignment is not None, "whoever wants this output has asked for it"
    return json.dumps(hypothesis.alignment.astype(float).round(6).tolist())


def _texts(question: Question) -> TranslationQuery:
    values = dict(question.values)
    languages = {name.removesuffix("_code"): values.pop(name, "") for name in LANGUAGES}
    if question.wants(SCORE):
        values["return_scores"] = True
    if question.wants(ALIGNMENT):
        values["return_alignment"] = True
    return TranslationQuery(question.wish(**languages), question.inputs.texts("text"), DecodingOptions(**values))


async def _answer(calls: Calls, question: Question, context: GrpcContext) -> Results:
    outputs, _ = await calls.translations.translate(_texts(question), context)
    return outputs


def _stream(calls: Calls, question: Question, context: GrpcContext) -> Events:
    return calls.translations.stream(_texts(question), context)


def _piece(piece: TextPiece) -> str:
    return piece.text


def _piece_index(piece: TextPiece) -> int:
    return piece.index


TRANSLATION = Task(
    inputs=(TEXT_INPUT,),
    outputs=(
        Output("translated_text", BYTES, lambda output: output.text, weight=100),
        Output("hypotheses", BYTES, _of_each(lambda one: one.text), (-1,), 100, asked_by="num_hypotheses"),
        Output(SCORE, FP32, _of_each(lambda one: one.score), (-1,), asked_by="return_scores"),
        Output("finish_reason", BYTES, _of_each(lambda one: one.finish.value), (-1,), asked_by=None),
        Output("token_count", UINT32, _of_each(lambda one: one.token_count), (-1,), asked_by=None),
        Output("source_token_count", UINT32, lambda output: output.source_token_count, asked_by=None),
        Output(ALIGNMENT, BYTES, _of_each(_alignment), (-1,), 10_000, asked_by="return_alignment"),
    ),
    parameters={**LANGUAGES, **OPTIONS},
    answer=_answer,
    stream=_stream,
    pieces=(Output("piece", BYTES, _piece), Output("piece_index", UINT32, _piece_index)),
)
