"""The table of tasks: text and image tasks, translation and text generation."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from triptych_serving.bundle import manifest
from triptych_serving.encoding.options import Work
from triptych_serving.encoding.text_runner import TextRow
from triptych_serving.errors import InvalidInputError
from triptych_serving.models.image.autoencoder import LatentQuery
from triptych_serving.models.model import Model
from triptych_serving.models.text.fill_mask import FilledText, MaskCandidate
from triptych_serving.models.text.question_answering import AnsweredQuestion
from triptych_serving.models.text.tasks import (
    EMBEDDING_TASK,
    FILL_MASK_TASK,
    NEIGHBORS_TASK,
    QUESTION_ANSWERING_TASK,
    RERANK_TASK,
    TEXT_CLASSIFICATION_TASK,
    TOKEN_CLASSIFICATION_TASK,
    TextInput,
    TextTask,
)
from triptych_serving.models.text.token_classification import NONE, SIMPLE
from triptych_serving.models.translation.options import DecodingOptions
from triptych_serving.models.translation.postprocess import Translation, TranslationHypothesis
from triptych_serving.rpc.call_context import GrpcContext
from triptych_serving.rpc.engine_call import Arrival
from triptych_serving.services.decode_calls import DecodeEvent
from triptych_serving.services.image_calls import ImageQuery
from triptych_serving.services.oip.parameters import FLAG, INTEGER, INTEGER_64, TEXT, TEXTS, choice, type_of_option
from triptych_serving.services.oip.task import (
    LABELS,
    PIECES,
    TEXT_INPUT,
    TOKEN_COUNT,
    InferQuery,
    InferTask,
    OutputTensor,
    TaskCalls,
    TaskResults,
    decoded_outputs,
    of_each,
)
from triptych_serving.services.oip.tensors import BYTES, FP32, INT64, UINT32, InputSpec, InputTensors, element_bytes
from triptych_serving.services.oip.text_generation import GENERATION, IMAGE_COMPLETION
from triptych_serving.services.text_calls import TextQuery
from triptych_serving.services.translation_calls import TranslationQuery

TASK_PARAMETER = "task"
LANGUAGES = {"source_language_code": TEXT, "target_language_code": TEXT}
OPTIONS = {option.name: type_of_option(option) for option in fields(DecodingOptions)}
SCORE, ALIGNMENT = "score", "alignment"

RunTask = Callable[[TaskCalls, InferQuery, GrpcContext], Awaitable[TaskResults]]
CheckWork = Callable[[Work[Any], Sequence[OutputTensor], int], None]  # tokenized texts, outputs, most bytes of a response


def _runs(
    task: TextTask[Any],
    inputs_of: Callable[[InputTensors], Sequence[TextInput]] = lambda inputs: inputs.texts("text"),
    check: CheckWork = lambda *_: None,
    arrange: Callable[[TaskResults], TaskResults] = lambda results: results,
    **defaults: Any,
) -> RunTask:
    """Return a function that runs a text task; the parameters are its options, `arrange` puts results in the inputs' order."""

    async def run(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> TaskResults:
        requested = {output.requested_by: True for output in query.outputs if output.requested_by}
        options = {**defaults, **query.values, **requested}
        text_query: TextQuery[Any, Any] = TextQuery(
            task,
            inputs_of(query.inputs),
            options,
            convert=lambda result: result,
            check=lambda work: check(work, query.outputs, calls.response_bytes),
        )
        results, _ = await calls.texts.run(query.selector(), text_query, context)
        return arrange(results)

    return run


def _candidates(text: FilledText) -> int:
    return 50 * sum(len(mask.candidates) for mask in text.masks)


def _of_each_candidate(part: Callable[[MaskCandidate], Any]) -> Callable[[FilledText], list[list[Any]]]:
    return lambda text: [[part(candidate) for candidate in mask.candidates] for mask in text.masks]


def _texts_or_pairs(inputs: InputTensors) -> list[TextInput]:
    """Pair the texts; an empty second text is none, so that one request may have both texts and pairs."""
    texts, pairs = inputs.texts("text"), inputs.texts("text_pair")
    return [(one, two) if two else one for one, two in zip(texts, pairs or [""] * len(texts), strict=True)]


def _pairs_of(first: str, second: str) -> Callable[[InputTensors], list[TextInput]]:
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


async def _classify_images(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> TaskResults:
    image_query = ImageQuery(query.selector(), query.inputs.elements["image"], query.values.get("top_k"))
    results, _ = await calls.images.classify(image_query, Arrival.now(context).deadline)
    return results


async def _generate_images(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> TaskResults:
    latent_query = LatentQuery(images=query.inputs.elements.get("image", ()), **query.values)
    results, _ = await calls.latents.generate(query.selector(), latent_query, context)
    return results


def _of_hypotheses(translation: Translation) -> int:
    return 100 * len(translation.hypotheses)


def _of_alignments(translation: Translation) -> int:
    return sum(10 * one.alignment.size for one in translation.hypotheses if one.alignment is not None)


def _alignment(hypothesis: TranslationHypothesis) -> str:
    assert hypothesis.alignment is not None, "requesting this output sets return_alignment"
    return json.dumps(hypothesis.alignment.astype(float).round(6).tolist())


def _translation_query(query: InferQuery) -> TranslationQuery:
    values = dict(query.values)
    languages = {name.removesuffix("_code"): values.pop(name, "") for name in LANGUAGES}
    if query.has_output(SCORE):
        values["return_scores"] = True
    if query.has_output(ALIGNMENT):
        values["return_alignment"] = True
    return TranslationQuery(query.selector(**languages), query.inputs.texts("text"), DecodingOptions(**values))


async def _translate(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> TaskResults:
    translations, _ = await calls.translations.run(_translation_query(query), context)
    return translations


def _translate_stream(calls: TaskCalls, query: InferQuery, context: GrpcContext) -> AsyncGenerator[DecodeEvent]:
    return calls.translations.stream(_translation_query(query), context)


TASKS: Mapping[str, InferTask] = {
    manifest.TRANSLATION: InferTask(
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
        run=_translate,
        stream=_translate_stream,
        pieces=PIECES,
    ),
    FILL_MASK_TASK.name: InferTask(
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
        run=_runs(FILL_MASK_TASK, check=_check_masks),
    ),
    EMBEDDING_TASK.name: InferTask(
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
        parameters={"pooling": choice(mean="mean", cls="cls"), "normalize": FLAG, "token_vectors": FLAG},
        run=_runs(EMBEDDING_TASK),
    ),
    TEXT_CLASSIFICATION_TASK.name: InferTask(
        inputs=(TEXT_INPUT, InputSpec("text_pair", optional=True)),
        outputs=(*LABELS, TOKEN_COUNT),
        parameters={"top_k": INTEGER, "raw_scores": FLAG},
        run=_runs(TEXT_CLASSIFICATION_TASK, _texts_or_pairs),
    ),
    TOKEN_CLASSIFICATION_TASK.name: InferTask(
        inputs=(TEXT_INPUT,),
        outputs=(
            OutputTensor("entities", BYTES, _json_of("entities"), weight=lambda result: 100 * len(result.entities)),
            TOKEN_COUNT,
        ),
        parameters={"aggregation": choice(none=NONE, simple=SIMPLE)},
        run=_runs(TOKEN_CLASSIFICATION_TASK, aggregation=SIMPLE),
    ),
    QUESTION_ANSWERING_TASK.name: InferTask(
        inputs=(InputSpec("question"), InputSpec("context")),
        outputs=(  # the best answer, and all answers
            OutputTensor("answer", BYTES, _best),
            OutputTensor("score", FP32, _best_score),
            OutputTensor("answers", BYTES, _json_of("answers"), weight=lambda result: 100 * len(result.answers)),
            TOKEN_COUNT,
        ),
        parameters={"top_k": INTEGER, "max_answer_length": INTEGER},
        run=_runs(QUESTION_ANSWERING_TASK, _pairs_of("question", "context")),
    ),
    RERANK_TASK.name: InferTask(
        inputs=(InputSpec("query"), InputSpec("documents")),  # a query for each document; scores are in their order
        outputs=(OutputTensor("score", FP32, lambda result: result.score), TOKEN_COUNT),
        parameters={"raw_scores": FLAG},
        run=_runs(RERANK_TASK, _pairs_of("query", "documents"), arrange=_in_order),
    ),
    NEIGHBORS_TASK.name: InferTask(
        inputs=(TEXT_INPUT,),
        outputs=(
            OutputTensor("neighbors", BYTES, _json_of("neighbors"), weight=lambda result: 100 * len(result.neighbors)),
            TOKEN_COUNT,
        ),
        parameters={"top_k": INTEGER},
        run=_runs(NEIGHBORS_TASK),
    ),
    manifest.IMAGE_CLASSIFICATION: InferTask(
        inputs=(InputSpec("image"),),
        outputs=(
            *LABELS,
            OutputTensor("width", UINT32, lambda image: image.width, requested_by=None),
            OutputTensor("height", UINT32, lambda image: image.height, requested_by=None),
        ),
        parameters={"top_k": INTEGER},
        run=_classify_images,
    ),
    manifest.TEXT_GENERATION: GENERATION,
    manifest.IMAGE_GENERATION: IMAGE_COMPLETION,
    manifest.IMAGE_SAMPLING: InferTask(
        inputs=(InputSpec("image", optional=True),),
        outputs=(
            OutputTensor("generated_image", BYTES, lambda generated: generated.image, weight=lambda one: len(one.image)),
            OutputTensor("latents", FP32, lambda one: one.latents, (-1,), lambda one: len(one.latents), requested_by=None),
        ),
        parameters={"count": INTEGER, "seed": INTEGER_64, "steps": INTEGER},
        run=_generate_images,
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
