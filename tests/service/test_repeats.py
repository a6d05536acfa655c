"""Requests that come more than once, on a real port."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository.model_manager import ModelControl, RepositoryOptions
from triptych_serving.response_cache.response_cache import ResponseCacheOptions
from triptych_serving.scheduling.request import Call
from triptych_serving.security.options import SecurityOptions
from triptych_serving.server import Server

from ..fixtures.encoders import write_every_bundle
from ..fixtures.toy import SOURCE, TARGET, TARGETS, copy_bundle
from .support.in_process import OPTIONS, serving
from .support.messages import ask, noise
from .support.processes import PATIENCE_SECONDS, eventually

FOLLOWERS = 4
BOTH = ResponseCacheOptions(cache_bytes=1 << 20, deduplicate=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_every_bundle(folder)
    copy_bundle(folder)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    options = replace(OPTIONS, repository=RepositoryOptions(repository), encoders=EncoderOptions(threads=1, runs=1))
    with serving(replace(options, repeats=BOTH)) as server:
        yield server


@pytest.fixture(scope="module")
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


@pytest.fixture(scope="module")
def translation(channel: grpc.Channel) -> TranslationServiceStub:
    return TranslationServiceStub(channel)


@pytest.fixture
def translator(server: Server) -> Translator:
    return server.registry.translators[0]


CASES: dict[str, dict[str, Any]] = {
    "Translate": {"contents": [TARGET, SOURCE]},
    "ScoreTranslations": {"pairs": [{"source": SOURCE, "target": TARGET}]},
    "FillMask": {"contents": ["one two [MASK]"], "top_k": 2},
    "EmbedText": {"contents": ["one two", "three"], "model": "fill-mask"},
    "AnswerQuestion": {"inputs": [{"question": "where does anna live?", "context": "anna lives in paris"}]},
    "ClassifyImage": {"images": [noise(9, 9), noise(600, 600)]},
}


@pytest.mark.parametrize("method", CASES)
def test_a_request_is_answered_again_from_memory(server: Server, channel: grpc.Channel, method: str) -> None:
    hits, misses = server.repeats.counters.hits, server.repeats.counters.misses
    first = ask(channel, method, **CASES[method])
    again = ask(channel, method, **{**CASES[method], "model": first.model, "model_version": first.model_version})
    assert (server.repeats.counters.hits, server.repeats.counters.misses) == (hits + 1, misses + 1)
    assert first.timing.inference_seconds > 0 == again.timing.inference_seconds
    for response in (first, again):
        response.ClearField("timing")
    assert first == again


@pytest.mark.parametrize(
    "options", [{"seed": 1, "sampling_topk": 5}, {"sampling_topp": 0.9}, {"sampling_topk": 0}, {"seed": 1}]
)
def test_samples_are_drawn_each_time(translation: TranslationServiceStub, server: Server, options: dict[str, Any]) -> None:
    before = replace(server.repeats.counters)
    request = translation_pb2.TranslateRequest(contents=[SOURCE], options=translation_pb2.DecodingOptions(**options))
    for _ in range(2):
        assert translation.Translate(request).timing.inference_seconds > 0
    assert server.repeats.counters == before


class Held:
    """The engine gets no rows until it is told to: equal requests meet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, translator: Translator) -> None:
        self.calls: list[Call[Any]] = []
        self._submit = translator.engine.submit
        monkeypatch.setattr(translator.engine, "submit", self.calls.append)

    def release(self) -> None:
        for call in self.calls:
            if not call.over:
                self._submit(call)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, translator: Translator) -> Held:
    return Held(monkeypatch, translator)


@pytest.fixture
def fresh(server: Server, request: pytest.FixtureRequest) -> translation_pb2.TranslateRequest:
    """A request that nobody has sent yet."""
    return translation_pb2.TranslateRequest(contents=[TARGETS[5], *request.node.name.split("_")])


def waiting(server: Server) -> int:
    return sum(len(flight._waiters) for flight in list(server.repeats._flights.values()))


def test_equal_requests_at_once_are_computed_once(
    server: Server, translation: TranslationServiceStub, held: Held, fresh: translation_pb2.TranslateRequest
) -> None:
    shared = server.repeats.counters.shared
    calls = [translation.Translate.future(fresh, timeout=PATIENCE_SECONDS) for _ in range(1 + FOLLOWERS)]
    eventually(lambda: waiting(server) == FOLLOWERS)
    held.release()
    texts = {tuple(one.translated_text for one in call.result().translations) for call in calls}
    assert (len(texts), len(held.calls)) == (1, 1)
    assert server.repeats.counters.shared == shared + FOLLOWERS
    worked = sorted(call.result().timing.inference_seconds for call in calls)
    assert worked[-1] > 0 == worked[-2]


def test_answers_go_with_their_model(tmp_path: Path) -> None:
    copy_bundle(tmp_path)
    repository = RepositoryOptions(tmp_path, control=ModelControl.EXPLICIT, load_models=("toy",))
    options = replace(OPTIONS, repository=repository, security=SecurityOptions(allow_admin=True), repeats=BOTH)
    with serving(options) as server, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        request, counters = translation_pb2.TranslateRequest(contents=[SOURCE]), server.repeats.counters
        translate = TranslationServiceStub(channel).Translate
        translate(request)
        assert (translate(request).model_version, counters.hits) == ("1", 1)
        copy_bundle(tmp_path, version=2)
        ask(channel, "LoadModel", name="toy")
        assert (counters.purged, counters.entries) == (1, 0)
        answer = translate(request)
        assert (answer.model_version, answer.timing.inference_seconds > 0) == ("2", True)
        assert translate(request).timing.inference_seconds == 0
        ask(channel, "UnloadModel", name="toy")
        assert (counters.purged, counters.entries, counters.bytes) == (2, 0, 0)
