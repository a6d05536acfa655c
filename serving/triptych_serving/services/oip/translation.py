"""The translation task. Its parameters are the languages and all decoding options."""

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import fields
from typing import Any

from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.oip.parameters import TEXT, type_of_option
from triptych_serving.services.oip.task import TEXT_INPUT, InferQuery, InferTask, OutputTensor, TaskCalls, TaskResults
from triptych_serving.services.oip.tensors import BYTES, FP32, UINT32
from triptych_serving.services.translation_calls import TranslationEvent, TranslationPiece, TranslationQuery

LANGUAGES = {"source_language_code": TEXT, "target_language_code": TEXT}
OPTIONS = {option.name: type_of_option(option) for option in fields(DecodingOptions)}
SCORE, ALIGNMENT = "score", "alignment"


def _of_each(part: Callable[[TranslationHypothesis], Any]) -> Callable[[Translation], list[Any]]:
    return lambda translation: [part(hypothesis) for hypothesis in translation.hypotheses]


def _of_hypotheses(translation: Translation) -> int:
    return 100 * len(translation.hypotheses)


def _of_alignments(translation: Translation) -> int:
    return sum(10 * one.alignment.size for one in translation.hypotheses if one.alignment is not None)


def _alignment(hypothesis: TranslationHypothesis) -> str:
    assert hypothesis.alignment is not None, "requesting this output sets return_alignment"
    return json.dumps(hypothesis.alignment.astype(float).round(6).tolist())


def _query_from(query: InferQuery) -> TranslationQuery:
    values = dict(query.values)
    languages = {name.removesuffix("_code"): values.pop(name, "") for name in LANGUAGES}
    if query.has_output(SCORE):
        values["return_scores"] = True
    if query.has_output(ALIGNMENT):
        values["return_alignment"] = True
    return TranslationQuery(query.selector(**languages), query.inputs.texts("text"), DecodingOptions(**values))


async def _run(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> TaskResults:
    translations, _ = await calls.translations.translate(_query_from(query), context)
    return translations


def _stream(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> AsyncGenerator[TranslationEvent]:
    return calls.translations.stream(_query_from(query), context)


def _piece(piece: TranslationPiece) -> str:
    return piece.text


def _piece_index(piece: TranslationPiece) -> int:
    return piece.index


TRANSLATION = InferTask(
    inputs=(TEXT_INPUT,),
    outputs=(
        OutputTensor("translated_text", BYTES, lambda translation: translation.text, weight=_of_hypotheses),
        OutputTensor("hypotheses", BYTES, _of_each(lambda one: one.text), (-1,), _of_hypotheses, requested_by="num_hypotheses"),
        OutputTensor(SCORE, FP32, _of_each(lambda one: one.score), (-1,), requested_by="return_scores"),
        OutputTensor("finish_reason", BYTES, _of_each(lambda one: one.finish.value), (-1,), requested_by=None),
        OutputTensor("token_count", UINT32, _of_each(lambda one: one.token_count), (-1,), requested_by=None),
        OutputTensor("source_token_count", UINT32, lambda one: one.source_token_count, requested_by=None),
        OutputTensor(ALIGNMENT, BYTES, _of_each(_alignment), (-1,), _of_alignments, requested_by="return_alignment"),
    ),
    parameters={**LANGUAGES, **OPTIONS},
    run=_run,
    stream=_stream,
    pieces=(OutputTensor("piece", BYTES, _piece), OutputTensor("piece_index", UINT32, _piece_index)),
)
