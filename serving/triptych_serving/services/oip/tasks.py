"""The table of tasks: text and image tasks, translation and text generation.

Parameters are fields of the request messages of `triptych.v1`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from triptych.decoding import DecodingOptions
from triptych_serving.bundle import manifest
from triptych_serving.bundle.manifest.tensors import BYTES
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import TextRow
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.generation.options import FOREIGN, FOREIGN_TO_IMAGES, GenerationRequest
from triptych_serving.models.generation.text import Generation
from triptych_serving.models.image.autoencoder import LatentQuery
from triptych_serving.models.model import Model
from triptych_serving.models.text import tasks as text_tasks
from triptych_serving.models.text.fill_mask import FilledText, MaskCandidate
from triptych_serving.models.text.question_answering import AnsweredQuestion
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.rpc.call_context import GrpcContext, ModelUse
from triptych_serving.rpc.engine_call import Arrival
from triptych_serving.services.generation_calls import GenerationQuery
from triptych_serving.services.image_calls import ImageQuery
from triptych_serving.services.oip.parameters import (
    FLAG,
    INTEGER,
    INTEGER_64,
    TEXT,
    TEXTS,
    ParameterType,
    choice,
    type_of_option,
)
from triptych_serving.services.oip.task import InferQuery, InferTask, OutputTensor, RunTask, TaskCalls, TaskResults
from triptych_serving.services.oip.tensors import FP32, INT64, UINT32, InputSpec, InputTensors, element_bytes
from triptych_serving.services.text_calls import TextQuery
from triptych_serving.services.translation_calls import TranslationQuery

CheckWork = Callable[[Work[Any], Sequence[OutputTensor], int], None]  # tokenized texts, outputs, most bytes of a response

TASK_PARAMETER = "task"
LANGUAGES = {"source_language_code": TEXT, "target_language_code": TEXT}
OPTIONS = {option.name: type_of_option(option) for option in fields(DecodingOptions)}
# Parameters of generation beside the options of decoding.
GENERATION = {"max_tokens": INTEGER, "n": INTEGER, "stop": TEXTS, "echo": FLAG, "json_schema": TEXT, "regex": TEXT}
COMPLETION = {"n": INTEGER, "rows": INTEGER}
TEXT_INPUT = InputSpec("text")
TOKEN_COUNT = OutputTensor("token_count", UINT32, lambda result: result.token_count, requested_by=None)


def _of_labels(result: Any) -> int:
    return 20 * len(result.labels)


# Outputs of tasks with scored labels, best first.
LABELS = (
    OutputTensor("label", BYTES, lambda result: [one.label for one in result.labels], (-1,), _of_labels),
    OutputTensor("score", FP32, lambda result: [one.score for one in result.labels], (-1,), _of_labels),
    OutputTensor("index", UINT32, lambda result: [one.index for one in result.labels], (-1,), _of_labels, requested_by=None),
)

# Outputs of the pieces of a stream.
PIECES = (
    OutputTensor("piece", BYTES, lambda piece: piece.text),
    OutputTensor("piece_index", UINT32, lambda piece: piece.index),
)


def _of_each(member: str, part: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    """Return a function that reads `part` of each of a result's hypotheses or choices, its `member`."""
    return lambda result: [part(one) for one in getattr(result, member)]


def _decoded_outputs(member: str) -> tuple[OutputTensor, ...]:
    """Return the outputs of hypotheses or choices beside their texts."""
    return (
        OutputTensor("score", FP32, _of_each(member, lambda one: one.score), (-1,), requested_by="return_scores"),
        OutputTensor("finish_reason", BYTES, _of_each(member, lambda one: one.finish.value), (-1,), requested_by=None),
        OutputTensor("token_count", UINT32, _of_each(member, lambda one: one.token_count), (-1,), requested_by=None),
    )


def _runs(
    task: text_tasks.TextTask[Any],
    inputs_of: Callable[[InputTensors], Sequence[text_tasks.TextInput]] = lambda inputs: inputs.texts("text"),
    check: CheckWork = lambda *_: None,
    arrange: Callable[[TaskResults], TaskResults] = lambda results: results,
    **defaults: Any,
) -> RunTask:
    """Return a function that runs a text task; the parameters are its options, `arrange` puts results in the inputs' order."""

    async def run(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> tuple[TaskResults, ModelUse]:
        text_query: TextQuery[Any, Any] = TextQuery(
            task,
            inputs_of(query.inputs),
            {**defaults, **query.options},
            convert=lambda result: result,
            check=lambda work: check(work, query.outputs, calls.response_bytes),
        )
        results, use = await calls.texts.run(query.selector(), text_query, context)
        return arrange(results), use

    return run


def _candidates(text: FilledText) -> int:
    return 50 * sum(len(mask.candidates) for mask in text.masks)


def _of_each_candidate(part: Callable[[MaskCandidate], Any]) -> Callable[[FilledText], list[list[Any]]]:
    return lambda text: [[part(candidate) for candidate in mask.candidates] for mask in text.masks]


def _texts_or_pairs(inputs: InputTensors) -> list[text_tasks.TextInput]:
    """Pair the texts; an empty second text is none, so that one request may have both texts and pairs."""
    texts, pairs = inputs.texts("text"), inputs.texts("text_pair")
    return [(one, two) if two else one for one, two in zip(texts, pairs or [""] * len(texts), strict=True)]


def _pairs_of(first: str, second: str) -> Callable[[InputTensors], list[text_tasks.TextInput]]:
    return lambda inputs: list(zip(inputs.texts(first), inputs.texts(second), strict=True))


def _in_order(results: TaskResults) -> TaskResults:
    return sorted(results, key=lambda document: document.index)


def _best(answered: AnsweredQuestion) -> str:
    return answered.answers[0].text if answered.answers else ""


def _best_score(answered: AnsweredQuestion) -> float:
    return answered.answers[0].score if answered.answers else 0.0


def _json_of(member: str) -> Callable[[Any], str]:
    """Return a function that converts a variable number of values, such as a text's entities, to a JSON array."""
    return lambda result: json.dumps([asdict(one) for one in getattr(result, member)], ensure_ascii=False)


def _check_masks(work: Work[Any], outputs: Sequence[OutputTensor], limit: int) -> None:
    """Reject texts whose padded tensors would not fit into a response: each text gets as many masks as the one with most.

    Raises:
        InvalidInputError: the tensors would be too large.
    """
    row: TextRow = work.items[0].payload
    masks = max(len(item.payload.places) for item in work.items)
    candidates = row.k if row.targets is None else min(row.k, len(row.targets))
    one = sum(element_bytes(output.datatype) for output in outputs if len(output.sizes) == 2)
    if (size := len(work.items) * masks * candidates * one) > limit:
        shape = f"{len(work.items):,} texts x {masks:,} masks (of one of them) x {candidates:,} candidates"
        most = f"at most {limit:,} are sent (--max-message-bytes)"
        remedy = "send texts with many masks apart, lower top_k or name fewer outputs"
        raise InvalidInputError(work.field, f"{shape} need {size:,} bytes, {most}; {remedy}")


def _image_query(query: InferQuery) -> ImageQuery:
    return ImageQuery(query.selector(), query.inputs.elements["image"], query.values.get("top_k"))


def _latent_query(query: InferQuery) -> LatentQuery:
    return LatentQuery(images=query.inputs.elements.get("image", ()), **query.values)


def _of_hypotheses(translation: Translation) -> int:
    return 100 * len(translation.hypotheses)


def _of_alignments(translation: Translation) -> int:
    return sum(10 * one.alignment.size for one in translation.hypotheses if one.alignment is not None)


def _alignment(hypothesis: TranslationHypothesis) -> str:
    assert hypothesis.alignment is not None, "requesting this output sets return_alignment"
    return json.dumps(hypothesis.alignment.astype(float).round(6).tolist())


def _translation_query(query: InferQuery) -> TranslationQuery:
    values = query.options
    languages = {name.removesuffix("_code"): values.pop(name, "") for name in LANGUAGES}
    return TranslationQuery(query.selector(**languages), query.inputs.texts("text"), DecodingOptions(**values))


def _options(foreign: Sequence[str]) -> dict[str, ParameterType]:
    """Return the decoding options but those that do not apply."""
    return {name: kind for name, kind in OPTIONS.items() if name not in foreign}


def _characters(generation: Generation) -> int:
    return sum(len(choice.text) for choice in generation.choices)


def _image_bytes(generation: Generation) -> int:
    return sum(len(choice.image) for choice in generation.choices)


def _generation_query(query: InferQuery) -> GenerationQuery:
    values = query.options
    own = {name: values.pop(name) for name in (*GENERATION, *COMPLETION) if name in values}
    own |= {"prompts": query.inputs.texts("text"), "images": query.inputs.elements.get("image", ())}
    request = GenerationRequest(options=DecodingOptions(**values), **own)
    return GenerationQuery(query.selector(), request)


TASKS: Mapping[str, InferTask] = {
    manifest.TRANSLATION: InferTask(
        inputs=(TEXT_INPUT,),
        outputs=(
            OutputTensor("translated_text", BYTES, lambda translation: translation.text, weight=_of_hypotheses),
            OutputTensor(
                "hypotheses",
                BYTES,
                _of_each("hypotheses", lambda one: one.text),
                (-1,),
                _of_hypotheses,
                requested_by="num_hypotheses",
            ),
            *_decoded_outputs("hypotheses"),
            OutputTensor("source_token_count", UINT32, lambda one: one.source_token_count, requested_by=None),
            OutputTensor(
                "alignment", BYTES, _of_each("hypotheses", _alignment), (-1,), _of_alignments, requested_by="return_alignment"
            ),
        ),
        parameters={**LANGUAGES, **OPTIONS},
        run=lambda calls, query, context: calls.translations.run(_translation_query(query), context),
        stream=lambda calls, query, context: calls.translations.stream(_translation_query(query), context),
        pieces=PIECES,
    ),
    text_tasks.FILL_MASK_TASK.name: InferTask(
        inputs=(TEXT_INPUT,),
        outputs=(  # with as many masks for each text as the text with most of them; others are padded
            OutputTensor("sequence", BYTES, _of_each_candidate(lambda one: one.sequence), (-1, -1), _candidates),
            OutputTensor("token_str", BYTES, _of_each_candidate(lambda one: one.token_str), (-1, -1), _candidates),
            OutputTensor("token", INT64, _of_each_candidate(lambda one: one.token), (-1, -1), _candidates),
            OutputTensor("score", FP32, _of_each_candidate(lambda one: one.score), (-1, -1), _candidates),
            OutputTensor("mask_count", UINT32, lambda text: len(text.masks), requested_by=None),
            TOKEN_COUNT,
        ),
        parameters={"top_k": INTEGER, "targets": TEXTS},
        run=_runs(text_tasks.FILL_MASK_TASK, check=_check_masks),
    ),
    text_tasks.EMBEDDING_TASK.name: InferTask(
        inputs=(TEXT_INPUT,),
        outputs=(
            OutputTensor("embedding", FP32, lambda result: result.values, (-1,), lambda result: len(result.values)),
            TOKEN_COUNT,
            OutputTensor(  # the tokens' vectors of a text one after another; those of shorter texts are padded
                "token_embedding",
                FP32,
                lambda result: result.token_values,
                (-1,),
                lambda result: len(result.token_values),
                requested_by="token_vectors",
            ),
        ),
        parameters={"pooling": choice(mean="mean", cls="cls"), "normalize": FLAG, "token_vectors": FLAG, "prompt_name": TEXT},
        run=_runs(text_tasks.EMBEDDING_TASK),
    ),
    text_tasks.TEXT_CLASSIFICATION_TASK.name: InferTask(
        inputs=(TEXT_INPUT, InputSpec("text_pair", optional=True)),
        outputs=(*LABELS, TOKEN_COUNT),
        parameters={"top_k": INTEGER, "raw_scores": FLAG},
        run=_runs(text_tasks.TEXT_CLASSIFICATION_TASK, _texts_or_pairs),
    ),
    text_tasks.TOKEN_CLASSIFICATION_TASK.name: InferTask(
        inputs=(TEXT_INPUT,),
        outputs=(
            OutputTensor("entities", BYTES, _json_of("entities"), weight=lambda result: 100 * len(result.entities)),
            TOKEN_COUNT,
        ),
        parameters={"aggregation": choice(**{name: name for name in manifest.AGGREGATIONS})},
        run=_runs(text_tasks.TOKEN_CLASSIFICATION_TASK),
    ),
    text_tasks.QUESTION_ANSWERING_TASK.name: InferTask(
        inputs=(InputSpec("question"), InputSpec("context")),
        outputs=(  # the best answer, and all answers
            OutputTensor("answer", BYTES, _best),
            OutputTensor("score", FP32, _best_score),
            OutputTensor("answers", BYTES, _json_of("answers"), weight=lambda result: 100 * len(result.answers)),
            TOKEN_COUNT,
        ),
        parameters={"top_k": INTEGER, "max_answer_length": INTEGER},
        run=_runs(text_tasks.QUESTION_ANSWERING_TASK, _pairs_of("question", "context")),
    ),
    text_tasks.RERANK_TASK.name: InferTask(
        inputs=(InputSpec("query"), InputSpec("documents")),  # a query for each document; scores are in their order
        outputs=(OutputTensor("score", FP32, lambda result: result.score), TOKEN_COUNT),
        parameters={"raw_scores": FLAG},
        run=_runs(text_tasks.RERANK_TASK, _pairs_of("query", "documents"), arrange=_in_order),
    ),
    text_tasks.NEIGHBORS_TASK.name: InferTask(
        inputs=(TEXT_INPUT,),
        outputs=(
            OutputTensor("neighbors", BYTES, _json_of("neighbors"), weight=lambda result: 100 * len(result.neighbors)),
            TOKEN_COUNT,
        ),
        parameters={"top_k": INTEGER},
        run=_runs(text_tasks.NEIGHBORS_TASK),
    ),
    manifest.IMAGE_CLASSIFICATION: InferTask(
        inputs=(InputSpec("image"),),
        outputs=(
            *LABELS,
            OutputTensor("width", UINT32, lambda image: image.width, requested_by=None),
            OutputTensor("height", UINT32, lambda image: image.height, requested_by=None),
        ),
        parameters={"top_k": INTEGER},
        run=lambda calls, query, context: calls.images.classify(_image_query(query), Arrival.now(context).deadline),
    ),
    manifest.TEXT_GENERATION: InferTask(
        inputs=(TEXT_INPUT,),
        outputs=(
            OutputTensor("generated_text", BYTES, lambda generation: generation.text, weight=_characters),
            OutputTensor("choices", BYTES, _of_each("choices", lambda one: one.text), (-1,), _characters, requested_by="n"),
            *_decoded_outputs("choices"),
            OutputTensor("prompt_token_count", UINT32, lambda generation: generation.prompt_token_count, requested_by=None),
        ),
        parameters={**GENERATION, **_options(FOREIGN)},
        run=lambda calls, query, context: calls.generations.run(_generation_query(query), context),
        stream=lambda calls, query, context: calls.generations.stream(_generation_query(query), context),
        pieces=(*PIECES, OutputTensor("piece_choice", UINT32, lambda piece: piece.choice, requested_by="n")),
    ),
    manifest.IMAGE_GENERATION: InferTask(
        inputs=(InputSpec("image"),),
        outputs=(
            OutputTensor("completed_image", BYTES, lambda generation: generation.choices[0].image, weight=_image_bytes),
            OutputTensor("choices", BYTES, _of_each("choices", lambda one: one.image), (-1,), _image_bytes, requested_by="n"),
            *_decoded_outputs("choices")[:1],  # the scores
        ),
        parameters={**COMPLETION, **_options(FOREIGN_TO_IMAGES)},
        run=lambda calls, query, context: calls.generations.run(_generation_query(query), context),
    ),
    manifest.IMAGE_SAMPLING: InferTask(
        inputs=(InputSpec("image", optional=True),),
        outputs=(
            OutputTensor("generated_image", BYTES, lambda generated: generated.image, weight=lambda one: len(one.image)),
            OutputTensor("latents", FP32, lambda one: one.latents, (-1,), lambda one: len(one.latents), requested_by=None),
        ),
        parameters={"count": INTEGER, "seed": INTEGER_64, "steps": INTEGER},
        run=lambda calls, query, context: calls.latents.generate(query.selector(), _latent_query(query), context),
    ),
}


def tasks_of(model: Model) -> list[str]:
    """List the tasks of a model; first the default one."""
    own = model.manifest.task
    return sorted(model.capabilities, key=lambda name: (name != own, [*TASKS, manifest.TENSORS].index(name)))


def task_from(given: str | None, model: Model) -> str:
    """Return the task of a request; None is the model's default.

    Raises:
        InvalidInputError: the model does not have this task.
    """
    names = tasks_of(model)
    if given is None:
        return names[0]
    if given not in names:
        problem = f"the model does not have the task {given!r}; it has: {', '.join(names)}"
        raise InvalidInputError(f"parameters.{TASK_PARAMETER}", problem)
    return given
