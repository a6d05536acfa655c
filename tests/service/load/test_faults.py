"""A server survives clients that are killed, termination under full load and a runtime that fails."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil
import pytest

from triptych.v1 import token_classification_pb2, translation_pb2
from triptych.v1.token_classification_pb2_grpc import TokenClassificationServiceStub
from triptych.v1.translation_pb2_grpc import TranslationServiceStub
from triptych_client import Client

from ...fixtures.encoders import NUMBERS
from ...fixtures.toy import MODELS, PAIRS, SOURCE, SOURCES, TARGET, TARGETS
from ..support.bundles import poison_classifier, poison_translator, toy_tokenizer
from ..support.processes import ENDLESS_SECONDS, PATIENCE_SECONDS, STOPPING, ServerProcess, eventually
from ..support.telemetry import Scrape

KILLED_CLIENTS = Path(__file__).parents[1] / "support" / "killed_clients.py"
AT_ONCE = 8
SPARE = 8  # threads and descriptors that gRPC keeps or not
UNAVAILABLE, INTERNAL = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL
SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 16_384), ("grpc.http2.bdp_probe", 0)]
Events = Iterator[translation_pb2.TranslateStreamResponse]


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.full)])
def test_clients_that_are_killed_leave_nothing_behind(server: ServerProcess, count: int) -> None:
    kill_clients(server, AT_ONCE)  # what is allocated once is there then
    process = psutil.Process(server.pid)
    threads, files = process.num_threads(), process.num_fds()
    kill_clients(server, count)
    eventually(lambda: process.num_threads() <= threads + SPARE, process.num_threads)
    eventually(lambda: process.num_fds() <= files + SPARE, process.num_fds)
    with Client(server.address) as client:
        assert client.translate(SOURCE).text == TARGET


def kill_clients(server: ServerProcess, count: int) -> None:
    """Afterwards nothing runs or waits for them."""
    command = [sys.executable, str(KILLED_CLIENTS), server.address, str(count), str(AT_ONCE)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=4 * PATIENCE_SECONDS)
    assert result.stdout.split() == [str(count)], result.stderr
    eventually(lambda: loads(server) == (0, 0), lambda: loads(server))


def loads(server: ServerProcess) -> tuple[float | None, float | None]:
    """Rows that run and rows that wait."""
    scrape = Scrape(server.metrics_address)
    running, waiting = (scrape.value(f"num_requests_{what}", model="toy", version="1") for what in ("running", "waiting"))
    return running, waiting


def test_the_end_under_full_load_fails_no_call_that_was_accepted() -> None:
    with ServerProcess(MODELS, "--exit-timeout-secs", ENDLESS_SECONDS) as server:
        with streams(server.address, 6) as begun, ThreadPoolExecutor(2 * AT_ONCE) as pool:
            stop = threading.Event()
            callers = [pool.submit(call_until_refused, server.address, stop) for _ in range(AT_ONCE)]
            readers = [pool.submit(read_all, events) for events in begun]
            time.sleep(0.2)
            server.signal()
            server.wait_for_log(STOPPING)
            for caller in callers:
                assert caller.result(PATIENCE_SECONDS) is UNAVAILABLE
            stop.set()
            for reader in readers:
                assert reader.result(PATIENCE_SECONDS) == TARGETS
        assert server.wait() == 0


@contextmanager
def streams(address: str, count: int) -> Iterator[Sequence[Events]]:
    """Streams that have begun, each on a connection of its own."""
    channels = [grpc.insecure_channel(address, [*SMALL_WINDOW, ("grpc.use_local_subchannel_pool", 1)]) for _ in range(count)]
    try:
        request = translation_pb2.TranslateStreamRequest(contents=SOURCES)
        begun = [TranslationServiceStub(channel).TranslateStream(request) for channel in channels]
        for events in begun:
            assert next(events).piece.text
        yield begun
    finally:
        for channel in channels:
            channel.close()


def read_all(events: Events) -> list[str]:
    results = [event.result for event in events if event.WhichOneof("event") == "result"]
    texts = {result.content_index: result.translation.translated_text for result in results}
    return [texts[index] for index in range(len(texts))]


def call_until_refused(address: str, stop: threading.Event) -> grpc.StatusCode:
    """One call after the other: each has the right answer until one is refused, and so are all after it."""
    with grpc.insecure_channel(address) as channel:
        stub = TranslationServiceStub(channel)
        code = grpc.StatusCode.OK
        while code is grpc.StatusCode.OK:
            code = translate(stub, PAIRS[7])
        assert {translate(stub, PAIRS[7]) for _ in range(5)} == {code}
        return code


def translate(stub: TranslationServiceStub, pair: tuple[str, str], model: str = "") -> grpc.StatusCode:
    request = translation_pb2.TranslateRequest(contents=[pair[0]], model=model)
    try:
        response = stub.Translate(request, timeout=PATIENCE_SECONDS)
    except grpc.RpcError as error:
        return error.code()
    assert response.translations[0].translated_text == pair[1]
    return grpc.StatusCode.OK


def tokens_of(side: int) -> dict[tuple[str, str], list[int]]:
    """Return the tokens of one side of some pairs."""
    return {pair: toy_tokenizer().encode(pair[side], add_special_tokens=False).ids for pair in PAIRS[:60]}


def rare_token(side: int) -> int:
    """Return a token of one of these pairs that few others have."""
    tokens = tokens_of(side)
    return min(tokens[PAIRS[7]], key=lambda token: sum(token in ids for ids in tokens.values()))


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server whose models fail in the runtime; its log has tracebacks, and it ends well all the same."""
    repository = tmp_path_factory.mktemp("models")
    poison_translator(repository, "encoder", "source", rare_token(0))
    poison_translator(repository, "step", "unsqueeze", rare_token(1))
    poison_classifier(repository, "seven")
    server = ServerProcess(repository)
    try:
        yield server.address
        server.signal()
        assert server.wait() == 0
        assert "out of data bounds" in server.log  # it was the runtime
    finally:
        server.signal(signal.SIGKILL)  # no effect on one that has ended


@pytest.mark.parametrize(("graph", "side"), [("encoder", 0), ("step", 1)])
def test_a_step_that_fails_in_the_runtime_is_the_failure_of_one_text(failing: str, graph: str, side: int) -> None:
    tokens, rare = tokens_of(side), rare_token(side)
    poisoned = [pair for pair, ids in tokens.items() if rare in ids]
    assert 0 < len(poisoned) < 20
    with grpc.insecure_channel(failing) as channel, ThreadPoolExecutor(64) as pool:
        stub = TranslationServiceStub(channel)
        codes = dict(zip(tokens, pool.map(lambda pair: translate(stub, pair, graph), tokens), strict=True))
        assert [pair for pair, code in codes.items() if code is INTERNAL] == poisoned
        assert set(codes.values()) == {INTERNAL, grpc.StatusCode.OK}
        assert translate(stub, next(pair for pair in tokens if pair not in poisoned), graph) is grpc.StatusCode.OK


def test_a_batch_that_fails_in_the_runtime_is_the_failure_of_one_text(failing: str) -> None:
    with grpc.insecure_channel(failing) as channel, ThreadPoolExecutor(64) as pool:
        stub = TokenClassificationServiceStub(channel)
        texts = [f"anna lives in paris {number} ." for number in NUMBERS] * 6
        outcomes = list(pool.map(lambda text: entities(stub, text), texts))
        for text, outcome in zip(texts, outcomes, strict=True):
            assert outcome == (INTERNAL if "seven" in text else ["PER", "LOC"])
        assert entities(stub, texts[0]) == ["PER", "LOC"]


def entities(stub: TokenClassificationServiceStub, text: str) -> list[str] | grpc.StatusCode:
    request = token_classification_pb2.ClassifyTokensRequest(contents=[text])
    try:
        response = stub.ClassifyTokens(request, timeout=PATIENCE_SECONDS)
    except grpc.RpcError as error:
        return error.code()
    return [entity.label for entity in response.results[0].entities]
