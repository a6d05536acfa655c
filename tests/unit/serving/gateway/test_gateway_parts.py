"""The gateway's parts without a port: members of requests, stored documents, tensors, and direct calls."""

import asyncio
import codecs
import errno
import gc
import json
import math
import threading
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import numpy as np
import pytest
from google.protobuf import json_format
from langcodes import Language

from triptych.inference import open_inference_pb2 as pb
from triptych.v1 import model_pb2, text_generation_pb2, translation_pb2
from triptych_serving.gateway import deepl, messages, tei
from triptych_serving.gateway.call import HttpCall, Json, parse_form, parse_object, peer_of
from triptych_serving.gateway.connect import parse
from triptych_serving.gateway.language_detection import TAG
from triptych_serving.gateway.messages import fault_in, to_dict, to_json
from triptych_serving.gateway.open_inference import request_from, response_to
from triptych_serving.gateway.openai import Answer, _events, error_body, tool_fields
from triptych_serving.gateway.stored_documents import KEEP_SECONDS, DocumentFolder, StoredDocuments
from triptych_serving.gateway.translation import TranslatedDocument, language_names, translate_document
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.rpc.event_loop import Offload
from triptych_serving.rpc.limits import MessageLimit

from ..calls import in_loop


@pytest.mark.parametrize(
    ("value", "kind", "problem"),
    [
        (1, str, "name: int 1, must be a string"),
        (True, int, "name: bool True, must be an integer"),
        ("1", int, "name: str '1', must be an integer"),
        (None, str, "name: missing, must be a string"),
        ([], dict, "name: list [], must be an object"),
        (-1, int, "name: -1 is out of range, must be from 0 to 4,294,967,295"),
        (float("inf"), float, "name: float inf, must be a finite number"),
        (2**40, int, "name: 1099511627776 is out of range, must be from 0 to 4,294,967,295"),
    ],
)
def test_members_of_a_wrong_type_are_rejected(value: object, kind: type, problem: str) -> None:
    with pytest.raises(RpcError, match=f"^{problem.replace('[', '.').replace(']', '.')}$"):
        Json(name=value).take("name", kind)


@pytest.mark.parametrize("holder", ["function", ""])
def test_calls_may_be_allowed_of_some_functions(holder: str) -> None:
    """`holder` is the member that describes a function: there is one in chats, and none in the Responses API."""

    def fields(mode: str, *names: str) -> tuple[list[str], str]:
        functions = [{"name": name} for name in ("f", "g", "h")]
        allowed = {"mode": mode, "tools": [_held({"name": name}, holder) for name in names]}
        choice = {"type": "allowed_tools", **({"allowed_tools": allowed} if holder else allowed)}
        found = tool_fields(Json(tools=[_held(each, holder) for each in functions], tool_choice=choice), holder)
        return [tool.name for tool in found["tools"]], found["tool_choice"]

    assert fields("required", "h", "f") == (["f", "h"], "required")
    assert fields("auto", "g") == (["g"], "auto")
    place = "tool_choice.allowed_tools" if holder else "tool_choice"
    with pytest.raises(RpcError, match=f"^{place}.mode: 'none' is not auto or required$"):
        fields("none", "g")
    with pytest.raises(RpcError, match=f"^{place}.tools: 'x' is not the name of one of the tools$"):
        fields("auto", "g", "x")


def _held(function: dict[str, Any], holder: str) -> dict[str, Any]:
    return {"type": "function", **({holder: function} if holder else function)}


@in_loop
async def test_models_without_a_longest_text_are_described_behind_those_that_embed_or_label() -> None:
    async def ready_models() -> list[model_pb2.Model]:
        services = [f"triptych.v1.{name}Service" for name in ("ImageClassification", "TextClassification")]
        classifier = model_pb2.Model(name="b", task="text-classification", services=services[1:], max_source_tokens=64)
        return [model_pb2.Model(name="a", task="image-classification", services=services[:1]), classifier]

    info: Any = await tei.info(cast(HttpCall, SimpleNamespace(ready_models=ready_models)))
    assert (info["model_id"], info["max_input_length"]) == ("b", 64)
    assert [(one["model_id"], one["max_input_length"]) for one in info["models"]] == [("b", 64), ("a", None)]


def test_integers_of_64_bits_and_any_size_are_taken_as_far_as_messages_hold_them() -> None:
    assert Json(seed=2**64 - 1).take("seed", int) == 2**64 - 1
    assert Json(temperature=-(10**400)).take("temperature", float) == -(2**32 - 1)
    for seed in (-1, 2**64):
        with pytest.raises(RpcError, match=f"seed: {seed} is out of range, must be from 0 to 18,446,744,073,709,551,615"):
            Json(seed=seed).take("seed", int)


def test_large_values_are_quoted_without_making_all_of_their_text() -> None:
    tracemalloc.start()
    with pytest.raises(RpcError, match=r"source: list .'a', 'a', "):
        Json(source=["a"] * 100_000).take("source", str)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_members_have_defaults() -> None:
    assert Json().take("name", str, "x") == "x"
    assert Json(name=["a"]).take_texts("name") == (["a"], True)
    with pytest.raises(RpcError, match="name: must be a string or a list of strings, and not empty"):
        Json(name=[]).take_texts("name")
    with pytest.raises(RpcError, match="formality: 'more' is not supported"):
        Json(formality="more").refuse({"formality": ("default",)})


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"[]", b"nul", b"[" * 100_000, b"1" * 10_000, b"\xff", b'{"a": Infinit}', b'{"a": "\\uD800"}'),
        *(b'{"a": "\xed\xa0\x80"}', '{"a": "\\ud800"}'.encode("utf-16")),
    ],
)
def test_bodies_that_are_no_object_are_rejected(data: bytes) -> None:
    with pytest.raises(RpcError, match="body: "):
        parse_object(data, 1_000)


def test_json_with_many_values_is_rejected_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (30_000, 30_001):
        with pytest.raises(RpcError) if count > 30_000 else nullcontext():
            parse_object(b'{"a": [' + b"1," * (count - 3) + b"1]}", 30_000)
    assert parse_object(b'{"a": ["1,2", "\\",[{", 3]}', 9)["a"] == ["1,2", '",[{', 3]  # separators in strings do not count
    for data in (b'{"a": ["1", "2", "3", 4, 5]}', b'{"a": [[], [], [], [], []]}', b"," * 10, b'"' * 20):
        with pytest.raises(RpcError, match="body: more than 9 strings, commas and brackets"):
            parse_object(data, 9)
    monkeypatch.setattr(json, "loads", pytest.fail)
    with pytest.raises(RpcError, match="body: more than 100 "):
        parse_object(b'{"a": [' + b"[]," * 1_000 + b"[]]}", 100)


@pytest.mark.parametrize(
    ("codec", "data", "problem"),
    [
        ("proto", b"\x0a\0" * 6, r"contents: at least 6 elements in one request, at most 5 can wait \(--max-queue-rows\)"),
        ("proto", b"\x12\0" * 161, "request: more than 160 fields in one message; send each once"),
        ("json", b'{"contents": ["", "", "", "", "", ""]}', "body: more than 9 strings"),
        ("proto", b"\xff", "not a TranslateRequest"),
        ("json", b"[", "body: not JSON: Expecting value"),
        ("json", b"[1]", "body: must be an object"),
        ("json", b'{"model": "", "model": ""}', "body: not a TranslateRequest: .*duplicate key model"),
    ],
)
def test_messages_of_many_elements_are_rejected_before_they_are_parsed(codec: str, data: bytes, problem: str) -> None:
    message = translation_pb2.TranslateRequest()
    with pytest.raises(RpcError, match=problem):
        parse(codec, data, message, MessageLimit(elements=5), 9)
    assert not message.contents


VALUES: list[Any] = [
    [],
    {},
    "text " * 100,
    [1, 2.5, True, None],
    list(range(100)),
    {
        "a": [],
        "b": {},
        "c": [[1.5] * 4, [], [2] * 50, [[3] * 9] * 3],
        "ä": {"d": [{"e": index, "f": ["g"] * index} for index in range(9)]},
    },
]


def values_in(value: Any) -> int:
    """Count numbers, texts and the like."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if inner is None else sum(map(values_in, inner))


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_large_json_is_made_in_pieces(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other thread runs while a piece is made."""
    made, whole = [], messages._dumped
    monkeypatch.setattr(messages, "PIECE", 5)
    monkeypatch.setattr(messages, "_dumped", lambda part: made.append(part) or whole(part))
    assert to_json(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert max(map(values_in, made)) <= 5
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json([*([1.0] * 20), math.nan])


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"contents": "a"}, "contents: str 'a', must be a list"),
        ({"contents": ["a", 5]}, "contents[1]: int 5, must be a string"),
        ({"contents": [None]}, "contents[0]: NoneType None, must be a string"),
        ({"Model": "a"}, "Model: there is no such field; the fields are contents, mimeType, sourceLanguageCode,"),
        ({"options": 0.5}, "options: float 0.5, must be an object"),
        ({"options": {"beamSize": "x" * 10_000}}, f"options.beamSize: str '{'x' * 39}, must be an integer from 0 to 4,294"),
        ({"options": {"beam_size": 1.5}}, "options.beam_size: float 1.5, must be an integer from"),
        ({"options": {"beamSize": True}}, "options.beamSize: bool True, must be an integer from"),
        ({"options": {"beamSize": -1}}, "options.beamSize: int -1, must be an integer from"),
        ({"options": {"lengthPenalty": math.inf}}, "options.lengthPenalty: float inf, must be a finite number"),
        ({"options": {"returnScores": 1}}, "options.returnScores: int 1, must be true or false"),
        ({"options": {"splitSentences": "ON"}}, "options.splitSentences: str 'ON', must be one of SPLIT_SENTENCES_UNSPECIF"),
    ],
)
def test_errors_in_json_name_field_value_and_type(members: dict[str, Any], fault: str) -> None:
    with pytest.raises(RpcError) as caught:
        parse("json", json.dumps(members).encode(), translation_pb2.TranslateRequest(), MessageLimit(), 99)
    assert caught.value.message.startswith(fault)
    usual = {"contents": ["a"], "options": {"beamSize": 2.0, "seed": "5", "lengthPenalty": "NaN", "splitSentences": 1}}
    assert fault_in(usual, translation_pb2.TranslateRequest.DESCRIPTOR) == ""


def test_messages_may_begin_with_a_byte_order_mark() -> None:
    message = translation_pb2.TranslateRequest()
    parse("json", codecs.BOM_UTF8 + b'{"contents": ["a"]}', message, MessageLimit(), 9)
    assert message.contents == ["a"]


def test_forms_that_are_malformed_or_have_many_fields_are_rejected() -> None:
    assert parse_form(b"q=a+b&api_key=") == {"q": "a b", "api_key": ""}
    assert parse_form(b"text=a&target_lang=DE&text=b") == {"text": ["a", "b"], "target_lang": "DE"}
    assert parse_form(b"q=%C3%a4%2B%zz%4&x&&y=&z==") == {"q": "ä+%zz%4", "x": "", "y": "", "z": "="}
    for data in (b"a=1&" * 1_000, b"a=\xff", b"a=%ED%A0%80"):
        with pytest.raises(RpcError, match="not a form"):
            parse_form(data)


def test_forms_take_little_memory() -> None:
    tracemalloc.start()
    assert len(parse_form(b"q=" + b"%41" * 200_000)["q"]) == 200_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_languages_are_named_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def display_name(_: Language) -> str:
        threads.append(threading.current_thread())
        return "German"

    monkeypatch.setattr(Language, "display_name", display_name)
    with ThreadPoolExecutor(1) as pool:
        call: Any = SimpleNamespace(parts=SimpleNamespace(threads=Offload(pool)))
        assert asyncio.run(language_names(call, ["de"])) == {"de": "German"}
    assert threads[0] is not threading.main_thread()


def test_tags_are_found_in_linear_time() -> None:
    assert TAG.sub(" ", "a < b <i class='x'>c</i>") == "a < b  c "
    assert TAG.sub(" ", "<" * 200_000) == "<" * 200_000  # takes minutes if it is quadratic


def test_peers_are_named_as_grpc_names_them() -> None:
    assert [peer_of(("1.2.3.4", 5)), peer_of(("::1", 5)), peer_of(None)] == ["ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5", "unix:"]


@in_loop
async def test_characters_are_counted_unless_a_document_is_compressed() -> None:
    async def stream(*_: object) -> AsyncIterator[translation_pb2.TranslateDocumentResponse]:
        yield translation_pb2.TranslateDocumentResponse(chunk=b"x")

    call: Any = SimpleNamespace(stream=stream)
    for content, characters in (("PK café".encode(), 7), (b"PK\x03\x04\x14", 0)):
        assert (await translate_document(call, content, translation_pb2.DocumentConfig())).characters == characters


@in_loop
async def test_stored_documents_are_dropped_by_age_and_size() -> None:
    now = 0.0
    documents = StoredDocuments(10, lambda: now)

    async def translated(size: int) -> TranslatedDocument:
        return TranslatedDocument(b"x" * size, "text/plain", size)

    first, second = documents.add("a", translated(6)), documents.add("b", translated(4))
    await asyncio.gather(first.work, second.work)
    assert (await documents.get(first.id)).response().body == b"x" * 6
    third = documents.add("c", translated(1))
    await third.work
    with pytest.raises(RpcError, match="unknown or was dropped"):
        await documents.get(first.id)
    now = KEEP_SECONDS
    with pytest.raises(RpcError, match="unknown or was dropped"):
        await documents.get(second.id)
    running = documents.add("d", asyncio.Event().wait())  # type: ignore[arg-type]  # never ends
    now = 3 * KEEP_SECONDS
    with pytest.raises(RpcError, match="not translated yet"):
        (await documents.get(running.id)).response()
    documents.close()
    await asyncio.wait((running.work,))
    assert running.work.cancelled()


@in_loop
async def test_documents_are_known_to_every_process(tmp_path: Path) -> None:
    now = 0.0
    one, other = (StoredDocuments(100, lambda: now, DocumentFolder(tmp_path)) for _ in range(2))
    go_on = asyncio.Event()

    async def translated(content: bytes) -> TranslatedDocument:
        await go_on.wait()
        if not content:
            raise RpcError.of(grpc.StatusCode.INVALID_ARGUMENT, "file_name: not a supported document")
        return TranslatedDocument(content, "text/plain", 7)

    good, bad = one.add("ä.txt", translated(b"x\ny")), one.add("b", translated(b""))
    assert not (await other.get(good.id)).work.done()
    go_on.set()
    await asyncio.wait((good.work, bad.work))
    found = await other.get(good.id)
    assert (found.key, found.name, found.work.result()) == (good.key, "ä.txt", TranslatedDocument(b"x\ny", "text/plain", 7))
    error, same = bad.work.exception(), (await other.get(bad.id)).work.exception()
    assert isinstance(same, RpcError)
    assert isinstance(error, RpcError)
    assert same.status == error.status
    other.remove(good.id)
    for documents in (one, other):  # fetched once, wherever
        with pytest.raises(RpcError, match="unknown or was dropped"):
            await documents.get(good.id)
    for unknown in ("..", "x" * 32, "../" + bad.id):
        with pytest.raises(RpcError, match="unknown or was dropped"):
            await other.get(unknown)
    now = KEEP_SECONDS
    with pytest.raises(RpcError, match="unknown or was dropped"):
        await other.get(bad.id)
    one.close()
    assert list(tmp_path.iterdir()) == []


@in_loop
async def test_documents_that_another_process_delivered_take_no_room(tmp_path: Path) -> None:
    async def translated(size: int) -> TranslatedDocument:
        return TranslatedDocument(b"x" * size, "text/plain", 7)

    one, other = (StoredDocuments(100, folder=DocumentFolder(tmp_path)) for _ in range(2))
    first, second, third = (one.add("a", translated(size)) for size in (10, 80, 80))
    await asyncio.wait((first.work, second.work, third.work))
    other.remove(second.id)
    assert await one.get(first.id) is first
    assert await one.get(third.id) is third


@in_loop
async def test_documents_without_room_in_their_folder_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, room = Path.write_bytes, [0]

    def write_in_room(path: Path, data: bytes) -> int:
        if len(data) > room[0]:
            write(path, data[: room[0]])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, data)

    async def translated() -> TranslatedDocument:
        return TranslatedDocument(b"x" * 5_000, "text/plain", 7)

    monkeypatch.setattr(Path, "write_bytes", write_in_room)
    one, other = (StoredDocuments(100, folder=DocumentFolder(tmp_path)) for _ in range(2))
    with pytest.raises(RpcError, match="cannot write temporary files: No space left on device; a document needs a folder"):
        one.add("a", translated())
    assert list(tmp_path.iterdir()) == []
    room[0] = 1_000
    document = one.add("a", translated())
    await asyncio.wait((document.work,))
    for documents in (one, other):  # nobody waits for it without end
        with pytest.raises(RpcError, match="No space left on device"):
            (await documents.get(document.id)).work.result()
    assert [file.name for file in tmp_path.iterdir()] == [document.id]
    caplog.clear()
    await other.get(document.id)
    gc.collect()
    assert caplog.messages == []  # nobody asked for its error


@in_loop
async def test_a_document_that_fails_late_has_an_error_with_the_names_of_the_api() -> None:
    async def fail() -> TranslatedDocument:
        raise RpcError.of(grpc.StatusCode.INVALID_ARGUMENT, "file_name: not a supported document")

    documents = StoredDocuments(10)
    document = documents.add("a", fail())
    await asyncio.wait((document.work,))
    parts, request = SimpleNamespace(documents=documents), SimpleNamespace(path_params={"id": document.id})

    async def read() -> Json:
        return Json(document_key=document.key)

    call: Any = SimpleNamespace(json=read, parts=parts, request=request)
    found = await deepl.status(call)
    assert (found["status"], found["error_message"]) == ("error", "file: not a supported document")


def test_tensors_are_json_or_follow_it() -> None:
    head = b'{"id": "7", "parameters": {"top_k": 2, "binary_data_output": true}, "inputs": [%s], "outputs": [%s]}'
    text = b'{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["\xc3\xa4"]}'
    raw = b'{"name": "other", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}'
    outputs = b'{"name": "a", "parameters": {"binary_data": false}}, {"name": "b"}'
    request, wanted = request_from(head % (text + b"," + raw, outputs), b"\1\0\0\0b", "m", "1")
    assert list(request.raw_input_contents) == [b"\2\0\0\0\xc3\xa4", b"\1\0\0\0b"]
    assert request.parameters["top_k"].int64_param == 2
    assert [one.name for one in request.outputs] == ["a", "b"]
    response = pb.ModelInferResponse(model_name="m", raw_output_contents=[np.float32([1, 2]).tobytes(), b"\1\0\0\0x"])
    response.outputs.add(name="a", datatype="FP32", shape=[2])
    response.outputs.add(name="b", datatype="BYTES", shape=[1])
    found = response_to(response, wanted)
    size = int(found.headers["inference-header-content-length"])
    assert bytes(found.body)[size:] == b"\1\0\0\0x"
    assert b'"data":[1.0,2.0]' in bytes(found.body)[:size]


@pytest.mark.parametrize(
    ("datatype", "raw"),
    [("FP32", np.float32([1, np.inf]).tobytes()), ("FP64", np.array([np.nan, 1]).tobytes()), ("BYTES", b"\1\0\0\0\xff" * 2)],
)
def test_values_that_json_does_not_have_are_sent_in_binary_only(datatype: str, raw: bytes) -> None:
    response = pb.ModelInferResponse(raw_output_contents=[raw])
    response.outputs.add(name="a", datatype=datatype, shape=[2])
    with pytest.raises(RpcError, match=r"^outputs: a has .*, which JSON cannot have; request it with the parameter"):
        response_to(response, lambda _: False)
    assert bytes(response_to(response, lambda _: True).body).endswith(raw)


def test_parameters_have_up_to_64_bits() -> None:
    request, _ = request_from(b'{"inputs": [], "parameters": {"a": 18446744073709551615, "b": -1, "c": true}}', b"", "m")
    parameters = request.parameters
    assert (parameters["a"].uint64_param, parameters["b"].int64_param, parameters["c"].bool_param) == (2**64 - 1, -1, True)
    for value in ("18446744073709551616", '["x"]', "null"):
        with pytest.raises(RpcError, match=r"^parameters\.a: must be a string, a boolean, or a number of at most 64 bits"):
            request_from(b'{"inputs": [], "parameters": {"a": %s}}' % value.encode(), b"", "m")


def test_nested_values_take_linear_time() -> None:
    def raw(data: str) -> bytes:
        body = f'{{"inputs": [{{"name": "a", "shape": [4], "datatype": "INT32", "data": {data}}}]}}'
        return request_from(body.encode(), b"", "m")[0].raw_input_contents[0]

    assert raw("[1, [[2], 3], [], 4]") == np.array([1, 2, 3, 4], np.int32).tobytes()
    values, depth = 100_000, 900
    assert len(raw("[" * depth + ",".join("1" * values) + "]" * depth)) == 4 * values


TENSOR = {"name": "a", "datatype": "BYTES", "shape": [1]}


@pytest.mark.parametrize(
    ("tensor", "more", "problem"),
    [
        ({"name": None}, {}, "name: missing"),
        ({"shape": [-1], "data": []}, {}, "a: shape: must be a list of sizes"),
        ({"shape": [True], "data": ["x"]}, {}, "a: shape: must be a list of sizes"),
        ({}, {}, "data: missing"),
        ({"data": [1]}, {}, "not values of the datatype"),
        ({"datatype": "FP16", "data": [1e10]}, {}, "not values of the datatype"),
        ({"datatype": "FP99", "data": [1]}, {}, "not values of the datatype"),
        ({"parameters": {"binary_data_size": 9}}, {}, "bytes follow"),
        ({"data": ["x"], "parameters": {"binary_data_size": 0}}, {}, "a: it has data and binary_data_size, send one of them"),
        ({"data": ["x"]}, {}, "after the last input"),
        ({}, {"parameters": {"binary_data_output": "false"}}, "parameters.binary_data_output: 'false', must be true or false"),
        (
            {"parameters": {"binary_data_size": 1}},
            {"outputs": [{"name": "b", "parameters": {"binary_data": 1}}]},
            "parameters.binary_data: 1, must be true or false",
        ),
    ],
)
def test_malformed_tensors_are_rejected(tensor: dict[str, Any], more: dict[str, Any], problem: str) -> None:
    with pytest.raises(RpcError, match=problem):
        request_from(json.dumps({"inputs": [{**TENSOR, **tensor}], **more}).encode(), b"x", "m")


def test_messages_are_protobuf_s_json() -> None:
    response = translation_pb2.TranslateResponse(model="m", timing={"queue_seconds": 0.5})
    hypothesis = response.translations.add(translated_text="ä").hypotheses.add(text="ä", score=-0.25, finish_reason=1)
    hypothesis.alignment.add(source_weights=[0.5, 0.25])
    statistics = pb.ModelStatisticsResponse()
    statistics.model_stats.add(name="m", inference_count=2**40).response_stats["0"].success.ns = 3
    config = translation_pb2.TranslateDocumentRequest(config={"total_bytes": 0, "mime_type": "x"})
    chunk = translation_pb2.TranslateDocumentRequest(chunk=b"\xff\x00")
    score = translation_pb2.TranslationScore(log_probability=float("-inf"), token_log_probabilities=[float("nan"), 1.0])
    for message in (response, statistics, config, chunk, score):
        assert to_dict(message) == json_format.MessageToDict(message)
    [plain] = to_dict(statistics, plain=True)["model_stats"]
    assert (plain["inference_count"], plain["execution_count"], plain["memory_usage"]) == (2**40, 0, [])
    assert "inference_stats" not in plain  # it has presence


def test_the_best_of_tokens_with_equal_texts_has_its_probability() -> None:
    top = [text_generation_pb2.TokenLogprob(token="\ufffd", logprob=-number) for number in (1, 2, 3)]
    token = text_generation_pb2.TokenLogprob(token="\ufffd", logprob=-2, bytes=b"\xe2", top=top)
    found = Answer(chat=False, model="gpt", choices=1).log_probabilities(0, [token])
    assert found is not None
    assert found["top_logprobs"] == [{"\ufffd": -1}]


@in_loop
async def test_late_errors_of_a_stream_name_fields_as_the_request_does() -> None:
    async def fail() -> AsyncGenerator[Any]:
        raise RpcError.of(grpc.StatusCode.INVALID_ARGUMENT, "json_schema: too slow")
        yield

    answer = Answer(False, "gpt", 1, {"json_schema": "response_format"})
    error, _ = [event async for event in _events(answer, text_generation_pb2.GenerateStreamResponse(), fail(), False)]
    assert b"response_format: too slow" in error


@in_loop
async def test_an_event_is_one_line_for_clients_that_know_other_line_breaks() -> None:
    async def end() -> AsyncGenerator[Any]:
        return
        yield

    piece = text_generation_pb2.GenerationPiece(text="a\u2028b\x85")
    first = text_generation_pb2.GenerateStreamResponse(piece=piece)
    events = [event.decode() async for event in _events(Answer(False, "gpt", 1), first, end(), False)]
    assert [len(event.splitlines()) for event in events] == [2, 2]
    assert json.loads(events[0].removeprefix("data: "))["choices"][0]["text"] == "a\u2028b\x85"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "invalid_request_error"), (413, "invalid_request_error"), (429, "rate_limit_error"), (503, "server_error")],
)
def test_openai_errors_have_a_type_by_their_status(status: int, kind: str) -> None:
    error = RpcError.of(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
    assert error_body(error, status)["error"] == {
        "message": "too much",
        "type": kind,
        "param": None,
        "code": "resource_exhausted",
    }
