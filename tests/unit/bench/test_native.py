"""Requests and responses of Triptych's own services."""

from typing import Any

import pytest

from triptych.v1 import (
    embedding_pb2,
    fill_mask_pb2,
    image_classification_pb2,
    question_answering_pb2,
    text_classification_pb2,
    token_classification_pb2,
    translation_pb2,
)
from triptych_bench.native import METHODS, NativeTarget
from triptych_bench.target import RequestSpec, Sample, TargetError
from triptych_bench.tasks import TASKS
from triptych_client.settings import Settings

TEXTS_AND_LANGUAGE = 'contents: "a" contents: "b" target_language_code: "de" model: "m" model_version: "2" '
DECODING = 'options { beam_size: 4 target_prefix: "Ja" target_prefix: "Ja" }'
REQUESTS: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("translate", ["a", "b"], {"target_language": "de", "beam_size": 4, "target_prefix": "Ja"}, TEXTS_AND_LANGUAGE + DECODING),
    (
        "score",
        [("a", "b")],
        {"source_language": "en"},
        'pairs { source: "a" target: "b" } source_language_code: "en" model: "m" model_version: "2"',
    ),
    ("fill", ["a"], {"top_k": 3, "targets": ["x"]}, 'contents: "a" model: "m" model_version: "2" top_k: 3 targets: "x"'),
    ("classify", [b"\x01"], {"top_k": 1}, r'images: "\001" model: "m" model_version: "2" top_k: 1'),
]


def test_all_tasks_except_tensors_have_a_method() -> None:
    assert set(METHODS) == set(RESPONSES) == set(TASKS) - {"infer"}


@pytest.mark.parametrize(("task", "inputs", "options", "text"), REQUESTS)
def test_requests(task: str, inputs: list[Any], options: dict[str, Any], text: str) -> None:
    target = NativeTarget(Settings(), RequestSpec(task=task, model="m", version="2", options=options))
    raw = target.prepare([Sample(data) for data in inputs])
    assert " ".join(str(METHODS[task].task.request.FromString(raw)).split()) == text


def test_streams_have_their_own_requests() -> None:
    target = NativeTarget(Settings(), RequestSpec(task="translate", stream=True))
    assert translation_pb2.TranslateStreamRequest.FromString(target.prepare([Sample("a")])).contents == ["a"]


def test_invalid_options_are_one_error() -> None:
    target = NativeTarget(Settings(), RequestSpec(task="translate", options={"beam_size": -1}))
    with pytest.raises(TargetError, match="beam_size is -1, must be 0 or more"):
        target.prepare([Sample("a")])


RESPONSES = {
    "translate": (
        translation_pb2.TranslateResponse(translations=[{"translated_text": "A"}, {"translated_text": "B"}]),
        ["A", "B"],
    ),
    "score": (translation_pb2.ScoreTranslationsResponse(scores=[{"log_probability": -1.5}]), ["-1.5000"]),
    "fill": (
        fill_mask_pb2.FillMaskResponse(results=[{"masks": [{"candidates": [{"token_str": "x"}, {"token_str": "y"}]}]}, {}]),
        ["x", ""],
    ),
    "embed": (embedding_pb2.EmbedTextResponse(embeddings=[{"values": [1, 2, 3]}]), ["3"]),
    "classify-text": (text_classification_pb2.ClassifyTextResponse(results=[{"labels": [{"label": "good"}]}]), ["good"]),
    "classify-tokens": (
        token_classification_pb2.ClassifyTokensResponse(results=[{"entities": [{"label": "PER", "text": "Anna"}]}]),
        ["PER:Anna"],
    ),
    "answer": (question_answering_pb2.AnswerQuestionResponse(results=[{"answers": [{"text": "here"}]}]), ["here"]),
    "classify": (image_classification_pb2.ClassifyImageResponse(results=[{"labels": [{"label": "cat"}]}]), ["cat"]),
}


def test_tokens_of_the_best_hypotheses_are_counted() -> None:
    texts = [{"hypotheses": [{"token_count": 5}, {"token_count": 7}]}, {"hypotheses": [{"token_count": 2}]}, {}]
    assert METHODS["translate"].count_tokens(translation_pb2.TranslateResponse(translations=texts)) == 7


@pytest.mark.parametrize("task", RESPONSES)
def test_outputs(task: str) -> None:
    message, outputs = RESPONSES[task]
    target = NativeTarget(Settings(), RequestSpec(task=task))
    assert target.read(message.SerializeToString()) == outputs
