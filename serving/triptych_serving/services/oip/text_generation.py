"""The task of continuing texts. Its parameters are those of `triptych.v1.GenerateRequest` and its decoding options."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import fields
from typing import Any

from triptych.decoding import DecodingOptions
from triptych_serving.models.generation.options import FOREIGN, GenerationRequest
from triptych_serving.models.generation.text import GeneratedChoice, Generation
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.generation_calls import GenerationPiece, GenerationQuery
from triptych_serving.services.oip.parameters import FLAG, INTEGER, TEXTS, type_of_option
from triptych_serving.services.oip.task import TEXT_INPUT, InferQuery, InferTask, OutputTensor, TaskCalls, TaskResults
from triptych_serving.services.oip.tensors import BYTES, FP32, UINT32
from triptych_serving.services.translation_calls import TranslationEvent

OWN = {"max_tokens": INTEGER, "n": INTEGER, "stop": TEXTS, "echo": FLAG}
OPTIONS = {option.name: type_of_option(option) for option in fields(DecodingOptions) if option.name not in FOREIGN}
SCORE = "score"


def _of_each(part: Callable[[GeneratedChoice], Any]) -> Callable[[Generation], list[Any]]:
    return lambda generation: [part(choice) for choice in generation.choices]


def _characters(generation: Generation) -> int:
    return sum(len(choice.text) for choice in generation.choices)


def _query_from(query: InferQuery) -> GenerationQuery:
    values = dict(query.values)
    own = {name: values.pop(name) for name in OWN if name in values}
    if query.has_output(SCORE):
        values["return_scores"] = True
    request = GenerationRequest(prompts=query.inputs.texts("text"), options=DecodingOptions(**values), **own)
    return GenerationQuery(query.selector(), request)


async def _run(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> TaskResults:
    generations, _ = await calls.generations.generate(_query_from(query), context)
    return generations


def _stream(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> AsyncGenerator[TranslationEvent]:
    return calls.generations.stream(_query_from(query), context)


def _piece_text(piece: GenerationPiece) -> str:
    return piece.text


def _piece_index(piece: GenerationPiece) -> int:
    return piece.index


def _piece_choice(piece: GenerationPiece) -> int:
    return piece.choice


GENERATION = InferTask(
    inputs=(TEXT_INPUT,),
    outputs=(
        OutputTensor("generated_text", BYTES, lambda generation: generation.text, weight=_characters),
        OutputTensor("choices", BYTES, _of_each(lambda one: one.text), (-1,), _characters, requested_by="n"),
        OutputTensor(SCORE, FP32, _of_each(lambda one: one.score), (-1,), requested_by="return_scores"),
        OutputTensor("finish_reason", BYTES, _of_each(lambda one: one.finish.value), (-1,), requested_by=None),
        OutputTensor("token_count", UINT32, _of_each(lambda one: one.token_count), (-1,), requested_by=None),
        OutputTensor("prompt_token_count", UINT32, lambda generation: generation.prompt_token_count, requested_by=None),
    ),
    parameters={**OWN, **OPTIONS},
    run=_run,
    stream=_stream,
    pieces=(
        OutputTensor("piece", BYTES, _piece_text),
        OutputTensor("piece_index", UINT32, _piece_index),
        OutputTensor("piece_choice", UINT32, _piece_choice, requested_by="n"),
    ),
)
