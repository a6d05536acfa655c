"""Tasks as Hugging Face's inference API has them, for `huggingface_hub.InferenceClient` with the URL of a model.

The task of `POST /models/NAME` is that of the model; `POST /models/NAME/pipeline/TASK` names it.
"""

import base64
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from triptych.v1 import (
    embedding_pb2,
    fill_mask_pb2,
    image_classification_pb2,
    question_answering_pb2,
    text_classification_pb2,
    text_generation_pb2,
    token_classification_pb2,
    translation_pb2,
)
from triptych_serving.bundle.manifest import AGGREGATIONS
from triptych_serving.gateway import tei
from triptych_serving.gateway.call import HttpCall, Json, as_object, invalid, options_of
from triptych_serving.gateway.route import Api, ApiRoute, renamed
from triptych_serving.rpc.direct_calls import RpcError

WINDOWS = ("align_to_words", "doc_stride", "max_question_len", "max_seq_len")  # options of long texts, which are errors here
OUTSIDE = ["O"]  # the label of tokens of no entity
PAIR_BYTES = 50  # of a pair of texts in a message, and of its scores, beside the texts
TOP_K = {"top_k": ("top_k", int)}
NO_ANSWER = {"answer": "", "score": 0.0, "start": 0, "end": 0}
# Parameters of texts' generation, and their names in DecodingOptions.
GENERATION = {
    "num_beams": "beam_size",
    "max_new_tokens": "max_length",
    "temperature": "sampling_temperature",
    "top_k": "sampling_topk",
    "top_p": "sampling_topp",
}
# Parameters of generated texts, and values without effect of those that are not supported.
SAMPLING: Mapping[str, tuple[str, type]] = {
    "frequency_penalty": ("frequency_penalty", float),
    "repetition_penalty": ("repetition_penalty", float),
    "seed": ("seed", int),
    "temperature": ("sampling_temperature", float),
    "top_k": ("sampling_topk", int),
    "top_p": ("sampling_topp", float),
}
SAMPLED = ("sampling_temperature", "sampling_topk", "sampling_topp")  # given: the text is sampled
PARAMETERS = {
    "prompts": "inputs",
    "stop": "parameters.stop",
    "max_tokens": "parameters.max_new_tokens",
    "options.max_length": "parameters.max_new_tokens",
    **dict.fromkeys(("json_schema", "regex"), "parameters.grammar.value"),
    **{f"options.{field}": f"parameters.{name}" for name, (field, _) in SAMPLING.items()},
}
GENERATED = {*SAMPLING, "do_sample", "grammar", "max_new_tokens", "return_full_text", "stop"}  # all that are supported
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("details", "decoder_input_details", "watermark"), (False,)),
    **dict.fromkeys(("best_of", "num_beams", "num_return_sequences", "typical_p"), (1,)),
}


@dataclass(frozen=True)
class Query:
    """One request."""

    call: HttpCall
    model: str  # empty: the only one that fits
    inputs: Any
    parameters: Json

    def texts(self) -> list[str]:
        """Return the texts of `inputs`."""
        return Json(inputs=self.inputs).take_texts("inputs")[0]

    def each(self, results: Sequence[Any]) -> Any:
        """Return the result of the only input, or the list of results of a list of inputs."""
        return list(results) if isinstance(self.inputs, list) else results[0]


async def fill_mask(query: Query) -> Any:
    targets = query.parameters.take_texts("targets")[0] if query.parameters.get("targets") else []
    options = query.parameters.take_given(TOP_K)
    request = fill_mask_pb2.FillMaskRequest(contents=query.texts(), model=query.model, targets=targets, **options)
    response = await query.call.ask(request)
    names = ("score", "token", "token_str", "sequence")

    def candidates(result: Any) -> list[Any]:
        masks: list[Any] = [[_members(one, *names) for one in mask.candidates] for mask in result.masks]
        return masks[0] if len(masks) == 1 else masks

    return query.each(await query.call.convert(response, candidates))


async def classify_text(query: Query) -> Any:
    function = query.parameters.get("function_to_apply")
    if function not in (None, "none"):
        problem = f"{function!r:.40} is not supported; leave it out for probabilities, or send none"
        raise invalid(f"parameters.function_to_apply: {problem}")
    inputs = _text_inputs(query)
    options = query.parameters.take_given({**TOP_K, "truncation": ("truncate", bool)})
    raw = function == "none"
    request = text_classification_pb2.ClassifyTextRequest(inputs=inputs, model=query.model, raw_scores=raw, **options)
    response = await query.call.ask(request)
    return await query.call.convert(response, lambda result: [_members(one, "label", "score") for one in result.labels])


def _text_inputs(query: Query) -> list[text_classification_pb2.TextInput]:
    """Return texts, or objects with a text and its pair."""
    each = query.inputs if isinstance(query.inputs, list) else [query.inputs]
    if not any(isinstance(one, dict) for one in each):
        return [text_classification_pb2.TextInput(text=text) for text in query.texts()]
    pairs = [as_object(one, "inputs") for one in each]
    return [
        text_classification_pb2.TextInput(text=one.take("text", str), text_pair=one.take("text_pair", str, "")) for one in pairs
    ]


async def classify_zero_shot(query: Query) -> Any:
    """Rank the caller's labels with a model of natural language inference (Yin et al. 2019), as transformers' pipeline does."""
    candidates, is_list = query.parameters.take_texts("candidate_labels")
    labels = candidates if is_list else [label for part in candidates[0].split(",") if (label := part.strip())]
    template = query.parameters.take("hypothesis_template", str, "This example is {}.")
    independent = query.parameters.take("multi_label", bool, False) or len(labels) == 1
    if not labels:
        raise invalid("parameters.candidate_labels: there are none")
    if "{}" not in template:
        raise invalid(f"parameters.hypothesis_template: {template:.40} has no {{}}, which stands for a label")
    texts, hypotheses = query.texts(), [template.replace("{}", label) for label in labels]
    pairs = len(texts) * len(labels)
    size = len(labels) * sum(map(len, texts)) + len(texts) * sum(map(len, hypotheses)) + PAIR_BYTES * pairs
    if size > (most := query.call.parts.messages.text_limit):
        what = f"{len(texts):,} texts x {len(labels):,} labels make pairs of {size:,} bytes, at most {most:,} are accepted"
        raise invalid(f"parameters.candidate_labels: {what} (--max-text-message-bytes); send fewer")

    def make() -> list[text_classification_pb2.TextInput]:
        return [text_classification_pb2.TextInput(text=text, text_pair=each) for text in texts for each in hypotheses]

    def candidate(index: int) -> str:
        return f"parameters.candidate_labels[{index % len(labels)}]"

    inputs = await query.call.offload(size, make)
    request = text_classification_pb2.ClassifyTextRequest(inputs=inputs, model=query.model, raw_scores=True)
    with _named("inputs", lambda i, member: candidate(i) if member == ".text_pair" else f"inputs[{i // len(labels)}]"):
        response = await query.call.ask(request)
    names = {one.index: one.label for one in response.results[0].labels}
    entailed = next((index for index, name in names.items() if name.lower().startswith("entail")), None)
    if entailed is None or len(names) == 1:
        raise invalid(f"model: its labels are {', '.join(names.values()):.60}; zero-shot needs entailment and another one")
    contradicted = max(names) if entailed == 0 else 0

    def rank() -> list[Any]:
        found = [{one.index: one.score for one in result.labels} for result in response.results]
        logits = np.array([(one[contradicted], one[entailed]) for one in found]).reshape(len(texts), len(labels), 2)
        rows = logits if independent else logits[..., 1]
        weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
        shares = weights / weights.sum(axis=-1, keepdims=True)
        scores = shares[..., 1] if independent else shares
        return [[{"label": labels[i], "score": float(row[i])} for i in np.argsort(-row, kind="stable")] for row in scores]

    return query.each(await query.call.offload(PAIR_BYTES * pairs, rank))


async def classify_tokens(query: Query) -> Any:
    strategy = query.parameters.take("aggregation_strategy", str, "")  # empty: the model's
    if strategy not in ("", *AGGREGATIONS):
        raise invalid(f"parameters.aggregation_strategy: {strategy[:40]!r} is not one of {', '.join(AGGREGATIONS)}")
    label, neutral = ("entity", ([], OUTSIDE)) if strategy == "none" else ("entity_group", (OUTSIDE,))
    query.parameters.refuse({"ignore_labels": neutral, "stride": (0,)})
    ignored = query.parameters.take("ignore_labels", list, OUTSIDE)
    aggregation: Any = f"AGGREGATION_{strategy.upper() or 'UNSPECIFIED'}"
    request = token_classification_pb2.ClassifyTokensRequest(contents=query.texts(), model=query.model, aggregation=aggregation)
    response = await query.call.ask(request)

    def entities(result: Any) -> list[Any]:
        return [
            {label: one.label, "word": one.text, **_members(one, "score", "start", "end")}
            for one in result.entities
            if one.label not in ignored
        ]

    return query.each(await query.call.convert(response, entities))


async def answer_question(query: Query) -> Any:
    query.parameters.refuse({"handle_impossible_answer": (False,), **dict.fromkeys(WINDOWS, ())})
    given = as_object(query.inputs, "inputs")
    question = question_answering_pb2.QuestionInput(question=given.take("question", str), context=given.take("context", str))
    options = query.parameters.take_given({**TOP_K, "max_answer_len": ("max_answer_length", int)})
    request = question_answering_pb2.AnswerQuestionRequest(inputs=[question], model=query.model, **options)
    with _named("inputs", lambda _, member: f"inputs{member}"):
        response = await query.call.ask(request)
    answers = [{"answer": one.text, **_members(one, "score", "start", "end")} for one in response.results[0].answers]
    return answers if options.get("top_k", 1) > 1 else next(iter(answers), NO_ANSWER)


async def translate(query: Query, member: str = "translation_text") -> Any:
    query.parameters.refuse({"clean_up_tokenization_spaces": (True, False), "truncation": ("do_not_truncate",)})
    given = query.parameters.take("generate_parameters", dict, {})
    options = {GENERATION.get(name, name): value for name, value in given.items() if value is not None}
    request = translation_pb2.TranslateRequest(
        contents=query.texts(),
        model=query.model,
        source_language_code=query.parameters.take("src_lang", str, ""),
        target_language_code=query.parameters.take("tgt_lang", str, ""),
        options=options_of(options, "parameters.generate_parameters"),
    )
    response = await query.call.ask(request)
    return [{member: one.translated_text} for one in response.translations]


async def generate(query: Query) -> Any:
    given = query.parameters
    given.refuse({name: NEUTRAL.get(name, ()) for name in given.keys() - GENERATED})
    options = given.take_given(SAMPLING)
    if given.get("do_sample") is not None and not given.take("do_sample", bool):
        options = {**{name: value for name, value in options.items() if name not in SAMPLED}, "sampling_topk": 1}
    elif given.get("do_sample") or not options.keys().isdisjoint(SAMPLED):  # otherwise the bundle's default
        options.setdefault("sampling_topk", 0)
    # A schema may be as large as a body.
    rules = {} if given.get("grammar") is None else await query.call.parts.threads.run_in_thread(_rules, given)
    request = text_generation_pb2.GenerateRequest(
        prompts=query.texts(),
        model=query.model,
        stop=given.take_texts("stop")[0] if given.get("stop") else [],
        echo=given.take("return_full_text", bool, False),
        options=options_of(options),
        **given.take_given({"max_new_tokens": ("max_tokens", int)}),
        **rules,
    )
    try:
        response = await query.call.ask(request)
    except RpcError as error:
        raise renamed(error, PARAMETERS) from None
    return query.each([[{"generated_text": one.choices[0].text}] for one in response.generations])


def _rules(given: Json) -> dict[str, Any]:
    """Return the rules that texts follow, of the parameter `grammar`."""
    grammar = as_object(given["grammar"], "parameters.grammar")
    if (kind := grammar.take("type", str)) == "regex":
        return {"regex": grammar.take_rules("value")}
    if kind == "json_schema":
        return {"json_schema": as_object(grammar.get("value"), "parameters.grammar.value").take_schema("schema")}
    if kind != "json":
        raise invalid(f"parameters.grammar.type: {kind[:40]!r} is not json, json_schema or regex")
    return {"json_schema": grammar.take_schema("value")}


async def compare_sentences(query: Query) -> Any:
    given = as_object(query.inputs, "inputs")
    texts = [given.take("source_sentence", str), *given.take_texts("sentences")[0]]
    request = embedding_pb2.EmbedTextRequest(contents=texts, model=query.model, normalize=True)
    with _named("contents", lambda i, _: f"inputs.sentences[{i - 1}]" if i else "inputs.source_sentence"):
        response = await query.call.ask(request)

    def cosines() -> list[float]:
        first, *others = (one.values for one in response.embeddings)
        return [sum(map(float.__mul__, first, other)) for other in others]

    return await query.call.offload(sum(map(len, texts)), cosines)


async def classify_image(query: Query) -> Any:
    query.parameters.refuse({"function_to_apply": ()})
    image = query.inputs
    if not isinstance(image, bytes):
        try:
            image = base64.b64decode(Json(inputs=image).take("inputs", str), validate=True)
        except ValueError as error:
            raise invalid(f"inputs: not base64: {error}") from None
    options = query.parameters.take_given(TOP_K)
    request = image_classification_pb2.ClassifyImageRequest(images=[image], model=query.model, **options)
    response = await query.call.ask(request)
    return [_members(one, "label", "score") for one in response.results[0].labels]


TASKS: dict[str, Callable[[Query], Awaitable[Any]]] = {
    "fill-mask": fill_mask,
    "text-classification": classify_text,
    "token-classification": classify_tokens,
    "zero-shot-classification": classify_zero_shot,
    "question-answering": answer_question,
    "translation": translate,
    "summarization": partial(translate, member="summary_text"),
    "text2text-generation": partial(translate, member="generated_text"),
    "text-generation": generate,
    "image-classification": classify_image,
    "feature-extraction": lambda query: tei.embed_texts(query.call, query.parameters, query.model),
    "sentence-similarity": compare_sentences,
}
OWN_NAMES = {"text-embedding": "feature-extraction"}  # tasks of bundles that have another name here


async def infer(call: HttpCall) -> Any:
    """Run the task in the path, else the model's own."""
    model, task = call.request.path_params.get("model", ""), call.request.path_params.get("task", "")
    if call.content_type in ("", "application/octet-stream") or call.content_type.startswith("image/"):
        query = Query(call, model, await call.body(), Json())
        task = task or "image-classification"
    else:
        given = await call.json(has_images=True)
        given.refuse({"stream": (False,)})
        inputs, parameters = given.get("inputs"), as_object(given.take("parameters", dict, {}), "parameters")
        task = task or ("zero-shot-classification" if "candidate_labels" in parameters else await _task_of(call, model, inputs))
        beside = task == "feature-extraction"  # its parameters are beside the inputs
        query = Query(call, model, inputs, given if beside else parameters)
    if task not in TASKS:
        raise invalid(f"task: {task[:60]!r} is not one of {', '.join(TASKS)}")
    return await TASKS[task](query)


async def _task_of(call: HttpCall, model: str, inputs: Any) -> str:
    """Return the task of a model, or of inputs that only one task has."""
    if isinstance(inputs, dict) and "text" not in inputs:
        return "sentence-similarity" if "source_sentence" in inputs else "question-answering"
    tasks = {OWN_NAMES.get(one.task, one.task) for one in await call.ready_models() if model in ("", one.name)}
    if len(tasks) > 1:
        raise invalid("several models are loaded: name one as /models/NAME")
    return tasks.pop() if tasks else "fill-mask"  # whose service reports that there is no such model


@contextmanager
def _named(field: str, name: Callable[[int, str], str]) -> Iterator[None]:
    """Call an element of a request's list in errors as its caller knows it; `name` has its index, and a member or ""."""
    try:
        yield
    except RpcError as error:
        element = re.compile(rf"^{field}\[(\d+)\](\.\w+)?")
        raise error.with_message(element.sub(lambda found: name(int(found[1]), found[2] or ""), error.message)) from None


def _members(message: Any, *names: str) -> Mapping[str, Any]:
    return {name: getattr(message, name) for name in names}


API = Api(
    "Hugging Face",
    (
        ApiRoute("/", infer, summary="Run the only model."),
        ApiRoute("/models/{model}", infer, summary="Run a model."),
        ApiRoute("/models/{model}/pipeline/{task}", infer, summary="Run a task of a model."),
    ),
    tei.error_body,
    names={
        "contents": "inputs",
        "images": "inputs",
        "targets": "parameters.targets",
        "top_k": "parameters.top_k",
        "max_answer_length": "parameters.max_answer_len",
        "source_language_code": "parameters.src_lang",
        "target_language_code": "parameters.tgt_lang",
        **{f"options.{field}": f"parameters.generate_parameters.{name}" for name, field in GENERATION.items()},
    },
)
