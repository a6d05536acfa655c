"""A server survives clients that are killed and a runtime that fails."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import psutil
import pytest

from triptych_client import Client

from ...fixtures.encoders import NUMBERS
from ...fixtures.toy import PAIRS, SOURCE, TARGET
from ..support.bundles import poison_classifier, poison_translator, toy_tokenizer
from ..support.in_process import Log, options_of, serving
from ..support.messages import ask
from ..support.processes import PATIENCE_SECONDS, ServerProcess, eventually
from ..support.telemetry import Scrape

KILLED_CLIENTS = Path(__file__).parents[1] / "support" / "killed_clients.py"
AT_ONCE = 8
SPARE = 8  # threads and descriptors that gRPC keeps or not
INTERNAL = grpc.StatusCode.INTERNAL


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


def translate(channel: grpc.Channel, pair: tuple[str, str], model: str = "") -> grpc.StatusCode:
    try:
        response = ask(channel, "Translate", contents=[pair[0]], model=model)
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
    """Address of a server whose models fail in the runtime; it ends well all the same."""
    repository = tmp_path_factory.mktemp("models")
    poison_translator(repository, "encoder", "source", rare_token(0))
    poison_translator(repository, "step", "unsqueeze", rare_token(1))
    poison_classifier(repository)
    with Log() as log:
        with serving(options_of(repository)) as server:
            yield f"127.0.0.1:{server.port}"
        assert any("out of data bounds" in line for line in log.lines)  # it was the runtime


@pytest.mark.parametrize(("graph", "side"), [("encoder", 0), ("step", 1)])
def test_a_step_that_fails_in_the_runtime_is_the_failure_of_one_text(failing: str, graph: str, side: int) -> None:
    tokens, rare = tokens_of(side), rare_token(side)
    poisoned = [pair for pair, ids in tokens.items() if rare in ids]
    assert 0 < len(poisoned) < 20
    with grpc.insecure_channel(failing) as channel, ThreadPoolExecutor(64) as pool:
        codes = dict(zip(tokens, pool.map(lambda pair: translate(channel, pair, graph), tokens), strict=True))
        assert [pair for pair, code in codes.items() if code is INTERNAL] == poisoned
        assert set(codes.values()) == {INTERNAL, grpc.StatusCode.OK}
        assert translate(channel, next(pair for pair in tokens if pair not in poisoned), graph) is grpc.StatusCode.OK


def test_a_batch_that_fails_in_the_runtime_is_the_failure_of_one_text(failing: str) -> None:
    with grpc.insecure_channel(failing) as channel, ThreadPoolExecutor(64) as pool:
        texts = [f"anna lives in paris {number} ." for number in NUMBERS] * 6
        outcomes = list(pool.map(lambda text: entities(channel, text), texts))
        for text, outcome in zip(texts, outcomes, strict=True):
            assert outcome == (INTERNAL if "seven" in text else ["PER", "LOC"])
        assert entities(channel, texts[0]) == ["PER", "LOC"]


def entities(channel: grpc.Channel, text: str) -> list[str] | grpc.StatusCode:
    try:
        response = ask(channel, "ClassifyTokens", contents=[text])
    except grpc.RpcError as error:
        return error.code()
    return [entity.label for entity in response.results[0].entities]
