"""Translations that are scored."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from triptych.v1 import translation_pb2
from triptych_client import InvalidArgumentError

from .conftest import Ask
from .fake_server import FakeServer, fail, succeed


def test_scores_say_where_they_come_from(server: FakeServer, ask: Ask) -> None:
    pairs = [("tag", "TAG"), ("tag", "TOG")]
    [right, wrong] = ask(server.address, lambda client: client.score_translations(pairs))
    assert (right.log_probability, right.token_log_probabilities) == (0.0, (0.0, 0.0, 0.0))
    assert (wrong.log_probability, wrong.token_log_probabilities) == (-1.0, (0.0, -1.0, 0.0))
    assert (wrong.model, wrong.model_version, wrong.timing.inference_seconds) == ("shout", "2", 0.25)
    assert server.request_ids == [wrong.request_id]


def test_arguments_reach_the_server(server: FakeServer, ask: Ask) -> None:
    arguments = {"target_language": "en", "source_language": "de", "model": "m", "model_version": "7"}
    ask(server.address, lambda client: client.score_translations([("tag", "DAY")], **arguments))
    assert server.requests == [
        translation_pb2.ScoreTranslationsRequest(
            pairs=[translation_pb2.TranslationPair(source="tag", target="DAY")],
            target_language_code="en",
            source_language_code="de",
            model="m",
            model_version="7",
        )
    ]


def test_long_lists_are_cut_and_keep_their_order(server: FakeServer, ask: Ask) -> None:
    pairs = [("a" * count, "b" * count) for count in range(1, 24)]
    found = ask(server.address, lambda client: client.score_translations(pairs), texts_per_call=4, concurrency=3)
    assert [score.log_probability for score in found] == [-float(count) for count in range(1, 24)]
    assert sorted(len(request.pairs) for request in server.requests) == [3, 4, 4, 4, 4, 4]


def test_the_place_of_a_bad_pair_is_the_users(server: FakeServer, ask: Ask) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="pairs[1].target", description="the text is empty")
    details = error_details_pb2.BadRequest(field_violations=[violation])
    server.script = [succeed, fail(grpc.StatusCode.INVALID_ARGUMENT, "pairs[1].target: the text is empty", details)]
    with pytest.raises(InvalidArgumentError, match=r"pairs\[5\]\.target: the text is empty") as error:
        ask(server.address, lambda client: client.score_translations([("a", "A")] * 8), texts_per_call=4, concurrency=1)
    assert [violation.field for violation in error.value.violations] == ["pairs[5].target"]


def test_no_pairs_need_no_request(server: FakeServer, ask: Ask) -> None:
    assert len(ask(server.address, lambda client: client.score_translations([]))) == 0
    assert server.requests == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda client: client.score_translations(("a source", "a target")), TypeError),
        (lambda client: client.score_translations([("a", "A")], options=None), TypeError),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_sent(
    server: FakeServer, ask: Ask, wrong: Callable[[Any], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ask(server.address, wrong)
    assert server.requests == []
