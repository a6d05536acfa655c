from collections.abc import Callable
from typing import Any

import pytest

from triptych.v1 import translation_pb2
from triptych_client import AsyncClient, Client, DecodingOptions, FinishReason, ModelState, SplitSentences
from triptych_client.settings import DEFAULT_SERVER

from .conftest import Ask
from .fake_server import FakeServer


def test_translate_gives_text_and_circumstances(server: FakeServer, ask: Ask) -> None:
    result = ask(server.address, lambda client: client.translate("guten tag", target_language="en"))
    assert (result.text, result.model, result.model_version) == ("GUTEN TAG", "shout", "2")
    assert (result.finish_reason, result.truncated) == (FinishReason.STOP, False)
    assert (result.source_token_count, result.hypotheses[0].token_count) == (10, 9)
    assert result.hypotheses[0].score is None
    assert result.timing.inference_seconds == 0.25
    assert server.request_ids == [result.request_id]


def test_arguments_reach_the_server(server: FakeServer, ask: Ask) -> None:
    options = DecodingOptions(beam_size=4, target_prefix=("Good",), split_sentences=SplitSentences.OFF, seed=0)
    arguments = {"target_language": "en", "source_language": "de", "model": "m", "model_version": "7", "request_id": "mine"}
    ask(server.address, lambda client: client.translate("tag", options=options, **arguments))
    assert server.request_ids == ["mine"]
    assert server.requests == [
        translation_pb2.TranslateRequest(
            contents=["tag"],
            target_language_code="en",
            source_language_code="de",
            model="m",
            model_version="7",
            options=translation_pb2.DecodingOptions(
                beam_size=4, target_prefix=["Good"], split_sentences=translation_pb2.SPLIT_SENTENCES_OFF, seed=0
            ),
        )
    ]


def test_long_lists_are_cut_and_keep_their_order(server: FakeServer, ask: Ask) -> None:
    texts = [f"text {number}" for number in range(23)]
    options = DecodingOptions(target_prefix=tuple(texts))
    result = ask(server.address, lambda client: client.translate_many(texts, options=options), texts_per_call=4, concurrency=3)
    assert result.texts == [text.upper() for text in texts]
    assert len(result) == len(texts)
    assert [translation.text for translation in result[:2]] == ["TEXT 0", "TEXT 1"]
    assert sorted(len(request.contents) for request in server.requests) == [3, 4, 4, 4, 4, 4]
    assert all(request.contents == request.options.target_prefix for request in server.requests)
    assert len(result.timings) == 6
    assert set(server.request_ids) == {result.request_id}


def test_no_texts_need_no_request(server: FakeServer, ask: Ask) -> None:
    assert len(ask(server.address, lambda client: client.translate_many([]))) == 0
    assert server.requests == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda client: client.translate_many("one text"), TypeError),
        (lambda client: client.translate("text", beam_size=4), TypeError),
        (lambda client: client.translate("text", timeout_seconds=0), ValueError),
        (lambda client: client.translate("text", options=DecodingOptions(beam_size=-1)), ValueError),
        (lambda client: client.translate_many(["a", "b"], options=DecodingOptions(target_prefix=("a",))), ValueError),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_sent(
    server: FakeServer, ask: Ask, wrong: Callable[[Any], Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ask(server.address, wrong)
    assert server.requests == []


def test_options_refuse_a_lone_text() -> None:
    with pytest.raises(TypeError, match="target_prefix"):
        DecodingOptions(target_prefix="Good")


def test_models(server: FakeServer, ask: Ask) -> None:
    assert [model.name for model in ask(server.address, lambda client: client.models())] == ["shout"]
    assert ask(server.address, lambda client: client.model("shout")).version == "2"
    assert ask(server.address, lambda client: client.model("shout", "1")).version == "1"


def test_models_are_loaded_and_unloaded(server: FakeServer, ask: Ask) -> None:
    older, newer = ask(server.address, lambda client: client.load_model("shout"))
    assert (older.version, older.version_labels, older.default_version) == ("2", (), False)
    assert (newer.version, newer.version_labels, newer.default_version) == ("3", ("canary",), True)
    assert newer.state is ModelState.READY
    ask(server.address, lambda client: client.load_model("shout", "canary"))
    assert ask(server.address, lambda client: client.unload_model("shout", "2")) is None
    assert {request.name for request in server.requests} == {"shout"}
    assert [request.version for request in server.requests] == ["", "canary", "2"]


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_address_comes_from_argument_then_environment(
    client: type[Client | AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRIPTYCH_SERVER", raising=False)
    assert client().address == DEFAULT_SERVER
    monkeypatch.setenv("TRIPTYCH_SERVER", "translator:9")
    assert client().address == "translator:9"
    assert client("here:1").address == "here:1"


@pytest.mark.parametrize("setting", ["timeout_seconds", "retries", "concurrency", "texts_per_call", "max_message_bytes"])
def test_settings_out_of_range_are_named(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        Client(**{setting: -1})
