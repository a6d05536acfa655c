from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from triptych.v1 import (
    common_pb2,
    embedding_pb2,
    fill_mask_pb2,
    image_classification_pb2,
    question_answering_pb2,
    text_classification_pb2,
    token_classification_pb2,
)
from triptych_client import (
    Aggregation,
    Answer,
    AnsweredQuestion,
    ClassifiedImage,
    ClassifiedText,
    Embedding,
    Entity,
    FieldViolation,
    FilledMask,
    FilledText,
    InvalidArgumentError,
    LabelledText,
    MaskCandidate,
    Pooling,
    ScoredLabel,
    ServerError,
)
from triptych_client.call import Call
from triptych_client.encoder_codec import AGGREGATIONS, POOLINGS
from triptych_client.results import Served
from triptych_client.text_jobs import EmbedJob

from .conftest import Ask
from .fake_server import FakeServer, fail, succeed

WHERE = {"model": "m", "model_version": "7"}

CALLS = [
    pytest.param(
        lambda client, **more: client.fill_mask("a [MASK] c [MASK]", top_k=2, targets=["x", "y"], **more),
        fill_mask_pb2.FillMaskRequest(contents=["a [MASK] c [MASK]"], top_k=2, targets=["x", "y"], **WHERE),
        lambda result: result.masks == (FilledMask((MaskCandidate(0.5, 7, "x", "a x c [MASK]"),)),) * 2,
        id="fill_mask",
    ),
    pytest.param(
        lambda client, **more: client.embed("abc", pooling="cls", normalize=True, **more),
        embedding_pb2.EmbedTextRequest(contents=["abc"], pooling=embedding_pb2.POOLING_CLS, normalize=True, **WHERE),
        lambda result: result.values == (0.5, 3.0),
        id="embed",
    ),
    pytest.param(
        lambda client, **more: client.classify_text("abc", top_k=1, **more),
        text_classification_pb2.ClassifyTextRequest(inputs=[text_classification_pb2.TextInput(text="abc")], top_k=1, **WHERE),
        lambda result: result.labels == (ScoredLabel("yes", 0.75, 1),),
        id="classify_text",
    ),
    pytest.param(
        lambda client, **more: client.classify_text(("a", "b"), **more),
        text_classification_pb2.ClassifyTextRequest(
            inputs=[text_classification_pb2.TextInput(text="a", text_pair="b")], **WHERE
        ),
        lambda result: result.token_count == 1,
        id="classify_text, pair",
    ),
    pytest.param(
        lambda client, **more: client.classify_tokens("Ada", aggregation=Aggregation.NONE, **more),
        token_classification_pb2.ClassifyTokensRequest(
            contents=["Ada"], aggregation=token_classification_pb2.AGGREGATION_NONE, **WHERE
        ),
        lambda result: result.entities == (Entity("PER", 0.75, "Ada", 0, 3),),
        id="classify_tokens",
    ),
    pytest.param(
        lambda client, **more: client.answer("who?", "by Ada", top_k=2, max_answer_length=9, **more),
        question_answering_pb2.AnswerQuestionRequest(
            inputs=[question_answering_pb2.QuestionInput(question="who?", context="by Ada")],
            top_k=2,
            max_answer_length=9,
            **WHERE,
        ),
        lambda result: result.answers == (Answer(" Ada", 0.75, 2, 6),),
        id="answer",
    ),
    pytest.param(
        lambda client, **more: client.classify_image(b"image", top_k=2, **more),
        image_classification_pb2.ClassifyImageRequest(images=[b"image"], top_k=2, **WHERE),
        lambda result: (result.labels, result.width, result.height) == ((ScoredLabel("yes", 0.75, 1),), 5, 2),
        id="classify_image",
    ),
]


@pytest.mark.parametrize(("question", "request_message", "is_right"), CALLS)
def test_arguments_reach_the_server_and_its_answer_the_caller(
    server: FakeServer, ask: Ask, question: Callable[..., Any], request_message: Any, is_right: Callable[[Any], bool]
) -> None:
    result = ask(server.address, lambda client: question(client, request_id="mine", **WHERE))
    assert server.requests == [request_message]
    assert is_right(result)
    assert (result.model, result.model_version, result.request_id) == ("guess", "3", "mine")
    assert result.timing.inference_seconds == 0.25
    with pytest.raises(FrozenInstanceError):
        result.model = "other"


MANY = [
    (lambda client: client.fill_mask_many(["[MASK]"] * 5), 5),
    (lambda client: client.embed_many(["a"] * 5), 5),
    (lambda client: client.classify_text_many(["a", ("b", "c")]), 2),
    (lambda client: client.classify_tokens_many(["a"] * 5), 5),
    (lambda client: client.answer_many([("a", "b")] * 5), 5),
    (lambda client: client.classify_image_many([b"a"] * 5), 5),
]


@pytest.mark.parametrize(("question", "count"), MANY)
def test_long_lists_are_cut(server: FakeServer, ask: Ask, question: Callable[[Any], Any], count: int) -> None:
    results = ask(server.address, question, texts_per_call=2)
    assert len(results) == count
    assert len(results.timings) == len(server.requests) == (count + 1) // 2
    assert set(server.request_ids) == {results.request_id}


def test_results_have_the_order_of_the_inputs(server: FakeServer, ask: Ask) -> None:
    texts = ["a" * length for length in range(1, 24)]
    results = ask(server.address, lambda client: client.embed_many(texts), texts_per_call=4, concurrency=3)
    assert [embedding.token_count for embedding in results] == list(range(1, 24))
    assert [embedding.token_count for embedding in results[:2]] == [1, 2]
    assert results[-1].values == (0.5, 23.0)


def test_an_answer_that_repeats_the_text_often_makes_requests_smaller(server: FakeServer, ask: Ask) -> None:
    texts = ["[MASK]" + "a" * 994] * 4
    ask(server.address, lambda client: client.fill_mask_many(texts, top_k=500))
    assert [len(request.contents) for request in server.requests] == [2, 2]


def test_no_inputs_need_no_request(server: FakeServer, ask: Ask) -> None:
    assert len(ask(server.address, lambda client: client.embed_many([]))) == 0
    assert server.requests == []


def test_what_is_left_out_is_left_to_the_server(server: FakeServer, ask: Ask) -> None:
    ask(server.address, lambda client: client.fill_mask("[MASK]"))
    assert not server.requests[0].HasField("top_k")


def test_unavailable_is_tried_again(server: FakeServer, ask: Ask) -> None:
    server.script = [fail(grpc.StatusCode.UNAVAILABLE)]
    assert ask(server.address, lambda client: client.embed("a")).token_count == 1
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("question", "field"),
    [
        (lambda client: client.classify_text_many(["a"] * 4), "inputs[1].text"),
        (lambda client: client.classify_image_many([b"a"] * 4), "images[1]"),
    ],
)
def test_indices_are_those_of_the_users_list(server: FakeServer, ask: Ask, question: Callable[[Any], Any], field: str) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field=field, description="is empty")
    bad_request = error_details_pb2.BadRequest(field_violations=[violation])
    server.script = [succeed, fail(grpc.StatusCode.INVALID_ARGUMENT, f"{field} is empty", bad_request)]
    with pytest.raises(InvalidArgumentError) as caught:
        ask(server.address, question, texts_per_call=2, concurrency=1)
    there = field.replace("1", "3")
    assert caught.value.message == f"{there} is empty"
    assert caught.value.violations == (FieldViolation(there, "is empty"),)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda client: client.fill_mask_many("one"), TypeError, "fill_mask_many takes a sequence of texts"),
        (lambda client: client.fill_mask("[MASK]", targets="word"), TypeError, "targets takes a sequence of words"),
        (lambda client: client.fill_mask("[MASK]", top_k=-1), ValueError, "top_k is -1, must be 0 or more"),
        (lambda client: client.fill_mask("[MASK]", beam_size=1), TypeError, "beam_size"),
        (lambda client: client.embed_many("one"), TypeError, "embed_many takes a sequence of texts"),
        (lambda client: client.embed("a", pooling="max"), ValueError, "pooling is 'max', must be one of: mean, cls"),
        (lambda client: client.classify_text_many("one"), TypeError, "classify_text_many takes"),
        (lambda client: client.classify_tokens_many("one"), TypeError, "classify_tokens_many takes"),
        (lambda client: client.classify_tokens("a", aggregation="max"), ValueError, "must be one of: none, simple"),
        (lambda client: client.answer_many(["question", "context"]), TypeError, "answer_many takes a sequence of"),
        (lambda client: client.answer("a", "b", max_answer_length=-1), ValueError, "max_answer_length is -1"),
        (lambda client: client.embed("a", timeout_seconds=0), ValueError, "timeout_seconds is 0"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_sent(
    server: FakeServer, ask: Ask, wrong: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(server.address, wrong)
    assert server.requests == []


def test_a_response_that_does_not_fit_its_request_is_an_error() -> None:
    job = EmbedJob(call=Call("mine", 1.0, 0), texts=["a", "b"])
    response = embedding_pb2.EmbedTextResponse(embeddings=[embedding_pb2.Embedding()])
    with pytest.raises(ServerError, match="1 results for 2 inputs") as caught:
        job.results(job.requests(64, 1000), [response])
    assert caught.value.request_id == "mine"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (MaskCandidate, fill_mask_pb2.MaskCandidate),
        (FilledMask, fill_mask_pb2.FilledMask),
        (FilledText, fill_mask_pb2.FilledText),
        (Embedding, embedding_pb2.Embedding),
        (ScoredLabel, common_pb2.ScoredLabel),
        (ClassifiedText, text_classification_pb2.ClassifiedText),
        (Entity, token_classification_pb2.Entity),
        (LabelledText, token_classification_pb2.LabelledText),
        (Answer, question_answering_pb2.Answer),
        (AnsweredQuestion, question_answering_pb2.AnsweredQuestion),
        (ClassifiedImage, image_classification_pb2.ClassifiedImage),
    ],
)
def test_results_are_the_contracts_results(kind: type[Any], message: type[Any]) -> None:
    served = {field.name for field in fields(Served)}
    assert {field.name for field in fields(kind)} - served == set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("table", "kind", "enum"),
    [
        (POOLINGS, Pooling, embedding_pb2.Pooling),
        (AGGREGATIONS, Aggregation, token_classification_pb2.Aggregation),
    ],
)
def test_every_value_of_an_enum_is_known(table: dict[Any, int], kind: type[Any], enum: Any) -> None:
    assert set(table) == set(kind)
    assert set(table.values()) == {number for number in enum.values() if number != 0}
