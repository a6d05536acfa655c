"""The tasks of continuing texts and images. Parameters are fields of `GenerateRequest` and `CompleteImageRequest`."""

from collections.abc import AsyncGenerator
from dataclasses import fields

from triptych.decoding import DecodingOptions
from triptych_serving.models.generation.options import FOREIGN, FOREIGN_TO_IMAGES, GenerationRequest
from triptych_serving.models.generation.text import Generation
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.services.decode_calls import DecodeEvent
from triptych_serving.services.generation_calls import GenerationQuery
from triptych_serving.services.oip.parameters import FLAG, INTEGER, TEXTS, type_of_option
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
from triptych_serving.services.oip.tensors import BYTES, UINT32, InputSpec

OWN = {"max_tokens": INTEGER, "n": INTEGER, "stop": TEXTS, "echo": FLAG}
OWN_OF_IMAGES = {"n": INTEGER, "rows": INTEGER}
OPTIONS = {option.name: type_of_option(option) for option in fields(DecodingOptions) if option.name not in FOREIGN}
SCORE = "score"


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
    generations, _ = await calls.generations.run(_query_from(query), context)
    return generations


def _stream(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> AsyncGenerator[DecodeEvent]:
    return calls.generations.stream(_query_from(query), context)


GENERATION = InferTask(
    inputs=(TEXT_INPUT,),
    outputs=(
        OutputTensor("generated_text", BYTES, lambda generation: generation.text, weight=_characters),
        OutputTensor("choices", BYTES, of_each("choices", lambda one: one.text), (-1,), _characters, requested_by="n"),
        *decoded_outputs("choices"),
        OutputTensor("prompt_token_count", UINT32, lambda generation: generation.prompt_token_count, requested_by=None),
    ),
    parameters={**OWN, **OPTIONS},
    run=_run,
    stream=_stream,
    pieces=(*PIECES, OutputTensor("piece_choice", UINT32, lambda piece: piece.choice, requested_by="n")),
)

IMAGE_COMPLETION = InferTask(
    inputs=(InputSpec("image"),),
    outputs=(
        OutputTensor("completed_image", BYTES, lambda generation: generation.choices[0].image, weight=_image_bytes),
        OutputTensor("choices", BYTES, of_each("choices", lambda one: one.image), (-1,), _image_bytes, requested_by="n"),
        *decoded_outputs("choices")[:1],  # the scores
    ),
    parameters={**OWN_OF_IMAGES, **{name: kind for name, kind in OPTIONS.items() if name not in FOREIGN_TO_IMAGES}},
    run=_run,
)
