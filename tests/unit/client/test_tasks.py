"""The unary calls of both clients: requests, results, splitting and checks."""

import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any, get_type_hints

import grpc
import numpy as np
import pytest

import triptych_client as tc
from triptych.decoding import DecodingArguments
from triptych.v1 import embedding_pb2, translation_pb2
from triptych_client.call import Call
from triptych_client.tasks import TRANSLATE, UnaryTask
from triptych_client.text_tasks import EMBED

from .conftest import Ask
from .fake_server import FakeServer, bad_field, fail, succeed

WHERE = {"model": "m", "model_version": "7"}
LANGUAGES = {"target_language": "en", "source_language": "de"}
LANGUAGE_CODES = {"target_language_code": "en", "source_language_code": "de"}
OPTIONS = tc.DecodingOptions(beam_size=4, target_prefix=("Good",), split_sentences=tc.SplitSentences.OFF, seed=0)
OPTIONS_FIELDS = {"beam_size": 4, "target_prefix": ["Good"], "split_sentences": "SPLIT_SENTENCES_OFF", "seed": 0}

# Of each method: a call, fields of the request, and a test of the result.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[Any], bool]]] = {
    "translate": (
        lambda client, **more: client.translate("tag", options=OPTIONS, **LANGUAGES, **more),
        {"contents": ["tag"], "options": OPTIONS_FIELDS, **LANGUAGE_CODES},
        lambda result: (
            (result.text, result.finish_reason, result.truncated) == ("TAG", tc.FinishReason.STOP, False)
            and (result.source_token_count, result.hypotheses[0].token_count, result.hypotheses[0].score) == (4, 3, None)
        ),
    ),
    "score_translations": (
        lambda client, **more: client.score_translations([("tag", "TOG")], **LANGUAGES, **more),
        {"pairs": [{"source": "tag", "target": "TOG"}], **LANGUAGE_CODES},
        lambda result: (result.log_probability, result.token_log_probabilities) == (-1.0, (0.0, -1.0, 0.0)),
    ),
    "fill_mask": (
        lambda client, **more: client.fill_mask("a [MASK] c [MASK]", top_k=2, targets=["x", "y"], **more),
        {"contents": ["a [MASK] c [MASK]"], "top_k": 2, "targets": ["x", "y"]},
        lambda result: result.masks == (tc.FilledMask((tc.MaskCandidate(0.5, 7, "x", "a x c [MASK]"),)),) * 2,
    ),
    "embed": (
        lambda client, **more: client.embed("abc", pooling="cls", normalize=True, dimensions=2, truncate=True, **more),
        {"contents": ["abc"], "pooling": "POOLING_CLS", "normalize": True, "dimensions": 2, "truncate": True},
        lambda result: (result.values, result.truncated) == ((0.5, 3.0), False),
    ),
    "classify_text": (
        lambda client, **more: client.classify_text("abc", top_k=1, **more),
        {"inputs": [{"text": "abc"}], "top_k": 1},
        lambda result: result.labels == (tc.ScoredLabel("yes", 0.75, 1),),
    ),
    "classify_text, pair": (
        lambda client, **more: client.classify_text(("a", "b"), raw_scores=True, **more),
        {"inputs": [{"text": "a", "text_pair": "b"}], "raw_scores": True},
        lambda result: result.token_count == 1,
    ),
    "classify_tokens": (
        lambda client, **more: client.classify_tokens("Ada", aggregation=tc.Aggregation.NONE, **more),
        {"contents": ["Ada"], "aggregation": "AGGREGATION_NONE"},
        lambda result: result.entities == (tc.Entity("PER", 0.75, "Ada", 0, 3),),
    ),
    "answer": (
        lambda client, **more: client.answer("who?", "by Ada", top_k=2, max_answer_length=9, **more),
        {"inputs": [{"question": "who?", "context": "by Ada"}], "top_k": 2, "max_answer_length": 9},
        lambda result: result.answers == (tc.Answer(" Ada", 0.75, 2, 6),),
    ),
    "rerank": (
        lambda client, **more: client.rerank("a?", ["b", "cd"], top_k=2, raw_scores=True, truncate=True, **more),
        {"query": "a?", "documents": ["b", "cd"], "top_k": 2, "raw_scores": True, "truncate": True},
        lambda result: (result.index, result.score, result.token_count, result.truncated) == (1, 0.75, 1, True),
    ),
    "neighbors": (
        lambda client, **more: client.neighbors("a -b", top_k=2, **more),
        {"contents": ["a -b"], "top_k": 2},
        lambda result: (result.neighbors, result.token_count) == ((tc.Neighbor(0.75, 7, "a -b"),), 3),
    ),
    "classify_image": (
        lambda client, **more: client.classify_image(b"image", top_k=2, **more),
        {"images": [b"image"], "top_k": 2},
        lambda result: (result.labels, result.width, result.height) == ((tc.ScoredLabel("yes", 0.75, 1),), 5, 2),
    ),
}


@pytest.mark.parametrize(("question", "values", "is_right"), CALLS.values(), ids=CALLS)
def test_requests_and_results(
    server: FakeServer, ask: Ask, question: Callable[..., Any], values: dict[str, Any], is_right: Callable[[Any], bool]
) -> None:
    result = ask(server.address, lambda client: question(client, request_id="mine", **WHERE))
    [request] = server.requests
    assert request == type(request)(**values, **WHERE)
    assert server.request_ids == ["mine"]
    result = result if hasattr(result, "model") else result[0]
    assert is_right(result)
    assert (result.model, result.model_version, result.request_id) == ("fake", "2", "mine")
    assert result.timing.inference_seconds == 0.25
    with pytest.raises(FrozenInstanceError):
        result.model = "other"


MANY = [
    (lambda client: client.translate_many(["a"] * 5), 5),
    (lambda client: client.score_translations([("a", "b")] * 5), 5),
    (lambda client: client.fill_mask_many(["[MASK]"] * 5), 5),
    (lambda client: client.embed_many(["a"] * 5), 5),
    (lambda client: client.classify_text_many(["a", ["b", "c"]]), 2),
    (lambda client: client.classify_tokens_many(["a"] * 5), 5),
    (lambda client: client.answer_many([("a", "b")] * 5), 5),
    (lambda client: client.classify_image_many([b"a"] * 5), 5),
    (lambda client: client.generate_many(["a"] * 5), 5),
]


@pytest.mark.parametrize(("question", "count"), MANY)
def test_long_lists_are_split(server: FakeServer, ask: Ask, question: Callable[[Any], Any], count: int) -> None:
    results = ask(server.address, question, texts_per_call=2)
    assert len(results) == count
    assert len(results.timings) == len(server.requests) == (count + 1) // 2
    assert set(server.request_ids) == {results.request_id}


def test_results_and_prefixes_keep_the_order_of_the_inputs(server: FakeServer, ask: Ask) -> None:
    texts = [f"text {number}" for number in range(23)]
    options = tc.DecodingOptions(target_prefix=tuple(texts))
    result = ask(server.address, lambda client: client.translate_many(texts, options=options), texts_per_call=4, concurrency=3)
    assert result.texts == [text.upper() for text in texts]
    assert [translation.text for translation in result[:2]] == ["TEXT 0", "TEXT 1"]
    assert sorted(len(request.contents) for request in server.requests) == [3, 4, 4, 4, 4, 4]
    assert all(request.contents == request.options.target_prefix for request in server.requests)


def test_repeated_texts_in_the_response_make_requests_smaller(server: FakeServer, ask: Ask) -> None:
    texts = ["[MASK]" + "a" * 994] * 4
    ask(server.address, lambda client: client.fill_mask_many(texts, top_k=500))
    assert [len(request.contents) for request in server.requests] == [2, 2]


def test_requests_of_many_sentences_are_smaller(server: FakeServer, ask: Ask) -> None:
    """A server limits the tokens that it decodes for one request, which grow with sentences and hypotheses."""
    texts = ["I am here. " * 74] * 64
    assert len(ask(server.address, lambda client: client.translate_many(texts))) == 64
    assert [len(request.contents) for request in sorted(server.requests, key=lambda each: -len(each.contents))] == [49, 15]
    server.requests.clear()
    ask(server.address, lambda client: client.translate_many(texts[:24], beam_size=16))
    assert [len(request.contents) for request in server.requests] == [12, 12]
    server.requests.clear()
    ask(server.address, lambda client: client.translate_many(texts[:24], max_length=1024))
    assert [len(request.contents) for request in server.requests] == [12, 12]


def test_a_text_above_the_limit_of_messages_fails_alone(server: FakeServer, ask: Ask) -> None:
    texts = ["a", "b" * 5000, "c"]
    results = ask(server.address, lambda client: client.translate_many(texts), max_message_bytes=4000)
    assert [getattr(outcome, "text", "") for outcome in results.outcomes] == ["A", "", "C"]
    with pytest.raises(tc.ResourceExhaustedError, match=r"contents\[0\]: its message has 5,0.. bytes, `max_message_bytes`"):
        ask(server.address, lambda client: client.translate(texts[1]), max_message_bytes=4000)


def test_a_text_that_is_too_much_for_one_request_fails_alone(server: FakeServer, ask: Ask) -> None:
    too_much = fail(grpc.StatusCode.INVALID_ARGUMENT, "contents: 5,000 sentences", bad_field("contents"))
    server.script = [succeed, too_much]
    results = ask(server.address, lambda client: client.translate_many(["a", "b"]), texts_per_call=1, concurrency=1)
    assert (results[0].text, results.errors[1].message) == ("A", "contents[1]: is empty")
    server.script = [too_much]
    with pytest.raises(tc.InvalidArgumentError, match="5,000 sentences"):
        ask(server.address, lambda client: client.translate_many(["a", "b"]))


def test_inputs_that_are_left_out_do_not_renew_the_deadline(server: FakeServer, ask: Ask) -> None:
    def reject(context: grpc.ServicerContext) -> None:
        time.sleep(0.2)
        fail(grpc.StatusCode.INVALID_ARGUMENT, "empty", bad_field("contents[0]"))(context)

    server.script = [reject] * 20
    with pytest.raises(tc.DeadlineExceededError, match=r"not complete within 0\.5 s \(`timeout_seconds`\)"):
        ask(server.address, lambda client: client.translate_many([""] * 8), timeout_seconds=0.5)


def test_a_pair_with_an_empty_text_is_not_sent_as_a_single_text(server: FakeServer, ask: Ask) -> None:
    ask(server.address, lambda client: client.classify_text_many(["a", ("b", ""), ("", "c")]))
    inputs = server.requests[0].inputs
    assert [(each.text, each.text_pair) for each in inputs] == [("a", ""), ("b", " "), ("", "c")]  # " " is rejected as empty


@pytest.mark.parametrize("method", ["translate_many", "score_translations", "embed_many"])
def test_no_inputs_send_no_request(server: FakeServer, ask: Ask, method: str) -> None:
    assert len(ask(server.address, lambda client: getattr(client, method)([]))) == 0
    assert server.requests == []


def test_none_is_the_default_of_every_argument(server: FakeServer, ask: Ask) -> None:
    none = {"target_prefix": None, "suppress_sequences": None, "beam_size": None, "model": None, "options": None}
    assert ask(server.address, lambda client: client.translate("a", **none)).text == "A"
    assert [field.name for field, _ in server.requests[0].ListFields()] == ["contents"]


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (lambda client, **more: client.translate_many(["a"] * 4, **more), "contents[1]"),
        (lambda client, **more: client.score_translations([("a", "A")] * 4, **more), "pairs[1].target"),
        (lambda client, **more: client.classify_text_many(["a"] * 4, **more), "inputs[1].text"),
        (lambda client, **more: client.classify_image_many([b"a"] * 4, **more), "images[1]"),
        (lambda client, **more: client.generate_many(["a"] * 4, **more), "prompts[1]"),
    ],
)
def test_indices_in_errors_are_those_of_the_users_list(
    server: FakeServer, ask: Ask, question: Callable[[Any], Any], field: str
) -> None:
    rejected = fail(grpc.StatusCode.INVALID_ARGUMENT, f"{field} is empty", bad_field(field))
    server.script = [succeed, rejected]
    with pytest.raises(tc.InvalidArgumentError) as caught:
        ask(server.address, lambda client: question(client, fail_fast=True), texts_per_call=2, concurrency=1)
    there = field.replace("1", "3")
    assert caught.value.message == f"{there} is empty"
    assert caught.value.violations == (tc.FieldViolation(there, "is empty"),)
    # Without fail_fast, this input alone has the error: the request is sent again without it.
    server.script = [succeed, rejected]
    results = ask(server.address, question, texts_per_call=2, concurrency=1)
    assert [(index, error.message) for index, error in results.errors.items()] == [(3, f"{there}: is empty")]
    assert results.errors[3].violations == caught.value.violations
    assert len(results) == 4
    assert len(results[:3]) == 3
    for take in (lambda: results[3], lambda: list(results), lambda: results.items):
        with pytest.raises(tc.InvalidArgumentError):
            take()


def test_inputs_are_rejected_one_after_the_other_or_all(server: FakeServer, ask: Ask) -> None:
    def reject_blanks(context: grpc.ServicerContext) -> None:
        contents = server.requests[-1].contents
        if "" in contents:
            field = f"contents[{list(contents).index('')}]"
            fail(grpc.StatusCode.INVALID_ARGUMENT, "empty", bad_field(field))(context)

    server.script = [reject_blanks] * 20
    texts = ["", "a", "", "b", "c", "", ""]
    options = {"target_prefix": tuple("0123456")}
    results = ask(server.address, lambda client: client.translate(texts, **options), texts_per_call=5, concurrency=1)
    shown = [getattr(outcome, "text", "") for outcome in results.outcomes]
    assert shown == [text.upper() for text in texts]
    assert sorted(results.errors) == [0, 2, 5, 6]
    assert [error.violations[0].field for error in results.errors.values()] == [f"contents[{n}]" for n in (0, 2, 5, 6)]
    prefixes = ["".join(request.options.target_prefix) for request in server.requests]
    assert [each for each in prefixes if "4" in each] == ["01234", "1234", "134"]
    assert len(results.timings) == 1
    # An error about anything else is the call's.
    for name in ("options.beam_size", "options.target_prefix[0]"):
        server.script = [fail(grpc.StatusCode.INVALID_ARGUMENT, "no", bad_field(name))]
        with pytest.raises(tc.InvalidArgumentError):
            ask(server.address, lambda client: client.translate_many(["a"]))


def test_decoding_options_are_arguments(server: FakeServer, ask: Ask) -> None:
    options = tc.DecodingOptions(beam_size=2, seed=0)
    ask(server.address, lambda client: client.translate("a", beam_size=4, options=options))
    assert server.requests == [
        translation_pb2.TranslateRequest(contents=["a"], options=translation_pb2.DecodingOptions(beam_size=4, seed=0))
    ]
    described = get_type_hints(tc.DecodingOptions)
    assert get_type_hints(DecodingArguments) == {field.name: described[field.name] for field in fields(tc.DecodingOptions)}


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda client: client.translate_many("one"), TypeError, "translate_many takes a sequence of texts, not str"),
        (lambda client: client.translate(5), TypeError, "translate takes one text, translate_many a sequence of them; input 0"),
        (lambda client: client.translate("text", beams=4), TypeError, "'beams'; did you mean 'beam_size'?"),
        (lambda client: client.translate("text", target_prefix="a"), TypeError, "target_prefix takes a tuple"),
        (lambda client: client.translate("text", model_version=1), TypeError, "model_version is 1: must be a text"),
        (lambda client: client.translate("text", suppress_sequences=[1]), TypeError, r"is \[1\]: must be texts"),
        (
            lambda client: client.translate("text", options={"beam_size": 4}),
            TypeError,
            "options is a DecodingOptions, not dict",
        ),
        (lambda client: client.infer("model", {"a": [1.0]}), TypeError, "input 'a' is of type list, expected an array"),
        (lambda client: client.infer("model", {"a": np.array(0, "M8[s]")}), TypeError, "input 'a': .*; expected numbers"),
        (lambda client: client.embed(["a"]), TypeError, "embed takes one text, embed_many a sequence of them; input 0 is"),
        (lambda client: client.translate("text", timeout_seconds=0), ValueError, "timeout_seconds is 0"),
        (lambda client: client.translate("text", timeout_seconds=1e10), ValueError, "at most 1,000,000,000"),
        (lambda client: client.translate("text", timeout_seconds="5"), ValueError, "timeout_seconds is '5', must be a number"),
        (lambda client: client.translate("text", request_id=5), ValueError, "request_id is 5, must be"),
        (
            lambda client: client.translate_many(["a", "b"], options=tc.DecodingOptions(target_prefix=("a",))),
            ValueError,
            "target_prefix has 1 prefixes for 2 texts",
        ),
        (lambda client: client.translate_stream("text", beam_sice=4), TypeError, "beam_size"),
        (lambda client: client.score_translations(("a source", "a target")), TypeError, r"takes \(source, translation\) pairs"),
        (lambda client: client.score_translations([("a", "A")], options=None), TypeError, "options"),
        (lambda client: client.fill_mask("[MASK]", targets="word"), TypeError, "targets takes several values"),
        (lambda client: client.fill_mask("[MASK]", top_k=-1), ValueError, "top_k is -1, must be from 0 to 4,294,967,295"),
        (lambda client: client.fill_mask("[MASK]", top_k=2**32), ValueError, "top_k is 4294967296, must be from 0"),
        (lambda client: client.fill_mask("[MASK]", top_k="5"), TypeError, "top_k is '5': "),
        (lambda client: client.translate("text", beam_size="4"), TypeError, "beam_size is '4': "),
        (lambda client: client.generate("a", template_variables=["x"]), TypeError, r"template_variables is \['x'\]: "),
        (
            lambda client: client.generate("a", template_variables={"x": 10**400}),
            ValueError,
            "template_variables is .*too large",
        ),
        (
            lambda client: client.translate("\ud800"),
            ValueError,
            r"input 0 is not Unicode: lone surrogate '\\ud800' at character 0",
        ),
        (lambda client: client.embed_many(["a", "b\ud800"]), ValueError, r"input 1 is not Unicode: .* at character 1"),
        (lambda client: client.translate("text", model="\ud800"), ValueError, r"model is '\\ud800': .*surrogates"),
        (lambda client: client.translate("text", request_id="a\nb"), ValueError, r"request_id is 'a\\nb', must be printable"),
        (lambda client: client.embed("a", pooling="max"), ValueError, "pooling is 'max', must be one of: mean, cls"),
        (lambda client: client.answer_many(["question", "context"]), TypeError, "answer_many a sequence of them"),
        (lambda client: client.rerank(None, ["a"]), TypeError, "rerank takes one query, a text, .* of type NoneType"),
        (lambda client: client.rerank("\ud800", ["a"]), ValueError, r"query is '\\ud800': .*surrogates"),
        (lambda client: client.translate("a", target_prefix=("\ud800",)), ValueError, r"target_prefix is \('\\ud800',\): "),
        (lambda client: client.generate(None), TypeError, "generate takes a text, or messages .* of type NoneType"),
        (lambda client: client.generate([{"role": "user", "content": None}]), TypeError, "message 0 is {'role': 'user', 'con"),
        (lambda client: client.generate([{"role": "user", "content": "\ud800"}]), ValueError, r"content is '\\ud800': "),
        (lambda client: client.model(5), TypeError, "name is 5: "),
        (lambda client: client.models(timeout=5), TypeError, r"models\(\) got .* 'timeout'; did you mean 'timeout_seconds'"),
    ],
)
def test_wrong_arguments_raise_before_a_request_is_sent(
    server: FakeServer, ask: Ask, wrong: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(server.address, wrong)
    assert server.requests == []


@pytest.mark.parametrize(
    ("task", "response"),
    [
        (EMBED, embedding_pb2.EmbedTextResponse(embeddings=[embedding_pb2.Embedding()])),
        (TRANSLATE, translation_pb2.TranslateResponse()),
        (TRANSLATE, translation_pb2.TranslateResponse(translations=[translation_pb2.Translation(translated_text="no")] * 2)),
    ],
)
def test_a_response_that_does_not_fit_its_request_is_an_error(task: UnaryTask[Any], response: Any) -> None:
    batch = task.batch(["a", "b"], {}, Call("mine", 1.0, 0), 64, 1000)
    with pytest.raises(tc.ServerError, match=r"1 results for 2 inputs|0 results for 2 inputs|without hypotheses") as caught:
        batch.results([response])
    assert caught.value.request_id == "mine"
