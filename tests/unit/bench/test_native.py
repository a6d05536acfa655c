"""Requests of Triptych's own services; tests/service compares the outputs of both protocols."""

from typing import Any

import pytest

from triptych.v1 import translation_pb2
from triptych_bench.native import METHODS, NativeTarget
from triptych_bench.target import RequestSpec, Sample, TargetError
from triptych_bench.tasks import TASKS
from triptych_client.connection import Settings

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


def test_methods_streams_and_options() -> None:
    assert set(METHODS) == set(TASKS) - {"infer"}
    target = NativeTarget(Settings(), RequestSpec(task="translate", stream=True))
    assert translation_pb2.TranslateStreamRequest.FromString(target.prepare([Sample("a")])).contents == ["a"]
    target = NativeTarget(Settings(), RequestSpec(task="translate", options={"beam_size": -1}))
    with pytest.raises(TargetError, match="beam_size is -1, must be 0 or more"):
        target.prepare([Sample("a")])
    texts = [{"hypotheses": [{"token_count": 5}, {"token_count": 7}]}, {"hypotheses": [{"token_count": 2}]}, {}]
    assert METHODS["translate"].count_tokens(translation_pb2.TranslateResponse(translations=texts)) == 7


@pytest.mark.parametrize(("task", "inputs", "options", "text"), REQUESTS)
def test_requests(task: str, inputs: list[Any], options: dict[str, Any], text: str) -> None:
    target = NativeTarget(Settings(), RequestSpec(task=task, model="m", version="2", options=options))
    raw = target.prepare([Sample(data) for data in inputs])
    assert " ".join(str(METHODS[task].task.request.FromString(raw)).split()) == text
