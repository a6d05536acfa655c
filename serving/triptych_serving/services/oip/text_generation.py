"""The tasks of continuing texts and images. Parameters are fields of `GenerateRequest` and `CompleteImageRequest`."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import fields
from typing import Any

from triptych.decoding import DecodingOptions
from triptych_serving.models.generation.options import FOREIGN, FOREIGN_TO_IMAGES, GenerationRequest
from triptych_serving.models.generation.text import GeneratedChoice, Generation
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.generation_calls import GenerationPiece, GenerationQuery
from triptych_serving.services.oip.parameters import FLAG, INTEGER, TEXTS, type_of_option
from triptych_serving.services.oip.task import TEXT_INPUT, InferQuery, InferTask, OutputTensor, TaskCalls, TaskResults
from triptych_serving.services.oip.tensors import BYTES, FP32, UINT32, InputSpec
from triptych_serving.services.translation_calls import TranslationEvent

OWN = {"max_tokens": INTEGER, "n": INTEGER, "stop": TEXTS, "echo": FLAG}
OWN_OF_IMAGES = {"n": INTEGER, "rows": INTEGER}
OPTIONS = {option.name: type_of_option(option) for option in fields(DecodingOptions) if option.name not in FOREIGN}
SCORE = "score"


def _of_each(part: Callable[[GeneratedChoice], Any]) -> Callable[[Generation], list[Any]]:
    return lambda generation: [part(choice) for choice in generation.choices]


def _characters(generation: Generation) -> int:
    return sum(len(choice.text) for choice in generation.choices)


def _image_bytes(generation: Generation) -> int:
    return sum(len(choice.image) for choice in generation.choices)


def _query_from(query: InferQuery) -> GenerationQuery:
    values = dict(query.values)
    own = {name: values.pop(name) for name in (*OWN, *OWN_OF_IMAGES) if name in values}
    if query.has_output(SCORE):
        values["return_scores"] = True
    own |= {"prompts": query.inputs.texts("text"), "images": query.inputs.elements.get("image", ())}
    request = GenerationRequest(options=DecodingOptions(**values), **own)
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


SCORES = OutputTensor(SCORE, FP32, _of_each(lambda one: one.score), (-1,), requested_by="return_scores")
GENERATION = InferTask(
    inputs=(TEXT_INPUT,),
    outputs=(
        OutputTensor("generated_text", BYTES, lambda generation: generation.text, weight=_characters),
        OutputTensor("choices", BYTES, _of_each(lambda one: one.text), (-1,), _characters, requested_by="n"),
        SCORES,
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

IMAGE_COMPLETION = InferTask(
    inputs=(InputSpec("image"),),
    outputs=(
        OutputTensor("completed_image", BYTES, lambda generation: generation.choices[0].image, weight=_image_bytes),
        OutputTensor("choices", BYTES, _of_each(lambda one: one.image), (-1,), _image_bytes, requested_by="n"),
        SCORES,
    ),
    parameters={**OWN_OF_IMAGES, **{name: kind for name, kind in OPTIONS.items() if name not in FOREIGN_TO_IMAGES}},
    run=_run,
)
