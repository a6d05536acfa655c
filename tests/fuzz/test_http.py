"""Malformed JSON on every route of the gateway: a real server answers with an error of the caller, in one line."""

import base64
import copy
import http.client
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from triptych_embedded.request import embedded_repository

from ..service.support.in_process import LocalServer, local_server
from ..service.support.processes import PATIENCE_SECONDS
from .messages import FLOATS, IMAGES, SMALL, WORDS

FEW, MANY = 300, 10_000
IMAGE = base64.b64encode(IMAGES[0]).decode()
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TEXT = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["[MASK]"]}
SAMPLING = {"max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "stop": ["a"], "seed": 1, "n": 2, "stream": False}
CHAT = {"messages": [{"role": "user", "content": "a"}], "logprobs": True, "top_logprobs": 2}
BEAMS = {"num_beams": 2, "max_length": 5, "length_penalty": 1.0, "no_repeat_ngram_size": 2}
VALID: list[tuple[str, dict[str, Any]]] = [
    ("/translate", {"q": ["a", "b"], "source": "auto", "target": "de", "format": "text", "alternatives": 2}),
    ("/detect", {"q": "Good morning."}),
    ("/v2/translate", {"text": ["a"], "source_lang": "EN", "target_lang": "DE", "tag_handling": "html"}),
    ("/v1/embeddings", {"input": ["a"], "model": "bert-en", "encoding_format": "base64", "dimensions": 9}),
    ("/v1/completions", {"prompt": ["a"], "model": "gpt-en", "logprobs": 2, "echo": True, **SAMPLING}),
    ("/v1/chat/completions", {"model": "nobody", "response_format": {"type": "json_object"}, **CHAT, **SAMPLING}),
    ("/v1/completions", {"prompt": "a", "model": "gpt-en", "structured_outputs": {"json": SCHEMA}, **SAMPLING}),
    ("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True}),
    ("/embed", {"inputs": ["a"], "normalize": True, "truncate": True, "model": "bert-en"}),
    ("/predict", {"inputs": [["a", "b"]], "raw_scores": True}),
    ("/models/bert-en", {"inputs": "a [MASK]", "parameters": {"top_k": 2, "targets": ["a"]}}),
    ("/models/en-de", {"inputs": "a", "parameters": {"tgt_lang": "de", "generate_parameters": BEAMS}}),
    ("/models/gpt-en", {"inputs": "a", "parameters": {"max_new_tokens": 3, "grammar": {"type": "regex", "value": "a+"}}}),
    ("/models/vit-cifar10", {"inputs": IMAGE, "parameters": {"top_k": 2}}),
    ("/models/bert-en/pipeline/sentence-similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
    ("/models/nobody/pipeline/zero-shot-classification", {"inputs": "a", "parameters": {"candidate_labels": ["b"]}}),
    ("/models/nobody/pipeline/question-answering", {"inputs": {"question": "a", "context": "b"}}),
    ("/v2/models/en-de/infer", {"inputs": [TEXT], "parameters": {"beam_size": 2}, "outputs": [{"name": "translated_text"}]}),
    ("/v2/models/bert-en/infer", {"id": "1", "inputs": [TEXT], "parameters": {"top_k": 2}}),
    ("/v2/models/gpt-en/infer", {"inputs": [TEXT], "parameters": {"max_tokens": 3, "n": 2}}),
    ("/triptych.v1.TranslationService/Translate", {"contents": ["a"], "options": {"beamSize": 2, "returnScores": True}}),
    ("/triptych.v1.TextGenerationService/Generate", {"prompts": ["a"], "maxTokens": 3, "regex": "a+", "model": "gpt-en"}),
    ("/triptych.v1.EmbeddingService/EmbedText", {"contents": ["a"], "pooling": "POOLING_CLS", "normalize": True}),
    ("/triptych.v1.ImageClassificationService/ClassifyImage", {"images": [IMAGE], "topK": 2}),
]
NUMBERS = (*SMALL, *FLOATS, -1, 2**31, 2**64, 10**30)
TEXTS = (*(word for word in WORDS if word.isprintable()), "\ud800", "1", "true", "x" * 20_000)


def some_value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(8 if depth < 3 else 5)
    if kind == 0:
        return draw.choice((None, True, False))
    if kind < 3:
        return draw.choice(NUMBERS)
    if kind < 5:
        return draw.choice(TEXTS)
    values = [some_value(draw, depth + 1) for _ in range(draw.randrange(3))]
    return values if kind < 7 else {draw.choice(TEXTS): value for value in values}


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every object or list with each of its keys or indexes."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()):
        yield value, key
        yield from places_in(inner)


def changed(draw: random.Random, body: dict[str, Any]) -> Any:
    """Change, remove or add up to three members."""
    body = copy.deepcopy(body)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if not (places := list(places_in(body))):
            break
        holder, key = draw.choice(places)
        match draw.randrange(4):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[draw.choice(TEXTS)] = some_value(draw)
            case _:
                holder[key] = some_value(draw)
    return body


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with local_server(embedded_repository(), "--http-port", "0") as server:
        yield server


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_malformed_json(server: LocalServer, count: int) -> None:
    draw, port = random.Random(count), server.server.http_port
    assert port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    for _ in range(count):
        path, body = draw.choice(VALID)
        data = json.dumps(changed(draw, body)).encode()
        connection.request("POST", path, data, {"content-type": "application/json"})
        with connection.getresponse() as response:
            answer, kind = response.read(), response.headers["content-type"]
            told = path, data[:1_000], response.status, answer[:1_000]
            assert response.status < 500, told
        if kind.startswith("application/json"):
            json.loads(answer, parse_constant=pytest.fail)
            assert response.status == 200 or (len(answer) < 2_000 and b"\\n" not in answer), told
    assert "Traceback" not in server.log, server.log


@pytest.mark.parametrize(("path", "body"), VALID, ids=lambda one: one if isinstance(one, str) else "")
def test_unchanged_json_is_valid(server: LocalServer, path: str, body: dict[str, Any]) -> None:
    """Nearly valid requests are made of valid ones; some need a model that is not embedded."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server.http_port or 0, timeout=PATIENCE_SECONDS)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    with connection.getresponse() as response:
        assert response.status in (200, 404), response.read()
