"""The HTTP gateway on a real port: the clients of other servers work unchanged, and calls obey the rules of gRPC calls."""

import errno
import json
import re
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlencode
from weakref import ref

import deepl
import grpc
import numpy as np
import openai
import pytest
import tritonclient.http
from huggingface_hub import InferenceClient
from libretranslatepy import LibreTranslateAPI

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client, DecodingOptions, InvalidArgumentError, ResourceExhaustedError, TriptychClientError
from triptych_client.results import FinishReason
from triptych_documents.rules import Term
from triptych_embedded.request import embedded_repository
from triptych_serving.gateway import http_server, translation
from triptych_serving.gateway.glossaries import GlossaryFolder
from triptych_serving.gateway.options import GatewayOptions
from triptych_serving.repository import loading
from triptych_serving.rpc.direct_calls import RpcError
from triptych_serving.security.api_keys import Role, add_key
from triptych_serving.security.options import SecurityOptions
from triptych_serving.server import ServerOptions

from ..fixtures.certificates import LOCAL, Authority
from ..fixtures.encoders import png, write_cross_encoder, write_every_bundle, write_text_bundle
from ..fixtures.framed import copy_framed
from ..fixtures.toy import ENCODER_MODELS, copy_bundle, copy_pair
from .support.in_process import OPTIONS, Pace, local_server, options_of, options_of_flags, serving
from .support.processes import PATIENCE_SECONDS, eventually

TRANSLATE = "/triptych.v1.TranslationService/Translate"
STREAM = "/triptych.v1.TranslationService/TranslateStream"
TEXTS = ["Good morning.", "I have a cat."]
CHAT = [{"role": "user", "content": "Hi."}]
ORIGIN = "https://pages.example"
LIMIT = 100_000  # bytes of a message
EMPTY = {"contents": [""], "targetLanguageCode": "de"}
MULTIPART = "multipart/form-data; boundary=edge"
NINES = int("9" * 401)  # a number that no message holds


@dataclass(frozen=True)
class Served:
    """A server with a gateway."""

    port: int
    client: Client  # over gRPC

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any, Mapping[str, str]]:
        """Send JSON or bytes; return status, body (JSON where it is) and headers."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        names = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        return fetch(urllib.request.Request(f"{self.url}{path}", data, names))

    def get(self, path: str, **headers: str) -> tuple[int, Any, Mapping[str, str]]:
        return fetch(urllib.request.Request(f"{self.url}{path}", headers=headers))

    def translate(self, q: Any, source: str = "auto", target: str = "de", **more: Any) -> Any:
        """Send a request of LibreTranslate's API; return the body of the response."""
        return self.post("/translate", {"q": q, "source": source, "target": target, **more})[1]

    def refused(self, path: str, body: Any, message: str, status: int = 400, **headers: str) -> Any:
        """Check that the error of a request begins with a message; return the body of the response."""
        found, error, _ = self.post(path, body, **headers)
        text = error.get("message") or error["error"]
        text = text if isinstance(text, str) else text["message"]
        assert (found, text[: len(message)]) == (status, message)
        return error

    def send(self, data: bytes) -> bytes:
        """Send raw bytes; return what comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS) as connection:
            with suppress(ConnectionError):  # the server closes before it has read everything
                connection.sendall(data)
            received = b""
            with suppress(ConnectionError):
                while chunk := connection.recv(65_536):
                    received += chunk
            return received


def fetch(request: urllib.request.Request, context: ssl.SSLContext | None = None) -> tuple[int, Any, Mapping[str, str]]:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=context) as response:
            status, body, headers = response.status, response.read(), dict(response.headers)
    except urllib.error.HTTPError as error:
        status, body, headers = error.code, error.read(), dict(error.headers)
    is_json = headers.get("content-type", "").startswith("application/json")
    return status, json.loads(body) if is_json else body, headers


@contextmanager
def opened(options: ServerOptions, origins: tuple[str, ...] = (), glossaries: Path | None = None) -> Iterator[Served]:
    """Serve with a gateway."""
    gateway = GatewayOptions("127.0.0.1", 0, origins=origins, glossaries=glossaries)
    with serving(replace(options, gateway=gateway)) as server, Client(f"127.0.0.1:{server.port}") as client:
        assert server.http_port
        yield Served(server.http_port, client)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    options = options_of(embedded_repository())
    with opened(replace(options, limits=replace(options.limits, message_bytes=LIMIT)), (ORIGIN,)) as served:
        yield served


# ---- the Connect protocol


def test_connect_answers_as_grpc(served: Served) -> None:
    request = {"contents": TEXTS, "targetLanguageCode": "de", "options": {"beamSize": 2}}
    status, body, headers = served.post(TRANSLATE, request, x_request_id="mine")
    expected = [
        one.text for one in served.client.translate_many(TEXTS, target_language="de", options=DecodingOptions(beam_size=2))
    ]
    assert (status, [one["translatedText"] for one in body["translations"]]) == (200, expected)
    assert headers["x-request-id"] == "mine"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "x-accel-buffering" not in headers


def test_connect_streams(served: Served) -> None:
    message = json.dumps({"contents": TEXTS[:1], "targetLanguageCode": "de"}).encode()
    envelope = struct.pack(">BI", 0, len(message)) + message
    status, body, headers = served.post(STREAM, envelope, content_type="application/connect+json")
    events = list(envelopes(body))
    pieces = "".join(event["piece"]["text"] for flags, event in events if "piece" in event)
    assert (status, pieces) == (200, served.client.translate(TEXTS[0], target_language="de").text)
    assert events[-1] == (2, {})
    assert headers["x-accel-buffering"] == "no"  # for nginx
    status, body, _ = served.post(STREAM, envelope.replace(b'"de"', b'"xx"'), content_type="application/connect+json")
    [(flags, end)] = envelopes(body)
    assert (status, flags, end["error"]["code"]) == (200, 2, "not_found")
    compressed, documents = b"\1" + envelope[1:], STREAM.replace("TranslateStream", "TranslateDocument")
    for path, data, message in (
        (STREAM, compressed, "body: compressed messages"),
        (STREAM, b"a", "body: no message"),
        (STREAM, b" " * 4 * LIMIT, "body: larger than"),
        (documents, envelope, "triptych.v1.TranslationService/TranslateDocument reads a stream of requests: use gRPC"),
    ):  # clients of streams read no other body
        status, body, _ = served.post(path, data, content_type="application/connect+json")
        [(flags, end)] = envelopes(body)
        assert (status, flags) == (200, 2)
        assert end["error"]["message"].startswith(message)


def envelopes(body: bytes) -> Iterator[tuple[int, Any]]:
    while body:
        flags, size = struct.unpack_from(">BI", body)
        yield flags, json.loads(body[5 : 5 + size])
        body = body[5 + size :]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        (TRANSLATE, EMPTY, {}, 400, "invalid_argument"),
        (TRANSLATE, {"contents": TEXTS, "targetLanguageCode": "xx"}, {}, 404, "not_found"),
        (TRANSLATE, {"content": TEXTS}, {}, 400, "invalid_argument"),
        (TRANSLATE, {"contents": "\ud800"}, {}, 400, "invalid_argument"),
        (TRANSLATE, {"contents": ["a"], "options": {"lengthPenalty": NINES}}, {}, 400, "invalid_argument"),
        (TRANSLATE, b"{", {}, 400, "invalid_argument"),
        (TRANSLATE, b"[" * 50_000, {}, 400, "invalid_argument"),
        (TRANSLATE, b"\xff", {}, 400, "invalid_argument"),
        (TRANSLATE, b" " * 3 * LIMIT, {}, 413, "resource_exhausted"),
        (TRANSLATE, {"contents": ["a" * LIMIT]}, {}, 413, "resource_exhausted"),
        (TRANSLATE, {"contents": TEXTS}, {"connect_timeout_ms": "0"}, 504, "deadline_exceeded"),
        (TRANSLATE, {"contents": TEXTS}, {"connect_timeout_ms": "1s"}, 400, "invalid_argument"),
        (TRANSLATE, {"contents": TEXTS}, {"content_encoding": "gzip"}, 501, "unimplemented"),
        (TRANSLATE, {"contents": TEXTS}, {"content_type": "text/plain"}, 400, "invalid_argument"),
        ("/triptych.v1.TranslationService/TranslateDocument", {}, {}, 501, "unimplemented"),
        ("/triptych.v1.TranslationService/Transliterate", {}, {}, 501, "unimplemented"),
    ],
)
def test_connect_reports_errors(served: Served, path: str, body: Any, headers: dict[str, str], status: int, code: str) -> None:
    found, error, _ = served.post(path, body, **headers)
    assert (found, error["code"]) == (status, code)
    assert error["message"]
    [violation] = [one["debug"]["fieldViolations"][0] for one in error["details"] if one["type"].endswith("BadRequest")] or [{}]
    assert violation.get("field") == ("contents[0]" if body == EMPTY else None)


# ---- clients of other servers


def test_libretranslate_client(served: Served) -> None:
    client = LibreTranslateAPI(served.url)
    assert client.translate(TEXTS[1], "en", "de") == served.client.translate(TEXTS[1], target_language="de").text
    assert client.languages() == [
        {"code": "de", "name": "German", "targets": []},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    assert [client.detect(text)[0]["language"] for text in ("Guten Morgen.", "Where are you?")] == ["de", "en"]
    settings = served.get("/frontend/settings")[1]
    assert (settings["keyRequired"], {".docx", ".srt"} <= set(settings["supportedFilesFormat"])) == (False, True)


def test_libretranslate_takes_parameters_of_the_url(served: Served) -> None:
    in_url, in_form = urlencode({"q": TEXTS[0], "source": "en", "target": "xx"}), b"target=de"
    found = fetch(urllib.request.Request(f"{served.url}/translate?{in_url}", in_form))[1]
    assert found == {"translatedText": served.client.translate(TEXTS[0], target_language="de").text}


def test_libretranslate_alternatives_and_html(served: Served) -> None:
    body = served.translate(TEXTS, alternatives=2)
    assert [len(others) for others in body["alternatives"]] == [2, 2]
    assert [one["language"] for one in body["detectedLanguage"]] == ["en", "en"]
    html = served.translate("<p>I have <b>a cat</b>.</p>", "en", format="html")["translatedText"]
    assert (html[:3], "<b>" in html) == ("<p>", True)
    texts = ["Good morning.", "Thank you.", "I have a cat.", "Where is the station?", "It is late.", "Come in.", "I am hungry."]
    pieces = [f"<p>{text}</p>" for text in texts]  # more than are translated at a time
    body = served.translate(pieces, "en", format="html")
    assert body["translatedText"] == [f"<p>{one.text}</p>" for one in served.client.translate_many(texts)]


def test_requests_of_applications_to_libretranslate(served: Served) -> None:
    """Rocket.Chat sends the lines of a message, LibreTranslate's page asks for alternatives of HTML; Dialect asks who it is."""
    lines = served.translate(["Good morning.", "", "Thank you.", " ", "###", "{} | ^_^"], format="text")
    assert lines["translatedText"] == ["Guten Morgen.", "", "Danke.", " ", "###", "{} | ^_^"]
    assert len(lines["detectedLanguage"]) == 6
    body = served.translate(["<p>Thank you.</p>", ""], "en", format="html", alternatives=3, api_key="")
    assert body == {"translatedText": ["<p>Danke.</p>", ""], "alternatives": [[], []]}
    assert served.translate("Thank you.", "en", format="") == {"translatedText": "Danke."}
    assert served.get("/spec")[1]["info"]["title"] == "LibreTranslate"


@pytest.mark.parametrize("more", [{"documents": 2}, {"requests_per_client": 2}], ids=["documents", "client"])
def test_pieces_of_html_wait_for_each_other(more: dict[str, int]) -> None:
    """Pieces of one request and of several at once are translated, however few documents may be."""
    with opened(replace(OPTIONS, limits=replace(OPTIONS.limits, **more))) as served, ThreadPoolExecutor(3) as threads:
        pieces, count = [f"<p>{text}</p>" for text in TEXTS * 3], 1 if "requests_per_client" in more else 3
        requests = [threads.submit(served.translate, pieces, "en", format="html") for _ in range(count)]
        assert all("translatedText" in request.result() for request in requests)


def test_a_server_without_temporary_files_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_framed(tmp_path)
    with opened(options_of(tmp_path)) as served:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        monkeypatch.setattr("py3langid.langid.IDENTIFIER", None)
        message = "the server cannot write temporary files: No such file or directory; "
        body = {"q": "Guten Morgen.", "target": "nl", "source": "auto"}
        served.refused("/translate", body, f"{message}language detection", 501)
        form = multipart([("target", "nl")], "a.txt", b" " * 2_000_000)
        served.refused("/translate_file", form, f"{message}a file in a form", 501, content_type=MULTIPART)


def test_source_languages_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_framed(tmp_path)
    texts = ["Guten Morgen, wie geht es dir?", "Where is the station?", "Das ist gut."]
    with opened(options_of(tmp_path)) as served:
        libretranslate = LibreTranslateAPI(served.url)
        each = [libretranslate.translate(text, code, "nl") for text, code in zip(texts, ("de", "en", "de"), strict=True)]
        found = served.translate(texts, target="nl")
        assert found["translatedText"] == each
        assert [one["language"] for one in found["detectedLanguage"]] == ["de", "en", "de"]
        assert min(one["confidence"] for one in found["detectedLanguage"]) > 80
        error = served.translate([*texts[:2], "das " * 3000], target="nl")["error"]
        assert error.startswith("q[2]: ")  # not its number among the German texts
        found = served.translate(texts, target="nl", format="html")
        assert [one["language"] for one in found["detectedLanguage"]] == ["de", "en", "de"]
        results = deepl.DeepLClient("key", server_url=served.url).translate_text(texts, target_lang="NL")
        assert [one.detected_source_lang for one in results] == ["DE", "EN", "DE"]  # type: ignore[union-attr]
        monkeypatch.setitem(sys.modules, "py3langid", None)
        status, error, _ = served.post("/translate", {"q": texts, "target": "nl", "source": "auto"})
        assert (status, "no language detector is installed" in error["error"]) == (501, True)
        assert "translatedText" in served.translate(texts, "de", "nl")


def test_texts_in_the_language_of_the_target_stay(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["Die Kinder spielen seit zwei Stunden draußen im Garten.", TEXTS[1], "OK"]
    german = texts[0]
    wanted = [german, *(served.client.translate(text, target_language="de").text for text in texts[1:])]
    translated = partial(served.translate, texts, target="de-AT")
    found = translated(alternatives=1)
    assert [one["language"] for one in found["detectedLanguage"]] == ["de", "en", "en"]  # "OK" could be both
    assert (found["translatedText"][0], found["alternatives"][0], len(found["alternatives"][1])) == (german, [], 1)
    assert translated()["translatedText"] == wanted
    assert translated(format="html")["translatedText"] == wanted
    assert translated(source="en")["translatedText"][0] != german
    result = deepl.DeepLClient("key", server_url=served.url).translate_text(german, target_lang="DE")
    assert (result.text, result.detected_source_lang) == (german, "DE")  # type: ignore[union-attr]
    monkeypatch.setitem(sys.modules, "py3langid", None)
    assert [one["confidence"] for one in translated()["detectedLanguage"]] == [0.0] * 3  # assumed to be English


def test_codes_of_argos_translate(tmp_path: Path) -> None:
    for near, far in (("en", "zh-Hant"), ("en", "pt-BR"), ("nb", "en"), ("pt-BR", "de"), ("sv", "no")):
        copy_pair(tmp_path, near, far)
    with opened(options_of(tmp_path)) as served:
        pairs = ("en zt", "en zh-Hant", "en PB", "en pt-BR", "nb en", "no en", "pb de", "sv nb")
        assert all("translatedText" in served.translate(TEXTS[0], *pair.split()) for pair in pairs)
        assert "no model translates en to zh-Hans" in served.translate(TEXTS[0], "en", "zh-Hans")["error"]
        norwegian = "Hvor er jernbanestasjonen, og hvordan kommer jeg dit?"
        assert served.translate(norwegian, target="en")["detectedLanguage"]["language"] == "nb"
        assert served.translate("Var är järnvägsstationen?", target="nb")["detectedLanguage"]["language"] == "sv"
        body = multipart([("source", "en"), ("target", "zt")], "a.txt", TEXTS[0].encode())
        assert served.post("/translate_file", body, content_type=MULTIPART)[0] == 200


def test_texts_and_documents_are_translated_through_a_third_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for near, far in (("de", "en"), ("en", "fr"), ("de", "it"), ("it", "fr"), ("fr", "nl")):
        copy_pair(tmp_path, near, far)
    with opened(options_of(tmp_path)) as served:
        between = [one.text for one in served.client.translate_many(TEXTS, model="de-en")]
        wanted = [one.text for one in served.client.translate_many(between, model="en-fr")]
        libretranslate = LibreTranslateAPI(served.url)
        assert [libretranslate.translate(text, "de", "fr") for text in TEXTS] == wanted
        assert {one["code"]: one["targets"] for one in libretranslate.languages()} == {
            "de": ["en", "fr", "it"],
            "en": ["fr", "nl"],
            "fr": ["nl"],
            "it": ["fr", "nl"],
            "nl": [],
        }
        client = deepl.DeepLClient("key", server_url=served.url)
        assert client.translate_text(TEXTS[0], source_lang="DE", target_lang="FR").text == wanted[0]  # type: ignore[union-attr]
        found = served.translate([f"<p>{text}</p>" for text in TEXTS], "de", "fr", format="html")
        assert found["translatedText"] == [f"<p>{text}</p>" for text in wanted]
        choose, chosen = translation._pivot, []

        async def count(*arguments: Any) -> str:
            chosen.append(arguments)
            return await choose(*arguments)

        monkeypatch.setattr(translation, "_pivot", count)
        served.translate([f"<p>{text}</p>" for text in TEXTS * 8], "de", "fr", format="html")
        assert len(chosen) == 1  # not for each piece
        for near, far in (("de", "nl"), ("nl", "de")):  # through two, and not at all
            body = {"q": "a", "source": near, "target": far}
            served.refused("/translate", body, f"no model translates {near} to {far};", 404)


def test_third_languages_of_empty_and_of_too_long_translations(tmp_path: Path) -> None:
    only = {code: [[number] for number in range(340) if number not in (2, token)] for code, token in (("de", 224), ("fr", 131))}
    for near, far, lengths in (
        ("de", "en", {"max_length": 1}),
        ("fr", "en", {"max_length": 63, "min_length": 60}),
        ("en", "nl", {"max_length": 9}),
    ):
        suppressed = only.get(near, [])  # all but a space, or half a character
        copy_pair(tmp_path, near, far, generation={**lengths, "suppressed_tokens": suppressed})
    with opened(options_of(tmp_path)) as served:
        found = served.translate(TEXTS, "de", "nl", alternatives=1)
        assert found == {"translatedText": ["", ""], "alternatives": [[], []]}
        error = served.translate(TEXTS, "fr", "nl", alternatives=1)["error"]
        assert error.startswith("q[0]: ")
        assert error.endswith(" (this is about its translation into en)")


def test_languages_of_documents_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for near, far in (("de", "en"), ("en", "fr")):
        copy_pair(tmp_path / "models", near, far)
    german, french = "Ich habe eine Katze, und sie schläft.", "J'ai un chat, et il dort toute la journée."
    with opened(options_of(tmp_path / "models")) as served:

        def translated(name: str, content: str, source: str = "auto", target: str = "fr") -> Any:
            body = multipart([("source", source), ("target", target)], name, content.encode())
            status, found, _ = served.post("/translate_file", body, content_type=MULTIPART)
            if status != 200:
                return found["error"]
            content = fetch(urllib.request.Request(found["translatedFileUrl"]))[1]
            return content.decode() if isinstance(content, bytes) else content

        wanted = translated("a.txt", german, "de")
        assert wanted != translated("a.txt", german, "en")
        assert translated("a.txt", german) == wanted  # through English
        keys = json.dumps({"the_name_of_this_member_is_an_english_one": german, "and_this_is_another_one_which_is": german})
        assert translated("a.json", keys) == translated("a.json", keys, "de")
        assert translated("a.html", f"<p>{french}</p>") == f"<p>{french}</p>"
        assert translated("a.txt", f"{french}\n" * 3_000) == f"{french}\n" * 3_000  # too long to be read as a whole
        assert translated("a.json", "{").startswith("document: line 1: not JSON")
        assert translated("a.exe", german).startswith("file: 'a.exe' is not a supported document")
        (tmp_path / "a.txt").write_text(german)
        monkeypatch.setattr("deepl.translator.time", SimpleNamespace(time=time.time, sleep=lambda _: time.sleep(0.05)))  # polls
        client = deepl.DeepLClient("key", server_url=served.url)
        client.translate_document_from_filepath(tmp_path / "a.txt", tmp_path / "out.txt", target_lang="FR")
        assert (tmp_path / "out.txt").read_text() == wanted


def test_documents_whose_language_is_not_detected_name_it(tmp_path: Path) -> None:
    for near in ("de", "fr"):
        copy_pair(tmp_path, near, "en")
    large = json.dumps({"greeting": ["Guten Morgen, mein Freund."] * 4_000}).encode()
    with opened(options_of(tmp_path)) as served:
        for path, fields, member, field in (
            ("/translate_file", [("source", "auto"), ("target", "en")], "error", "source"),
            ("/v2/document", [("target_lang", "en")], "message", "source_lang"),
        ):
            body = multipart(fields, "a.json", large)
            status, found, _ = served.post(path, body, content_type="multipart/form-data; boundary=edge")
            assert (status, found[member]) == (400, f"{field}: it is not detected in this document, name one of: de, fr")


@pytest.fixture
def variants(tmp_path: Path) -> Path:
    """Models of language variants."""
    for near, far in (("de", "en"), ("en", "de"), ("en", "zh-Hant"), ("de", "it"), ("it-IT", "zh-Hans")):
        copy_pair(tmp_path, near, far)
    return tmp_path


def test_third_languages_are_those_that_the_models_mean(variants: Path) -> None:
    with opened(options_of(variants)) as served:
        for target in ("zh-TW", "zh-CN"):  # through English, and Italian
            assert "translatedText" in served.translate(TEXTS[0], "de", target)
        for near, far in (("de", "de-AT"), ("en", "eng_Latn")):  # there is nothing to translate
            body = {"q": TEXTS[0], "source": near, "target": far}
            served.refused("/translate", body, f"no model translates {near} to {far};", 404)


def test_lists_and_third_languages_are_those_of_default_versions(tmp_path: Path) -> None:
    for version, far in ((1, ["en"]), (2, ["en", "fr"])):
        copy_bundle(tmp_path, "de-en", version, source_languages=["de"], target_languages=far)
    copy_pair(tmp_path, "it", "de")
    (tmp_path / "de-en" / "model.json").write_text('{"labels": {"stable": 1, "canary": 2}}')
    with opened(options_of(tmp_path)) as served:
        assert {one["code"]: one["targets"] for one in served.get("/languages")[1]} == {
            "de": ["en"],
            "en": [],
            "it": ["de", "en"],
        }
        status, error, _ = served.post("/translate", {"q": "a", "source": "it", "target": "fr"})
        assert (status, error["error"].split(";")[0]) == (404, "no model translates it to fr")
        assert [one["id"] for one in served.get("/v1/models")[1]["data"]] == ["de-en", "it-de"]
        assert [one["model_id"] for one in served.get("/info")[1]["models"]] == ["de-en", "it-de"]


def test_third_languages_while_another_model_is_loaded(variants: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens, begun, ends = loading.open_bundle, threading.Event(), threading.Event()

    def open_slowly(folder: Path) -> Any:
        if folder.parent.name == "slow":
            begun.set()
            assert ends.wait(PATIENCE_SECONDS)
        return opens(folder)

    monkeypatch.setattr(loading, "open_bundle", open_slowly)
    flags = ("--model-control", "explicit", "--allow-admin", "--load-model", "*", "--http-port", "0")
    with local_server(variants, *flags) as running, Client(running.address) as client, ThreadPoolExecutor() as threads:
        copy_bundle(variants, "slow")
        loaded = threads.submit(client.load_model, "slow")
        assert begun.wait(PATIENCE_SECONDS)
        assert running.server.http_port
        served = Served(running.server.http_port, client)
        found = [served.post("/translate", {"q": "a", "source": "de", "target": target}) for target in ("zh-TW", "es")]
        ends.set()
        loaded.result()
    assert [status for status, *_ in found] == [200, 503]
    assert "loading or failed: slow" in found[1][1]["error"]


def test_libretranslate_file(served: Served) -> None:
    parts, kind = [("source", "en"), ("target", "de")], MULTIPART
    body = multipart([*parts, ("api_key", "")], "notes.md", b"# Notes\n\nI have a cat.\n")
    status, found, _ = served.post("/translate_file", body, content_type=kind)
    assert (status, list(found)) == (200, ["translatedFileUrl"])
    _, content, headers = fetch(urllib.request.Request(found["translatedFileUrl"]))
    assert content.startswith(b"# ")
    assert "notes.md" in headers["content-disposition"]
    _, found, _ = served.post("/translate_file", body, content_type=kind, x_forwarded_proto="https")
    assert found["translatedFileUrl"].startswith(f"https://127.0.0.1:{served.port}/download_file/")
    unknown = multipart(parts, "x.exe", b"")
    served.refused("/translate_file", unknown, "file: 'x.exe' is not a supported document", content_type=kind)
    assert served.post("/translate_file", multipart([*parts, ("model", "no")], "a.md", b"Hi"), content_type=kind)[0] == 404
    assert served.get("/download_file/unknown")[0] == 404


def test_forms_may_come_in_chunks_up_to_the_limit() -> None:
    """Curl sends a file that it reads from a pipe in chunks."""
    with opened(replace(OPTIONS, limits=replace(OPTIONS.limits, document_bytes=LIMIT))) as served:
        for size, status in ((5, b"200"), (LIMIT, b"200"), (2 * LIMIT, b"413")):
            body = multipart([("source", "en"), ("target", "de")], "a.txt", b"a" * size)
            head = f"POST /translate_file HTTP/1.1\r\nhost: x\r\ncontent-type: {MULTIPART}\r\nconnection: close\r\n".encode()
            answer = served.send(head + CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            assert answer.startswith(b"HTTP/1.1 " + status), answer


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", MULTIPART])
def test_fields_of_a_form_may_occur_several_times(served: Served, kind: str) -> None:
    fields = [("text", TEXTS[0]), ("target_lang", "DE"), ("text", TEXTS[1])]
    body = urlencode(fields).encode() if kind.startswith("app") else multipart(fields, "", b"")
    _, found, _ = served.post("/v2/translate", body, content_type=kind)
    expected = [one.text for one in served.client.translate_many(TEXTS, target_language="de")]
    assert [one["text"] for one in found["translations"]] == expected


def test_forms_that_are_not_unicode_are_rejected(served: Served) -> None:
    half = "+2AA-"  # of a surrogate pair, in UTF-7
    for body in (multipart([("q", half)], "", b""), multipart([("q", "a")], half, b"")):
        unicode, unknown = "body: the text is not Unicode", "body: not in the character set that it names"
        for charset, message in (("utf-7", unicode), ("utf-8", "source: missing"), ("undefined", unknown)):
            served.refused("/translate", body, message, content_type=f"{MULTIPART}; charset={charset}")


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("/translate", "application/x-www-form-urlencoded", "body: it is JSON, but content-type says that it is a form; "),
        ("/translate_file", "application/json", "content-type: 'application/json' is not multipart/form-data"),
        ("/translate_file", "", "content-type: '' is not multipart/form-data"),
    ],
)
def test_bodies_of_another_type_than_the_named_one_are_rejected(served: Served, path: str, kind: str, message: str) -> None:
    served.refused(path, {"q": "a", "source": "en", "target": "de"}, message, content_type=kind)


def multipart(fields: Iterable[tuple[str, str]], name: str, content: bytes) -> bytes:
    parts = [f'--edge\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode() for key, value in fields]
    head = f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return b"".join((*parts, head, content, b"\r\n--edge--\r\n"))


def test_deepl_client(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepl.translator.time", SimpleNamespace(time=time.time, sleep=lambda _: time.sleep(0.05)))  # polls
    client = deepl.DeepLClient("key", server_url=served.url)
    found = client.translate_text(TEXTS, target_lang="DE")
    assert isinstance(found, list)
    assert [one.text for one in found] == [one.text for one in served.client.translate_many(TEXTS, target_language="de")]
    assert [one.detected_source_lang for one in found] == ["EN", "EN"]
    assert [one.code for one in client.get_target_languages()] == ["DE"]
    assert [one.code for one in client.get_source_languages()] == ["EN"]
    assert not client.get_usage().any_limit_reached
    assert (client.list_glossaries(), client.list_multilingual_glossaries()) == ([], [])
    with pytest.raises(deepl.DeepLException, match="message: there are no glossaries here: start the server with --glossaries"):
        client.create_glossary("names", "en", "de", {"lease": "Leihe"})
    notes = "# Café\n\nI have a cat.\n"
    (tmp_path / "notes.md").write_text(notes)
    translated = client.translate_document_from_filepath(tmp_path / "notes.md", tmp_path / "out.md", target_lang="DE")
    assert (translated.done, translated.billed_characters) == (True, len(notes))
    assert (tmp_path / "out.md").read_text().startswith("# ")
    for option, value in (("formality", "more"), ("context", "At sea.")):
        with pytest.raises(deepl.DeepLException, match=f"{option}: '{value}' is not supported"):
            client.translate_text("Hello", target_lang="DE", **{option: value})  # type: ignore[arg-type]
    with pytest.raises(deepl.DeepLException, match="split_sentences: '0' is not supported"):
        client.translate_text("Hello", target_lang="DE", tag_handling="html", split_sentences="0")
    assert client.translate_text("<b>Hello</b>", target_lang="DE", tag_handling="html", split_sentences="1")
    with pytest.raises(deepl.DeepLException, match="ignore_tags: needs tag_handling"):
        client.translate_text("Hello", target_lang="DE", ignore_tags=["x"])
    with pytest.raises(deepl.DeepLException, match="ignore_tags: 65 tags are too many"):
        client.translate_text("Hello", target_lang="DE", tag_handling="xml", ignore_tags=["x"] * 65)
    with pytest.raises(deepl.DeepLException, match="splitting_tags: needs tag_handling"):
        client.translate_text("Hello", target_lang="DE", splitting_tags="p")
    xml = "<doc><seg>Good morning.</seg><seg>Thank you.</seg><no>1</no><seg>I have a cat</seg></doc>"
    splitting: dict[str, Any] = {"splitting_tags": ["seg", "no"], "ignore_tags": "no", "outline_detection": False}
    found = client.translate_text(xml, target_lang="DE", tag_handling="xml", **splitting)
    assert str(found) == "<doc><seg>Guten Morgen.</seg><seg>Danke.</seg><no>1</no><seg>Ich habe eine Katze.</seg></doc>"


Pairs = deepl.api_data.MultilingualGlossaryDictionaryEntries


@pytest.fixture(scope="module")
def glossaries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server with a folder of glossaries."""
    folder = tmp_path_factory.mktemp("glossaries")
    with opened(options_of(embedded_repository()), glossaries=folder) as served:
        yield served, folder


def test_glossaries_are_files_that_deepls_client_uses(glossaries: tuple[Served, Path], tmp_path: Path) -> None:
    served, folder = glossaries
    client = deepl.DeepLClient("key", server_url=served.url)
    languages: dict[str, Any] = {"source_lang": "EN", "target_lang": "DE"}

    def translate(text: str, **more: Any) -> str:
        return str(client.translate_text(text, **languages, **more))

    assert client.list_glossaries() == []
    (folder / "products.en.de.tsv").write_text("# comment\ncat\tMieze\tremark\n", encoding="utf-8")
    [found] = client.list_glossaries()
    assert (found.glossary_id, found.name, found.entry_count, found.ready) == ("products", "products", 1, True)
    assert client.get_glossary_entries("products") == {"cat": "Mieze"}
    assert "Mieze" not in translate("I have a cat.")
    assert "Mieze" in translate("I have a cat.\n\nThank you.", glossary="products")
    assert "<b>" in (marked := translate("I have a <b>cat</b>.", glossary=found, tag_handling="html"))
    assert "Mieze" in marked
    for name, content in (("in.txt", "I have a cat.\n"), ("out.txt", "")):
        (tmp_path / name).write_text(content)
    paths = tmp_path / "in.txt", tmp_path / "out.txt"
    client.translate_document_from_filepath(*paths, **languages, glossary=found)
    assert "Mieze" in paths[1].read_text()
    (folder / "products.en.de.tsv").write_text("cat\tStubentiger\n", encoding="utf-8")
    assert "Stubentiger" in translate("I have a cat.", glossary="products")
    with pytest.raises(deepl.DeepLException, match="glossary_id: 'products' is not for DE to EN-US, but for en to de"):
        client.translate_text("Katze", source_lang="DE", target_lang="EN-US", glossary="products")
    body = {"text": "a", "target_lang": "DE", "glossary_id": "products"}
    served.refused("/v2/translate", body, "source_lang: missing, it is needed beside glossary_id")
    (folder / "products.en.de.tsv").unlink()
    with pytest.raises(deepl.GlossaryNotFoundException, match="glossary_id: there is no glossary 'products'"):
        client.get_glossary("products")


def test_glossaries_of_deepls_client_are_kept_as_files(glossaries: tuple[Served, Path]) -> None:
    served, folder = glossaries
    client = deepl.DeepLClient("key", server_url=served.url)
    assert served.get("/v2/glossary-language-pairs")[1] == {"supported_languages": [{"source_lang": "en", "target_lang": "de"}]}
    made = client.create_glossary("My  terms", "EN", "DE", {"cat": "Mieze", "a dog": "ein Hündchen"})
    assert (made.name, made.entry_count, client.get_glossary(made.glossary_id).name) == ("My terms", 2, "My terms")
    assert client.get_glossary_entries(made) == {"cat": "Mieze", "a dog": "ein Hündchen"}
    csv = 'cat,Mieze,en,de\n"a ""big"" dog",Hund\n'
    read = client.create_glossary_from_csv("csv", "EN", "DE", csv)
    assert client.get_glossary_entries(read) == {"cat": "Mieze", 'a "big" dog': "Hund"}
    dictionaries = [Pairs("en", "de", {"cat": "Mieze"}), Pairs("de", "en", {"Katze": "puss"})]
    several = client.create_multilingual_glossary("two", dictionaries)
    assert {(one.source_lang, one.target_lang) for one in several.dictionaries} == {("EN", "DE"), ("DE", "EN")}
    [entries] = client.get_multilingual_glossary_entries(several, "de", "en").dictionaries
    assert entries.entries == "Katze\tpuss\n"
    assert {one.name for one in client.list_multilingual_glossaries()} == {"My terms", "csv", "two"}
    assert {one.name for one in client.list_glossaries()} == {"My terms", "csv"}
    served_file = next(folder.glob(f"{made.glossary_id}.*"))
    assert served_file.read_text(encoding="utf-8") == "# name: My terms\ncat\tMieze\na dog\tein Hündchen\n"
    for one in (made, read):
        client.delete_glossary(one)
    client.delete_multilingual_glossary(several)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"entries": "a"}, "entries: line 1 does not have a source and a target"),
        ({"entries": "a\tb\n\n\tc"}, "entries: line 3 does not have a source and a target"),
        ({"entries": "a\tb\na\tc"}, "entries: line 2 has 'a', which occurs before"),
        ({"entries": "#a\tb"}, "entries: line 1 has a term with a tab, a zero byte, a line break, or a # at its beginning"),
        ({"entries": "a\u2028b\tc"}, "entries: line 1 has a term with a tab, a zero byte, a line break"),
        ({"entries": "a\0b\tc"}, "entries: line 1 has a term with a tab, a zero byte"),
        ({"name": "a\0b"}, "name: 3 characters, it must have 1 to 1,000, and no zero bytes"),
        ({"entries": '"a\tb",c', "entries_format": "csv"}, "entries: line 1 has a term with a tab"),
        ({"entries": f"{'a' * 1_001}\tb"}, "entries: line 1 has a term of more than 1,000 characters"),
        ({"entries": " \n"}, "entries: no terms, there must be 1 to 10,000"),
        (
            {"entries": "".join(f"a{number}\tb\n" for number in range(10_001)) + "a"},
            "entries: more than 10,000 terms, the limit",
        ),
        ({"entries_format": "xml"}, "entries_format: 'xml' is not tsv or csv"),
        ({"source_lang": "../en"}, "source_lang: '../en' is not a language code"),
        ({"target_lang": "tlhxyzab-toolong99"}, "target_lang: "),
        ({"name": " "}, "name: 0 characters, it must have 1 to 1,000"),
    ],
)
def test_glossaries_that_cannot_be_stored_are_rejected(
    glossaries: tuple[Served, Path], fields: dict[str, str], problem: str
) -> None:
    served, folder = glossaries
    before = set(folder.iterdir())
    body = {"name": "x", "source_lang": "en", "target_lang": "de", "entries": "a\tb", **fields}
    served.refused("/v2/glossaries", body, problem)
    inner = problem if problem.startswith("name") else f"dictionaries[0].{problem}"
    served.refused("/v3/glossaries", {"name": body["name"], "dictionaries": [body]}, inner)
    assert set(folder.iterdir()) == before


def test_files_that_are_no_glossaries_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = GlossaryFolder(tmp_path)
    for name, content in (("x.tsv", "a\tb"), ("bad.en.de.tsv", "a\n"), ("good.en.pt-BR.tsv", "a\tb\n"), ("note.txt", "")):
        (tmp_path / name).write_text(content)
    for _ in range(2):
        [(id, [one])] = folder.all().items()
        assert (id, one.target, one.terms) == ("good", "pt-BR", (Term("a", "b"),))
    assert folder.terms("good", "EN-GB", "pt") == one.terms
    assert len(caplog.messages) == 2
    assert any("x.tsv: its name is not ID.SOURCE.TARGET.tsv" in message for message in caplog.messages)
    assert any("bad.en.de.tsv, line 1: expected source, tab, target, got 'a'" in message for message in caplog.messages)


def test_a_file_that_cannot_be_read_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, file = GlossaryFolder(tmp_path), tmp_path / "b.en.de.tsv"
    (tmp_path / "a.en.de.tsv").write_text("a\tb\n")
    file.symlink_to(file)
    for _ in range(2):
        assert list(folder.all()) == ["a"]
    assert caplog.messages == [f"glossary skipped: {file}: Too many levels of symbolic links"]
    file.unlink()
    file.write_text("a\tb\n")
    assert list(folder.all()) == ["a", "b"]


def test_a_glossary_is_read_again_after_a_moment_without_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = GlossaryFolder(tmp_path)
    (tmp_path / "a.en.de.tsv").write_text("a\tb\n")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        assert folder.all() == {}
    assert list(folder.all()) == ["a"]


def test_deleted_glossaries_leave_no_memory(tmp_path: Path) -> None:
    folder = GlossaryFolder(tmp_path)
    [made] = folder.add("x", {("en", "de"): [Term("a", "b")]})
    folder.remove(made.id)
    kept = ref(made)
    del made
    assert folder.all() == {}
    assert kept() is None


def test_glossaries_that_cannot_be_written_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = GlossaryFolder(tmp_path / "missing")
    with pytest.raises(RpcError, match=r"glossaries cannot be read \(--glossaries\): No such file or directory"):
        folder.add("x", {("en", "de"): [Term("a", "b")]})
    folder = GlossaryFolder(tmp_path)
    with pytest.raises(RpcError, match=r"glossaries cannot be written \(--glossaries\): File name too long"):
        folder.add("x", {("en", "de"): [Term("a", "b")], ("en", "x" * 250): [Term("a", "b")]})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "gone").symlink_to(tmp_path / "missing")  # as a file that is deleted meanwhile
    terms = [Term("a", str(number)) for number in range(3)]
    monkeypatch.setattr("triptych_serving.gateway.glossaries.MOST_BYTES", len("# name: x\n") + len("a\t0\n"))
    folder.add("x", {("en", "de"): terms[:1]})
    with pytest.raises(RpcError, match="would have 38 bytes, the most that clients may fill are 14; delete some"):
        folder.add("x", {("en", "de"): terms[1:2], ("en", "fr"): terms[:0]})
    monkeypatch.setattr("triptych_serving.gateway.glossaries.MOST_FILES", 2)
    with pytest.raises(RpcError, match="there are 1 dictionaries, of the 2 that there may be; delete some"):
        folder.add("x", {("en", "de"): terms, ("en", "fr"): terms})


def test_terms_are_written_by_threads(glossaries: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop must not wait for a million of them."""
    served, folder = glossaries
    (folder / "a.en.de.tsv").write_text("a\tb\n")
    threads: list[str] = []

    def write(terms: Sequence[Term]) -> str:
        threads.append(threading.current_thread().name)
        return f"{len(terms)}"

    monkeypatch.setattr("triptych_serving.gateway.glossaries._tsv", write)
    assert served.get("/v2/glossaries/a/entries")[1] == b"1"
    assert served.get("/v3/glossaries/a/entries?source_lang=EN")[1]["dictionaries"][0]["entries"] == "1"
    assert served.get("/v3/glossaries/a/entries?source_lang=fr")[0] == 404
    assert {name.partition("_")[0] for name in threads} == {"triptych-text"}
    assert len(threads) == 2
    (folder / "a.en.de.tsv").unlink()


def test_dictionaries_of_a_glossary_are_limited(glossaries: tuple[Served, Path]) -> None:
    served, _ = glossaries
    for listed in ([], [{}] * 1_001):
        problem = f"dictionaries: {len(listed):,}, there must be 1 to 1,000"
        served.refused("/v3/glossaries", {"name": "x", "dictionaries": listed}, problem)


def test_texts_of_the_client_may_be_html_or_have_a_glossary(served: Served) -> None:
    client, terms = served.client, {"cat": "Mieze", "good morning": "Moin"}
    found = client.translate_many(["I have a cat.", "Good morning!\n\nThank you.", "1 + 1", ""] * 20, glossary=terms)
    assert found.texts[:4] == found.texts[76:]
    assert "Mieze" in found[0].text
    assert (found[0].finish_reason, found[0].hypotheses[0].text) == (FinishReason.STOP, found[0].text)
    assert found[1].text.startswith("Moin")
    assert [found[2].text, found[3].text] == ["1 + 1", ""]
    assert client.translate("I have a cat.", glossary=[("cat", "Mieze")], beam_size=1).text == found[0].text
    html = client.translate("<p class='a'>I have a <b>cat</b>.</p>", mime_type="text/html", glossary=terms).text
    assert html.startswith("<p class='a'>")
    assert "Mieze" in html
    assert client.translate("a < b & c", mime_type="text/plain").text
    rare = translation_pb2.GlossaryTerm(source="cat", target="Xyzzyx")
    request = translation_pb2.TranslateRequest(contents=["Hello.", "I have a cat."], glossary=[rare])
    with grpc.insecure_channel(served.client.address) as channel:
        response = TranslationServiceStub(channel).Translate(request)
    assert response.model == "en-de"
    assert response.timing.inference_seconds > 0
    assert "Xyzzyx" in response.translations[1].translated_text or response.translations[1].findings[0].where == "line 1"


@pytest.mark.parametrize("kind", ["html", "text"])
def test_texts_are_translated_as_documents_are(served: Served, kind: str) -> None:
    texts = [
        "I have a <b>cat</b>. Save {name} to disk.",
        "<p>Good morning,<br>thank you.</p>\n<p title='x'>10 &gt; 5 on 2021-01-02</p>",
        "Two dogs run.\n\n- a cat\n- a dog",
        "<script>var a = 1 < 2;</script> unclosed <i>text",
    ]
    more: dict[str, Any] = {"glossary": {"cat": "Mieze"}}
    found = served.client.translate_many(texts, mime_type={"html": "text/html"}.get(kind, "text/plain"), **more)
    documents = [served.client.translate_document(text.encode(), format=kind, encoding="utf-8", **more) for text in texts]
    assert found.texts == [document.content.decode() for document in documents]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mime_type": "text/markdown"}, "mime_type: 'text/markdown' is not supported, send 'text/plain' or 'text/html'"),
        ({"mime_type": "text/html", "return_scores": True}, "options.return_scores: has no effect on a document, leave it out"),
        ({"glossary": {"cat": " "}}, "glossary[0].target: empty"),
        ({"glossary": {"a" * 1_001: "b"}}, "glossary[0].source: 1,001 characters, at most 1,000 are allowed"),
        ({"glossary": {"a": "b"}, "beam_size": 99}, "options.beam_size: 99 is above the limit of"),
        ({"glossary": {"a": "b"}, "target_language": "xx-y"}, "target_language_code: "),
    ],
)
def test_texts_as_documents_are_rejected_by_field(served: Served, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TriptychClientError, match=re.escape(message)):
        served.client.translate("I have a cat.", **fields)


def test_requests_with_a_glossary_wait_for_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(OPTIONS.limits, documents=1, request_characters=1_000)
    with opened(replace(OPTIONS, limits=limits)) as served, ThreadPoolExecutor(8) as threads:
        with pytest.raises(InvalidArgumentError, match="contents: 1,001 characters in one request, at most 1,000 are allowed"):
            served.client.translate("a" * 1_001, glossary={"a": "b"})
        requests = [threads.submit(served.client.translate, TEXTS[0], glossary={"cat": "Mieze"}) for _ in range(8)]
        assert len({request.result().text for request in requests}) == 1
        monkeypatch.setattr("triptych_serving.services.documents.calls.WAITING", 0)
        with pytest.raises(ResourceExhaustedError, match="0 requests with HTML or a glossary are being translated, "):
            Client(served.client.address, retries=0).translate(TEXTS[0], glossary={"cat": "Mieze"})


def test_requests_of_weblate_to_deepl(served: Served) -> None:
    """Its placeholders are elements, and it asks for glossaries first."""
    assert served.get("/v2/glossary-language-pairs")[1] == {"supported_languages": []}  # of a server without a folder
    assert served.get("/v2/glossaries")[1] == {"glossaries": []}
    texts = ['I have <x id="0"></x> cats &amp; <x id="9">one dog</x>.', "<keep>The dog</keep>", "Good morning."]
    body = {"text": texts, "source_lang": "EN", "target_lang": "DE", "tag_handling": "xml", "ignore_tags": ["x", "keep"]}
    status, answer, _ = served.post("/v2/translate", {**body, "formality": "default"})
    assert status == 200
    first, second, third = (one["text"] for one in answer["translations"])
    assert '<x id="0"></x>' in first
    assert '<x id="9">one dog</x>' in first
    assert first.startswith("Ich habe ")
    assert second == texts[1]
    assert third == "Guten Morgen."
    assert [one["billed_characters"] for one in answer["translations"]] == list(map(len, texts))


@pytest.mark.parametrize(
    ("options", "translation"),
    [
        ({"tag_handling": "xml"}, '\n<a\n id="1">Danke</a>.\r\n\n  Gut <x>a\nb</x>\n'),
        ({"tag_handling": "html", "split_sentences": "1"}, '\n<a\n id="1">Danke</a>.\r\n\n  Gut <x>a\nb</x>\n'),
        ({"tag_handling": "html"}, '\n<a\n id="1">Danke</a>. Gut <x>a\nb</x>\n'),
    ],
    ids=["Weblate", "json-autotranslate", "html"],
)
def test_line_breaks_between_tags_stay_where_deepl_splits_at_them(
    served: Served, options: dict[str, str], translation: str
) -> None:
    text = '\n<a\n id="1">Thank you</a>.\r\n\n  Good <x>a\nb</x>\n'
    body = {"text": [text], "source_lang": "EN", "target_lang": "DE", "ignore_tags": ["x"], **options}
    assert served.post("/v2/translate", body)[1]["translations"][0]["text"] == translation


def test_requests_of_other_applications_to_deepl(served: Served) -> None:
    """django-traduire, and forms in which options are empty."""
    body = {"text": ["<p>Good morning.</p>", ""], "target_lang": "DE"}
    _, answer, _ = served.post("/v2/translate", {**body, "tag_handling": "html", "splitting_tags": "p,h1,li,br"})
    assert [one["text"] for one in answer["translations"]] == ["<p>Guten Morgen.</p>", ""]
    options = ("source_lang", "split_sentences", "tag_handling", "splitting_tags", "glossary_id", "formality", "context")
    form = urlencode({"text": "Good morning.", "target_lang": "de", **dict.fromkeys(options, "")})
    _, answer, _ = served.post("/v2/translate", form.encode(), content_type="application/x-www-form-urlencoded")
    assert [one["text"] for one in answer["translations"]] == ["Guten Morgen."]


def test_openai_client(served: Served) -> None:
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="key")
    assert {model.id for model in client.models.list()} == {"en-de", "bert-en", "gpt-en", "vit-cifar10"}
    expected = served.client.embed_many(TEXTS)
    found = client.embeddings.create(model="bert-en", input=TEXTS)  # in base64
    np.testing.assert_allclose([one.embedding for one in found.data], [one.values for one in expected], atol=0.05)  # int8
    assert found.usage.total_tokens == sum(one.token_count for one in expected)
    short = client.embeddings.create(model="bert-en", input=TEXTS[0], dimensions=8, encoding_format="float").data[0].embedding
    np.testing.assert_allclose(short, expected[0].values[:8], atol=0.05)
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="bert-en", input=TEXTS[0], dimensions=100_000)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input=TEXTS)


def test_text_embeddings_inference_client(served: Served) -> None:
    vector = np.array(served.client.embed(TEXTS[0], normalize=True).values)
    np.testing.assert_allclose(InferenceClient(f"{served.url}/embed").feature_extraction(TEXTS[0])[0], vector, atol=0.05)
    assert served.post("/embed", {"inputs": "word " * 500})[0] == 400
    assert served.post("/embed", {"inputs": "word " * 500, "truncate": True})[0] == 200
    assert [len(one) for one in served.post("/embed", {"inputs": TEXTS, "dimensions": 3, "normalize": False})[1]] == [3, 3]
    _, info, _ = served.get("/info")
    assert (info["model_id"], info["max_input_length"]) == ("bert-en", 256)
    assert info["model_type"] == {"embedding": {"pooling": "default"}}


def test_hugging_face_client(served: Served) -> None:
    def client(path: str) -> InferenceClient:
        return InferenceClient(f"{served.url}/models/{path}")

    text = "The war ended in the [MASK] century."
    expected = served.client.fill_mask(text, top_k=2).masks[0].candidates
    assert [one.token_str for one in client("bert-en").fill_mask(text, top_k=2)] == [one.token_str for one in expected]
    translated = served.client.translate(TEXTS[1], beam_size=2).text
    assert client("en-de").translation(TEXTS[1], generate_parameters={"num_beams": 2}).translation_text == translated
    t2t: Any = client("en-de/pipeline/summarization").summarization(TEXTS[1], generate_parameters={"num_beams": 2})
    assert t2t["summary_text"] == translated
    sampled = served.client.generate("I am", max_tokens=5, seed=3, sampling_topk=0, sampling_temperature=0.9).text
    given: Any = {"max_new_tokens": 5, "seed": 3, "temperature": 0.9}
    assert client("gpt-en").text_generation("I am", **given) == sampled
    best = served.client.generate("I am", max_tokens=5, sampling_topk=1, echo=True).text
    assert client("gpt-en").text_generation("I am", **given, do_sample=False, return_full_text=True) == best
    wrapped = {"name": "number", "schema": {"enum": [5, 7]}}
    for kind, value, allowed in (
        ("json", wrapped["schema"], ("5", "7")),
        ("json_schema", wrapped, ("5", "7")),
        ("regex", "yes|no", ("yes", "no")),
    ):
        assert client("gpt-en").text_generation("I am", **given, grammar={"type": kind, "value": value}) in allowed  # type: ignore[arg-type]
    vectors = np.array([one.values for one in served.client.embed_many(TEXTS, normalize=True)])
    found = client("bert-en/pipeline/feature-extraction").feature_extraction(TEXTS, normalize=True, truncate=True)
    np.testing.assert_allclose(found, vectors, atol=0.05)
    similar = client("bert-en").sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    np.testing.assert_allclose(similar, vectors @ vectors[0], atol=0.05)
    image = png((0, 0, 128))
    best = served.client.classify_image(image).labels[0].label
    assert client("vit-cifar10").image_classification(image)[0].label == best
    assert [one.label for one in client("vit-cifar10").image_classification(image, top_k=1)] == [best]


def test_hugging_face_client_classifies_and_answers(tmp_path: Path) -> None:
    write_every_bundle(tmp_path)
    with opened(options_of(tmp_path)) as served:
        grpc_client = served.client

        def client(name: str) -> InferenceClient:
            return InferenceClient(f"{served.url}/models/{name}")

        labels = grpc_client.classify_text("one two", model="text-classification").labels
        results: Any = client("text-classification").text_classification("one two", top_k=1)
        assert [one.label for one in results] == [labels[0].label]
        [cut] = grpc_client.classify_text_many(["two " * 99], truncate=True)
        long = {"inputs": "two " * 99, "parameters": {"truncation": True}}
        assert [one["label"] for one in served.post("/models/text-classification", long)[1][0]] == [
            one.label for one in cut.labels
        ]
        spans = [(one.label, one.start, one.end) for one in grpc_client.classify_tokens("one two").entities]
        entities = client("token-classification").token_classification("one two", aggregation_strategy="simple")
        assert [(one.entity_group, one.start, one.end) for one in entities] == spans
        words = client("token-classification").token_classification("one two", aggregation_strategy="max")
        assert [one.entity_group for one in words] == [label for label, _, _ in spans]
        options: Any = {"aggregation_strategy": "none"}
        tokens = client("token-classification").token_classification("one two", **options)
        everything = client("token-classification").token_classification("one two", **options, ignore_labels=[])
        assert [one for one in everything if one.entity != "O"] == tokens != everything
        answer = grpc_client.answer("one", "two three").answers[0]
        assert client("question-answering").question_answering("one", "two three").answer == answer.text  # type: ignore[union-attr]
        for name, inputs, message in (
            ("question-answering", {"question": "", "context": "two"}, "inputs.question: "),
            ("question-answering", {"question": "one", "context": "two " * 99}, "inputs: "),
            (
                "fill-mask/pipeline/sentence-similarity",
                {"source_sentence": "", "sentences": ["one"]},
                "inputs.source_sentence: ",
            ),
            (
                "fill-mask/pipeline/sentence-similarity",
                {"source_sentence": "one", "sentences": ["one", ""]},
                "inputs.sentences[1]: ",
            ),
        ):
            served.refused(f"/models/{name}", {"inputs": inputs}, message)


def test_hugging_face_client_classifies_without_training(tmp_path: Path) -> None:
    """Scores are those of transformers: the softmax of entailments, or with several, of each one and its contradiction."""
    labels = ["contradiction", "neutral", "Entailment"]
    write_text_bundle(tmp_path, "text-classification", "nli", labels=labels, pairs=True, logits=True)
    options: Any = {"hypothesis_template": "two {}"}
    with opened(options_of(tmp_path)) as served:

        def logits(label: str) -> list[float]:
            [result] = served.client.classify_text_many([("one", f"two {label}")], raw_scores=True)
            return [one.score for one in sorted(result.labels, key=lambda one: one.index)]

        rows = np.exp([logits("two three four"), logits("six")])
        candidates = ["two three four", "six"]
        client = InferenceClient(f"{served.url}/models/nli")
        for several, expected in ((False, rows[:, 2] / rows[:, 2].sum()), (True, rows[:, 2] / (rows[:, 0] + rows[:, 2]))):
            found = client.zero_shot_classification("one", candidates, multi_label=several, **options)
            assert {one.label: one.score for one in found} == pytest.approx(dict(zip(candidates, expected, strict=True)))
            assert several or [one.label for one in found] == ["six", "two three four"]
        pair = {"text": "one", "text_pair": "two six"}
        [expected_label] = served.client.classify_text_many([("one", "two six")])
        for inputs in (pair, [pair]):
            labels_found = [one["label"] for one in served.post("/models/nli", {"inputs": inputs})[1][0]]
            assert labels_found == [one.label for one in expected_label.labels]
        served.refused("/models/nli", {"inputs": {"text": 1}}, "inputs.text: int 1, must be a string")
        body = {"inputs": ["one", "two"], "parameters": {"candidate_labels": "one, two"}}
        assert [len(one) for one in served.post("/", body)[1]] == [2, 2]
        for parameters, message in (
            ({"candidate_labels": " , "}, "parameters.candidate_labels: there are none"),
            ({"candidate_labels": ["one"], "hypothesis_template": "x"}, "parameters.hypothesis_template: x has no {}"),
            ({"candidate_labels": ["one"] * 1_000}, "parameters.candidate_labels: 1 texts x 1,000 labels make pairs of "),
        ):
            served.refused("/models/nli", {"inputs": "one " * 9_000, "parameters": parameters}, message)
        body = {"inputs": ["one", "one " * 99], "parameters": {"candidate_labels": ["one", "two"]}}
        served.refused("/models/nli", body, "inputs[1]: ")


def generating(**parameters: Any) -> dict[str, Any]:
    return {"inputs": "a", "parameters": {"generate_parameters": parameters}}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/", {"inputs": "Hello."}, 400, "several models are loaded"),
        ("/models/other", {"inputs": "Hello."}, 404, "other"),
        ("/models/bert-en", {"inputs": "[MASK]", "parameters": {"top_k": "1"}}, 400, "parameters.top_k: str '1', must be"),
        ("/models/bert-en", {"inputs": "[MASK]", "parameters": []}, 400, "parameters: list [], must be an object"),
        ("/models/bert-en/pipeline/sing", {"inputs": "[MASK]"}, 400, "task: 'sing' is not one of fill-mask"),
        ("/models/en-de", generating(sing=1), 400, "parameters.generate_parameters.sing: there is no such field; "),
        ("/models/en-de", generating(length_penalty=NINES), 400, "parameters.generate_parameters.length_penalty: int 99"),
        (
            "/models/en-de",
            generating(target_prefix="ab"),
            400,
            "parameters.generate_parameters.target_prefix: str 'ab', must be a list",
        ),
        ("/models/gpt-en", {"inputs": "a", "stream": True}, 400, "stream: True is not supported"),
        ("/models/gpt-en", {"inputs": "a", "parameters": {"typical_p": 0.5}}, 400, "parameters.typical_p: 0.5 is not"),
        ("/models/gpt-en", {"inputs": "a", "parameters": {"stop_sequences": ["b"]}}, 400, "parameters.stop_sequences: ["),
        ("/models/vit-cifar10", {"inputs": "ä"}, 400, "inputs: not base64"),
        ("/embed", {"inputs": "a", "prompt_name": "query"}, 400, "prompt_name: 'query' is not a prompt of the model; it has"),
        ("/predict", {"inputs": TEXTS}, 404, "no model classifies text;"),
        ("/rerank", {"query": "a", "texts": ["b"]}, 404, "no model reranks"),
        ("/rerank", {"query": "a", "documents": ["b"]}, 400, "texts: missing; /v1/rerank and /v2/rerank take documents"),
        ("/rerank", {"query": "a", "texts": ["b"], "return_text": 1}, 400, "return_text: int 1, must be true or false"),
        ("/embed", {"inputs": "a", "model": "other"}, 404, "other"),
    ],
)
def test_hugging_face_errors(served: Served, path: str, body: Any, status: int, message: str) -> None:
    found, error, _ = served.post(path, body)
    assert (found, error["error_type"]) == (status, "validation" if status == 400 else "backend")
    assert message in error["error"]


COMPLETIONS, CHATS, TRANSLATION = "/v1/completions", "/v1/chat/completions", "/models/en-de"
USUAL: dict[str, dict[str, Any]] = {
    "/translate": {"q": "a", "source": "en", "target": "de"},
    "/v2/translate": {"text": ["a"], "target_lang": "DE"},
    COMPLETIONS: {"prompt": "a", "model": "gpt-en"},
    CHATS: {"messages": CHAT},
}


BROKEN_RULES = {"grammar": {"type": "regex", "value": "("}}
EMPTY_RULES = {"grammar": {"type": "json", "value": ""}}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/translate", {"q": ["a", "x " * 3000]}, "q[1]: "),
        ("/translate", {"target": "deutsch!"}, "target: "),
        ("/translate", {"alternatives": float("inf")}, "alternatives: inf is not an int"),
        ("/translate", {"alternatives": 1.5}, "alternatives: 1.5 is not an int"),
        ("/translate", {"target": "deutsch!", "format": "html"}, "target: "),
        ("/v2/translate", {"text": ["a", "x " * 3000]}, "text[1]: "),
        ("/v2/translate", {"source_lang": "englisch!"}, "source_lang: "),
        ("/models/bert-en", {"inputs": "no mask"}, "inputs[0]: "),
        ("/models/bert-en", {"inputs": "[MASK]", "parameters": {"top_k": 0}}, "parameters.top_k: 0 is out of range"),
        ("/models/bert-en", {"inputs": "[MASK]", "parameters": {"targets": ["a b"]}}, "parameters.targets[0]: "),
        ("/models/bert-en", {"inputs": "[MASK]", "parameters": {"targets": 5}}, "parameters.targets: must be"),
        (TRANSLATION, {"inputs": "a", "parameters": {"src_lang": 5}}, "parameters.src_lang: int 5, must be"),
        (TRANSLATION, generating(num_beams="a"), "parameters.generate_parameters.beam_size: str 'a'"),
        (TRANSLATION, generating(num_beams=99), "parameters.generate_parameters.num_beams: "),
        (TRANSLATION, {"inputs": "a", "parameters": {"tgt_lang": "!"}}, "parameters.tgt_lang: "),
        ("/models/gpt-en", {"inputs": "a", "parameters": {"max_new_tokens": 5000}}, "parameters.max_new_tokens: "),
        ("/models/gpt-en", {"inputs": "a", "parameters": {"top_p": 2}}, "parameters.top_p: "),
        ("/models/gpt-en", {"inputs": "a", "parameters": {"grammar": {"type": 1}}}, "parameters.grammar.type: int 1, "),
        ("/models/gpt-en", {"inputs": "a", "parameters": BROKEN_RULES}, "parameters.grammar.value: unclosed group"),
        ("/models/gpt-en", {"inputs": "a", "parameters": EMPTY_RULES}, "parameters.grammar.value: is empty; leave it out"),
        (COMPLETIONS, {"prompt": ["a", ""], "top_p": 2}, "top_p: "),
        (COMPLETIONS, {"temperature": -1}, "temperature: "),
        (COMPLETIONS, {"temperature": float("nan")}, "temperature: float nan, must be a finite number"),
        (COMPLETIONS, {"logprobs": 21}, "logprobs: "),
        (COMPLETIONS, {"logprobs": 21, "stream": True}, "logprobs: "),
        (CHATS, {"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage: int 1, must be"),
        (COMPLETIONS, {"max_tokens": 5000}, "max_tokens: "),
        (COMPLETIONS, {"max_completion_tokens": 5000}, "max_completion_tokens: "),
        (COMPLETIONS, {"min_p": 1.1}, "min_p: 1.1"),
        (COMPLETIONS, {"presence_penalty": 3}, "presence_penalty: 3.0 is out of range"),
        (COMPLETIONS, {"typical_p": 0.1}, "typical_p: "),
        (COMPLETIONS, {"tool_choice": "required"}, "tool_choice: "),
        (COMPLETIONS, {"n": 2, "temperature": 0}, "n: 2 is above beam_size, which is 1; set top_k or top_p to sample, "),
        (COMPLETIONS, {"min_tokens": 9, "max_tokens": 5}, "min_tokens: 9 is above max_tokens, which is 5"),
        (COMPLETIONS, {"prompt": [1, 2**32]}, "prompt: has neither texts alone nor tokens alone"),
        ("/v1/embeddings", {"input": [[1, 2]]}, "input: tokens are not supported"),
        ("/v1/embeddings", {"input": [""]}, "input[0]: the text is empty"),
        (CHATS, {"reasoning_effort": "low"}, "reasoning_effort: 'low' is not supported"),
        (CHATS, {"messages": []}, "messages: the list is empty"),
        (CHATS, {"messages": [{"role": 5, "content": ""}]}, "messages[0].role: int 5, "),
        (CHATS, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text: missing, "),
        (CHATS, {"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls[0]: must be an object"),
        (CHATS, {"add_generation_prompt": False}, "add_generation_prompt: "),
        (CHATS, {"top_logprobs": 2}, "top_logprobs: needs logprobs"),
    ],
)
def test_errors_name_the_members_of_the_api(served: Served, path: str, body: Any, message: str) -> None:
    served.refused(path, {**USUAL.get(path, {}), **body}, message)


def test_requests_have_ids_in_streams_too(served: Served) -> None:
    body = {"prompt": "a", "max_tokens": 2, "stream": True}
    for model in ({}, {"model": "gpt-en"}, {"model": "none"}):
        assert served.post("/v1/completions", {**body, **model}, x_request_id="mine")[2]["x-request-id"] == "mine"
        assert len(served.post("/v1/completions", {**body, **model})[2]["x-request-id"]) == 32


def test_lines_of_the_log_have_the_ids_of_requests() -> None:
    with local_server(embedded_repository(), "--http-port", "0", "--access-log") as server, Client(server.address) as client:
        assert server.server.http_port
        for streams in (True, False):
            body = {"model": "gpt-en", "prompt": "a", "max_tokens": 2, "stream": streams}
            Served(server.server.http_port, client).post("/v1/completions", body, x_request_id="mine")
    ended = [line for line in server.log.splitlines() if "/Generate" in line]
    assert [line.endswith("[request_id=mine]") for line in ended] == [True, True]


def test_openai_seeds_have_64_bits_and_offsets_count_characters(served: Served) -> None:
    body = {"model": "gpt-en", "prompt": "😀😀 café", "max_tokens": 2, "temperature": 0, "echo": True, "logprobs": 0}
    status, found, _ = served.post("/v1/completions", {**body, "seed": 2**40})
    [choice] = found["choices"]
    offsets = choice["logprobs"]["text_offset"]
    assert (status, sorted(offsets)) == (200, offsets)
    for token, offset in zip(choice["logprobs"]["tokens"], offsets, strict=True):
        assert "\ufffd" in token or choice["text"].startswith(token, offset)


def test_openai_scores_prompts_alone(served: Served) -> None:
    body = {"model": "gpt-en", "prompt": ["I am", "The king of"], "echo": True, "logprobs": 1, "temperature": 0}
    scored, longer = (served.post("/v1/completions", {**body, "max_tokens": count})[1] for count in (0, 2))
    for prompt, one, other in zip(body["prompt"], scored["choices"], longer["choices"], strict=True):
        assert (one["text"], one["finish_reason"]) == (prompt, "length")
        size = len(one["logprobs"]["tokens"])
        assert 0 < size < len(other["logprobs"]["tokens"])
        assert all(other["logprobs"][name][:size] == one["logprobs"][name] for name in one["logprobs"])
    assert scored["usage"]["completion_tokens"] == 0
    assert served.post("/v1/completions", {"model": "gpt-en", "prompt": "I am", "max_tokens": 0})[0] == 400


def test_openai_seeds_may_be_signed(served: Served) -> None:
    body = {"model": "gpt-en", "prompt": "I am", "max_tokens": 8, "temperature": 1}
    assert served.post("/v1/completions", {**body, "seed": -1})[0] == 200
    texts = [served.post("/v1/completions", {**body, "seed": seed})[1]["choices"][0]["text"] for seed in (-5, 2**64 - 5)]
    assert texts[0] == texts[1]
    assert served.post("/v1/completions", {**body, "seed": -(2**63) - 1})[0] == 400


def test_openai_choices_may_be_those_of_a_beam_search(served: Served) -> None:
    body = {"model": "gpt-en", "prompt": "I am", "max_tokens": 4, "n": 2, "beam_size": 2}
    found = served.post("/v1/completions", body)[1]["choices"]
    expected = served.client.generate("I am", max_tokens=4, n=2, beam_size=2).choices
    assert [one["text"] for one in found] == [one.text for one in expected]


def test_openai_penalties_are_those_of_the_options(served: Served) -> None:
    body = {"model": "gpt-en", "prompt": "I am", "max_tokens": 40, "temperature": 0}
    penalties = {"presence_penalty": 0.5, "frequency_penalty": 1.5}
    expected = served.client.generate("I am", max_tokens=40, sampling_topk=1, **penalties)
    texts = [served.post("/v1/completions", each)[1]["choices"][0]["text"] for each in (body, {**body, **penalties})]
    assert texts[1] == expected.text != texts[0]


def test_openai_takes_values_without_effect_as_vllm_does(served: Served) -> None:
    body = {"model": "gpt-en", "prompt": "I am", "max_tokens": 2, "seed": 3, "temperature": 1}
    neutral = {"top_k": -1, "min_p": 0.0, "ignore_eos": False, "stop_token_ids": [], "tool_choice": "auto", "stop": []}
    status, found, _ = served.post("/v1/completions", {**body, **neutral})
    assert (status, found["choices"]) == (200, served.post("/v1/completions", body)[1]["choices"])


def test_languages_cannot_be_detected_without_translation_models() -> None:
    with opened(options_of(ENCODER_MODELS)) as served:
        message = "no translation model is loaded: there are no languages to choose from"
        assert served.post("/detect", {"q": "Guten Morgen."})[:2] == (404, {"error": message})
        assert served.get("/languages")[:2] == (200, [])


def test_text_embeddings_inference_classifies_pairs() -> None:
    with opened(options_of(ENCODER_MODELS)) as served:
        _, labels, _ = served.post("/predict", {"inputs": TEXTS})
        assert {one["label"] for one in labels} == {"next", "not_next"}
        assert [len(one) for one in served.post("/predict", {"inputs": [TEXTS, TEXTS]})[1]] == [2, 2]
        body = {"inputs": TEXTS, "raw_scores": True}
        error = served.refused("/predict", body, "raw_scores: the model's bundle has no logits")
        assert error["error_type"] == "validation"


def test_rerank_apis(tmp_path: Path) -> None:
    write_cross_encoder(tmp_path)
    texts = ["one", "one two three four", "one two"]
    with opened(options_of(tmp_path)) as served:
        status, best, _ = served.post("/rerank", {"query": "zero", "texts": texts})
        assert (status, [one["index"] for one in best]) == (200, [1, 2, 0])
        assert [one["score"] for one in best] == pytest.approx([0.880797, 0.5, 0.268941], abs=1e-6)
        _, ranked, _ = served.post("/rerank", {"query": "zero", "texts": texts, "raw_scores": True, "return_text": True})
        assert ranked[0] == {"index": 1, "score": 2.0, "text": texts[1]}
        _, labels, _ = served.post("/predict", {"inputs": [["zero", "one"], ["zero", "one two"]], "raw_scores": True})
        assert [one[0]["score"] for one in labels] == pytest.approx([-1, 0], abs=1e-6)
        assert served.get("/info")[1]["model_type"] == {
            "reranker": {"id2label": {"0": "relevant"}, "label2id": {"relevant": 0}}
        }
        error = served.refused("/rerank", {"query": "zero", "texts": ["one " * 500]}, "texts[0]: ")
        assert error["error_type"] == "validation"
        assert served.post("/rerank", {"query": "zero", "texts": ["one " * 500], "truncate": True})[0] == 200

        ranked = {"query": "zero", "documents": [texts[0], {"text": texts[1]}, texts[2]], "top_n": 2}
        status, found, _ = served.post("/v1/rerank", ranked)
        scores = [{"index": one["index"], "relevance_score": pytest.approx(one["score"])} for one in best[:2]]
        documents = [{**one, "document": {"text": texts[one["index"]]}} for one in scores]
        assert (status, found["model"], found["results"]) == (200, "cross-encoder", documents)
        assert (found["usage"], found["meta"]) == ({"total_tokens": 8 + 6}, {"tokens": {"input_tokens": 8 + 6}})
        assert served.post("/v2/rerank", ranked)[1]["results"] == scores
        for change, message in (
            ({"documents": ["one", {"title": "one"}]}, "documents[1].text: missing, must be a string"),
            ({"documents": []}, "documents: must be a list of strings, or of objects with a text, and not empty"),
            ({"top_n": 0}, "top_n: 0 is out of range"),
            ({"max_tokens_per_doc": 9}, "max_tokens_per_doc: 9 is not supported"),
        ):
            served.refused("/v2/rerank", {**ranked, **change}, message)


@pytest.mark.parametrize("binary", [True, False])
def test_triton_client(served: Served, binary: bool) -> None:
    client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{served.port}")
    assert [client.is_server_live(), client.is_server_ready(), client.is_model_ready("en-de")] == [True] * 3
    assert client.get_model_metadata("en-de", "1")["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1, 1]}]
    assert {one["name"] for one in client.get_model_repository_index()} == {"en-de", "bert-en", "gpt-en", "vit-cifar10"}
    assert client.get_inference_statistics("en-de")["model_stats"][0]["name"] == "en-de"
    paths = {"health/live": "live", "health/ready": "ready", "models/en-de/ready": "ready"}  # KServe's client reads the bodies
    assert all(served.get(f"/v2/{path}")[1] == {name: True} for path, name in paths.items())
    texts = tritonclient.http.InferInput("text", [2, 1], "BYTES")
    texts.set_data_from_numpy(np.array(TEXTS, dtype=object)[:, None], binary_data=binary)
    name = client.get_model_metadata("en-de")["outputs"][0]["name"]
    wanted = [tritonclient.http.InferRequestedOutput(name, binary_data=binary)]
    found = client.infer("en-de", [texts], outputs=wanted).as_numpy(name)
    decoded = [one.decode() if isinstance(one, bytes) else one for one in found.ravel().tolist()]
    assert decoded == [one.text for one in served.client.translate_many(TEXTS, target_language="de")]
    with pytest.raises(tritonclient.http.InferenceServerException if binary else Exception, match="not found"):
        client.infer("other", [texts])


def test_open_inference_loads_the_named_version(tmp_path: Path) -> None:
    for version in (1, 2):
        copy_bundle(tmp_path, version=version)
    options = options_of_flags(tmp_path, "--model-control", "explicit", "--allow-admin")
    with opened(options) as served:

        def versions() -> list[str]:
            return [one["version"] for one in served.post("/v2/repository/index", {"ready": True})[1]]

        assert served.post("/v2/repository/models/toy/load", {"parameters": {"version": "9"}})[0] == 404
        assert served.post("/v2/repository/models/toy/load", {"parameters": {"version": "1"}})[0] == 200
        assert versions() == [one["version"] for one in served.post("/v2/repository/index", b"")[1] if one["state"] == "READY"]
        assert versions() == ["1"]
        assert served.post("/v2/repository/models/toy/load", b"")[0] == 200
        assert versions() == ["2"]
        served.refused("/v2/repository/models/toy/unload", {"parameters": {"version": 2.5}}, "parameters.version:")


@pytest.mark.parametrize("length", ["-1", "9", "9" * 5_000])
def test_lengths_of_heads_of_tensors_are_checked(served: Served, length: str) -> None:
    status, error, _ = served.post("/v2/models/bert-en/infer", b"{}", inference_header_content_length=length)
    assert (status, "is not a number of bytes of the body" in error["error"]) == (400, True)


def test_openapi_document_describes_every_method_and_route(served: Served) -> None:
    _, document, _ = served.get("/openapi.json")
    assert TRANSLATE in document["paths"]
    assert {"/v1/embeddings", "/v2/translate", "/translate", "/rerank", "/v2/models/{name}/infer"} <= document["paths"].keys()
    references = [part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]]
    assert set(references) <= document["components"]["schemas"].keys()


def test_unknown_paths_and_methods_say_what_there_is(served: Served) -> None:
    no_route = "there is no such route; GET /openapi.json describes all routes"
    status, body, _ = served.get("/nothing")
    assert (status, body["error"]) == (404, f"GET /nothing: {no_route}")
    assert served.get("/v1/nothing")[1] == {"error": {"message": f"GET /v1/nothing: {no_route}"}}  # as OpenAI's clients have it
    assert served.get("/v3/style_rules")[1]["message"] == f"GET /v3/style_rules: {no_route}"  # and DeepL's
    for path in ("/nothing/else", "/v1.0/models"):
        for method, (status, body, _) in {"POST": served.post(path, {}), "GET": served.get(path)}.items():
            assert (status, body["error"]) == (404, f"{method} {path}: {no_route}")
    status, body, headers = served.get("/translate")
    assert (status, headers["allow"]) == (405, "POST")
    assert body["error"].startswith("GET /translate: the route takes POST; ")
    assert served.get("/health/")[:2] == served.get("/health")[:2]
    assert served.post("/info", {})[1]["error"].startswith("POST /info: the route takes GET, HEAD; ")
    assert served.get("/v2/languages?type=foo")[:2] == (400, {"message": "type: 'foo' is not source or target"})


# ---- rules


def test_pages_of_other_origins_are_rejected(served: Served) -> None:
    body = {"q": "Hello.", "source": "en", "target": "de"}
    for origin in ("https://evil.example", "null", "http://["):
        assert served.post("/translate", body, origin=origin)[0] == 403
    assert served.post("/translate", body, origin=served.url)[0] == 200
    status, _, headers = served.post("/translate", body, origin=ORIGIN)
    assert (status, headers["access-control-allow-origin"]) == (200, ORIGIN)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:{port}", 403),
        ("[evil.example", 403),
        ("localhost:{port}", 200),
        ("[::1]:{port}", 200),
        ("printer.local", 200),
        (ORIGIN.partition("://")[2], 200),
    ],
)
def test_names_of_others_that_lead_to_this_machine_are_rejected(served: Served, host: str, status: int) -> None:
    """DNS rebinding: the origin of a page agrees with the host of its requests."""
    name = host.format(port=served.port)
    assert served.get("/health", host=name)[0] == status
    assert served.get("/health", host=name, origin=f"http://{name}")[0] == status or name in ORIGIN


POST = b"POST /translate HTTP/1.1\r\nhost: x\r\n"
GET = b"GET /health HTTP/1.1\r\nhost: x\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
MALFORMED = {
    "both lengths": POST + b"content-length: 5\r\n" + CHUNKED + b"0\r\n\r\n",
    "two lengths": POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "many headers": GET + b"x-filler: 1\r\n" * 10_000 + b"\r\n",
    "many headers in one piece": GET + b"x-filler: 1\r\n" * 5_000 + b"connection: close\r\n\r\n",
    "two hosts": GET + b"host: y\r\nconnection: close\r\n\r\n",
    "long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00",
    "unknown encoding": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "space before colon": POST + b"content-length : 5\r\n\r\nhello",
    "signed length": POST + b"content-length: +5\r\n\r\nhello",
    "chunk size in hexadecimal notation": POST + CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "line feed alone": GET + b"a: b\nc: d\r\n\r\n",
    "endless trailers": POST + CHUNKED + b"0\r\n" + b"a: b\r\n" * 100_000,
}


@pytest.mark.parametrize("head", MALFORMED.values(), ids=MALFORMED)
def test_malformed_requests_are_rejected(served: Served, head: bytes) -> None:
    received = served.send(head)
    assert received.startswith(b"HTTP/1.1 400") or (not received and len(head) > http_server.HEAD_BYTES)


@pytest.mark.parametrize("together", [True, False])
def test_upgrades_to_http_2_are_ignored(served: Served, together: bool) -> None:
    """Java's client offers them with each request."""
    body = b'{"q": "upgrade: now.", "source": "en", "target": "de"}'
    upgrade = b"connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    head = POST + b"content-type: application/json\r\n" + upgrade + b"content-length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE_SECONDS) as connection:
        connection.sendall(head + body if together else head)
        if not together:
            time.sleep(0.05)
            connection.sendall(body)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")


def test_trailers_within_the_limit_are_dropped(served: Served) -> None:
    body = b'{"q": "Hi.", "source": "en", "target": "de"}'
    head = POST + b"content-type: application/json\r\nconnection: close\r\n" + CHUNKED
    assert served.send(head + b"%x\r\n%s\r\n0\r\nhost: y\r\n\r\n" % (len(body), body)).startswith(b"HTTP/1.1 200")


def test_encoded_bodies_are_refused(served: Served) -> None:
    head = POST + b"content-type: application/json\r\nconnection: close\r\n"
    chunked = CHUNKED + b"2\r\n{}\r\n0\r\n\r\n"
    gzipped = chunked.replace(b": chunked", b": gzip, chunked")
    twice = b"content-encoding: identity\r\ncontent-encoding: gzip\r\n"
    form = POST + b"content-type: multipart/form-data; boundary=x\r\nconnection: close\r\ncontent-encoding: gzip\r\n"
    form += b"content-length: 2\r\n\r\n{}"
    cases = (b"transfer-encoding", head + gzipped), (b"content-encoding", head + twice + chunked), (b"content-encoding", form)
    for name, request in cases:
        answer = served.send(request)
        assert answer.startswith(b"HTTP/1.1 501")
        assert name + b": only" in answer


def test_slow_heads_and_bodies_are_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.1)
    assert served.send(b"GET /health HTTP/1.1\r\n") == b""
    monkeypatch.setattr("triptych_serving.gateway.call.BODY_SECONDS", 0.1)
    head = f"POST {TRANSLATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n"
    assert served.send(f"{head}connection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 504")


def test_connections_on_which_the_rest_of_an_answered_request_is_missing_are_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE_SECONDS) as connection:
        connection.sendall(b"POST /no/route HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 404")
        connection.sendall(b"h")
        with suppress(ConnectionError):
            while connection.recv(65_536):
                pass  # until the server closes


def test_clients_that_do_not_read_are_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "UNREAD_SECONDS", 0.1)
    batches, requests = 12, http_server.MAX_PIPELINED
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(("127.0.0.1", served.port))
        received = b""
        with suppress(ConnectionError):
            for _ in range(batches):
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * requests)
                threading.Event().wait(0.3)  # without reading
        with suppress(ConnectionError):
            while chunk := connection.recv(1 << 20):
                received += chunk
    assert 0 < received.count(b"HTTP/1.1 200") < batches * requests
    assert b"HTTP/1.1 400" not in received


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/download_file/..%2f..%2fetc%2fpasswd"])
def test_paths_lead_nowhere_else(served: Served, path: str) -> None:
    assert served.send(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode()).startswith(b"HTTP/1.1 404")


def test_keys_and_certificates_are_checked_as_for_grpc(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server_pair, client_pair = authority.sign("server", *LOCAL), authority.sign("client", *LOCAL)
    keys = tmp_path / "keys"
    key = add_key(keys, "app", Role.INFER)
    security = SecurityOptions(
        tls_certificate=server_pair.certificate, tls_key=server_pair.key, tls_client_ca=authority.file, api_keys=keys
    )
    with serving(replace(OPTIONS, security=security, gateway=GatewayOptions("127.0.0.1", 0))) as server:
        context = ssl.create_default_context(cafile=str(authority.file))
        url = f"https://localhost:{server.http_port}"
        health = urllib.request.Request(f"{url}/health")
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            fetch(health, context)
        context.load_cert_chain(client_pair.certificate, client_pair.key)
        assert fetch(health, context)[0] == 200
        models = f"{url}/v1/models"
        assert fetch(urllib.request.Request(models), context)[0] == 401
        assert fetch(urllib.request.Request(models, headers={"authorization": f"Bearer {key}"}), context)[0] == 200
        with_key = urllib.request.Request(f"{url}/languages", f"api_key={key}".encode(), method="GET")  # as LibreTranslateAPI
        without_key = urllib.request.Request(f"{url}/languages")  # as Mastodon, Weblate and Rocket.Chat
        assert fetch(with_key, context)[:2] == fetch(without_key, context)[:2]
        assert fetch(without_key, context)[0] == 200
        assert fetch(urllib.request.Request(f"{url}/v2/languages"), context)[0] == 403
        languages = urllib.request.Request(f"{url}/v2/languages", headers={"authorization": f"DeepL-Auth-Key {key}"})
        assert fetch(languages, context)[0] == 200
        assert fetch(urllib.request.Request(f"{url}/frontend/settings"), context)[1]["keyRequired"] is True
        usage = urllib.request.Request(f"{url}/v2/usage", headers={"authorization": "DeepL-Auth-Key wrong"})
        assert fetch(usage, context)[0] == 403
        wrong = urllib.request.Request(f"{url}/translate", b"q=a&source=en&target=de&api_key=wrong")
        assert fetch(wrong, context)[0] == 403


def test_a_closed_connection_frees_its_rows_and_the_end_waits_for_requests_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = Pace(monkeypatch)
    results: list[int] = []
    with serving(replace(OPTIONS, gateway=GatewayOptions("127.0.0.1", 0))) as server:
        pace.slow.set()
        engine = server.registry.translators[0].engine
        body = json.dumps({"contents": ["a b c d e f g h " * 4], "options": {"maxLength": 60}}).encode()
        head = f"POST {TRANSLATE} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        assert server.http_port
        with socket.create_connection(("127.0.0.1", server.http_port), PATIENCE_SECONDS) as connection:
            connection.sendall(head.encode() + body)
            eventually(lambda: server.calls.count == 1)
        eventually(lambda: server.calls.count == 0)
        eventually(lambda: engine.count_rows()[0] == 0)

        served = Served(server.http_port, None)  # type: ignore[arg-type]
        thread = threading.Thread(target=lambda: results.append(served.post(TRANSLATE, {"contents": ["a b c"]})[0]))
        thread.start()
        eventually(lambda: server.calls.count == 1)
    thread.join(PATIENCE_SECONDS)
    assert results == [200]
