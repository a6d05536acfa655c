"""The translation task. Its parameters are the languages and all decoding options."""

import json
from collections.abc import AsyncGenerator
from dataclasses import fields

from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.decode_calls import DecodeEvent
from triptych_serving.services.oip.parameters import TEXT, type_of_option
from triptych_serving.services.oip.task import (
    PIECES,
    TEXT_INPUT,
    InferQuery,
    InferTask,
    OutputTensor,
    TaskCalls,
    TaskResults,
    decoded_outputs,
    of_each,
)
from triptych_serving.services.oip.tensors import BYTES, UINT32
from triptych_serving.services.translation_calls import TranslationQuery

LANGUAGES = {"source_language_code": TEXT, "target_language_code": TEXT}
OPTIONS = {option.name: type_of_option(option) for option in fields(DecodingOptions)}
SCORE, ALIGNMENT = "score", "alignment"


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


def _stream(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> AsyncGenerator[DecodeEvent]:
    return calls.translations.stream(_query_from(query), context)


TRANSLATION = InferTask(
    inputs=(TEXT_INPUT,),
    outputs=(
        OutputTensor("translated_text", BYTES, lambda translation: translation.text, weight=_of_hypotheses),
        OutputTensor(
            "hypotheses",
            BYTES,
            of_each("hypotheses", lambda one: one.text),
            (-1,),
            _of_hypotheses,
            requested_by="num_hypotheses",
        ),
        *decoded_outputs("hypotheses"),
        OutputTensor("source_token_count", UINT32, lambda one: one.source_token_count, requested_by=None),
        OutputTensor(
            ALIGNMENT, BYTES, of_each("hypotheses", _alignment), (-1,), _of_alignments, requested_by="return_alignment"
        ),
    ),
    parameters={**LANGUAGES, **OPTIONS},
    run=_run,
    stream=_stream,
    pieces=PIECES,
)
