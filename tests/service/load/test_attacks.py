"""Minutes of requests that try to cost much, beside a client whose every answer is right.

TRIPTYCH_SOAK_SECONDS=300 pytest -m soak tests/service/load/test_attacks.py --log-cli-level=INFO
"""

import itertools
import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from PIL import Image

from triptych.v1 import translation_pb2
from triptych.v1.translation_pb2_grpc import TranslationServiceStub

from ...fixtures.toy import PAIRS, SOURCES, copy_models
from ..support.messages import ask
from ..support.processes import PATIENCE_SECONDS, ServerProcess

SECONDS = float(os.environ.get("TRIPTYCH_SOAK_SECONDS", "180"))
ATTACKERS = 3
# Beyond what it has after a tenth of the time: heaps settle. One of the requests below once took gigabytes.
GROWTH_BYTES = 256 << 20
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
OWN = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
OK, INVALID, EXHAUSTED = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
LATE, GONE, NOT_FOUND = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.NOT_FOUND
logger = logging.getLogger(__name__)
pytestmark = pytest.mark.soak
numbers = itertools.count()
Options = translation_pb2.DecodingOptions


@dataclass(frozen=True)
class Attack:
    """A request that tries to cost much.

    Args:
        name: for the log.
        send: sends the request; returns when it has ended, or raises RpcError.
        codes: how it may end.
    """

    name: str
    send: Callable[[grpc.Channel], object]
    codes: frozenset[grpc.StatusCode]


def asking(
    method: str, fields: Callable[[], dict[str, Any]], timeout: float = PATIENCE_SECONDS
) -> Callable[[grpc.Channel], object]:
    return lambda channel: ask(channel, method, timeout=timeout, **fields())


def translating(
    texts: Callable[[], list[str]], options: Options | None = None, timeout: float = PATIENCE_SECONDS
) -> Callable[[grpc.Channel], object]:
    return asking("Translate", lambda: {"contents": texts(), "options": options}, timeout)


def coded(make: Callable[[int], str]) -> Callable[[grpc.Channel], object]:
    """Translate from a language whose code differs each time."""
    return asking("Translate", lambda: {"contents": ["a"], "source_language_code": make(next(numbers))})


def encoded(channel: grpc.Channel) -> object:
    reading = translation_pb2.DocumentReadOptions(encoding=f"{next(numbers)}" + "x" * 1_000_000)
    config = translation_pb2.DocumentConfig(format="text", file_name="a.txt", read_options=reading)
    return translate_document(channel, config, b"Hello.", PATIENCE_SECONDS)


def translate_document(
    channel: grpc.Channel, config: translation_pb2.DocumentConfig, content: bytes, timeout: float, pause: float = 0.0
) -> object:
    """Translate a document; `pause` in seconds before its content is sent."""

    def parts() -> Iterator[translation_pb2.TranslateDocumentRequest]:
        yield translation_pb2.TranslateDocumentRequest(config=config)
        time.sleep(pause)
        yield translation_pb2.TranslateDocumentRequest(chunk=content)

    return list(TranslationServiceStub(channel).TranslateDocument(parts(), timeout=timeout))


def documents(format_name: str, content: bytes, pause: float = 0.0) -> Callable[[grpc.Channel], object]:
    config = translation_pb2.DocumentConfig(format=format_name)
    return lambda channel: translate_document(channel, config, content, 0.5, pause)


def cancelled(channel: grpc.Channel) -> object:
    request = translation_pb2.TranslateRequest(contents=["\n" * 900_000 + "a"] * 4)
    future = TranslationServiceStub(channel).Translate.future(request, timeout=PATIENCE_SECONDS)
    time.sleep(0.05)
    future.cancel()
    try:
        return future.result()
    except grpc.FutureCancelledError:
        raise future from None


def filling(text: str, **fields: Any) -> Callable[[grpc.Channel], object]:
    return asking("FillMask", lambda: {"contents": [text], **fields})


def ragged() -> dict[str, Any]:
    """Make tensors of masked texts that are padded to the text with most masks."""
    texts = [b"[MASK]"] * 500 + [b"[MASK]" * 10]
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [len(texts)], "contents": {"bytes_contents": texts}}]
    return {"model_name": "toy-bert", "inputs": inputs, "parameters": {"top_k": {"int64_param": 1_000}}}


def watching(channel: grpc.Channel) -> object:
    """Open more health watchers than one client may have; some are refused, in any order."""
    watchers = [health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()) for _ in range(300)]
    try:
        return [next(watcher) for watcher in watchers]
    finally:
        for watcher in watchers:
            watcher.cancel()


@cache
def scans() -> bytes:
    """Return a small JPEG file with a hundred scans of a large image."""
    file = BytesIO()
    Image.new("L", (8_000, 8_000)).save(file, "JPEG", progressive=True, quality=1)
    data = file.getvalue()
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * 90 + data[-2:]


WIDE = Options(beam_size=32, num_hypotheses=32, return_alignment=True, min_length=60, max_length=63, split_sentences=2)
WHOLE = " ".join("a" * 30)
PAIR = translation_pb2.TranslationPair(source="a", target="b")

ATTACKS = [
    Attack("huge language codes", coded(lambda number: f"{number}" + "x" * 16_000_000), frozenset({EXHAUSTED})),
    Attack("large language codes", coded(lambda number: f"{number}" + "x" * 8_000_000), frozenset({INVALID})),
    Attack("many language codes", coded(lambda number: f"fr-x-a{number:07}"), frozenset({NOT_FOUND})),
    Attack("large names of encodings", encoded, frozenset({INVALID})),
    Attack("short lines", translating(lambda: ["a\n" * 500_000]), frozenset({INVALID})),
    Attack("short sentences", translating(lambda: ["天。" * 500_000]), frozenset({INVALID})),
    Attack("texts of short lines", translating(lambda: ["a\n" * 500_000] * 4), frozenset({INVALID})),
    Attack("short texts", translating(lambda: ["a"] * 2_700_000), frozenset({INVALID})),
    Attack("blank lines", translating(lambda: ["\n" * 900_000 + "a"] * 4, timeout=0.2), frozenset({OK, LATE, EXHAUSTED})),
    Attack("cancelled preparation", cancelled, frozenset({OK, GONE})),
    Attack("pairs", asking("ScoreTranslations", lambda: {"pairs": [PAIR] * 1_000_000}), frozenset({INVALID})),
    Attack("rows x beams x length", translating(lambda: ["a"] * 16_000, WIDE), frozenset({INVALID})),
    Attack("alignments", translating(lambda: [WHOLE] * 1_000, WIDE), frozenset({INVALID})),
    Attack("large alignments", translating(lambda: [WHOLE] * 8, WIDE), frozenset({OK, EXHAUSTED})),
    Attack("candidates of masks", filling("[MASK]" * 20, top_k=1_000), frozenset({OK, INVALID})),
    Attack("targets of masks", filling("[MASK]", targets=["a"] * 16_000), frozenset({OK, INVALID})),
    Attack("vectors", asking("EmbedText", lambda: {"contents": ["a dog"] * 16_000}), frozenset({OK, EXHAUSTED})),
    Attack("padded tensors", asking("ModelInfer", ragged), frozenset({INVALID, EXHAUSTED})),
    Attack("brackets in Markdown", documents("markdown", b"![" * 100_000), frozenset({OK, LATE, EXHAUSTED})),
    Attack("unclosed tags in HTML", documents("html", b"<a " * 60_000), frozenset({OK, LATE, EXHAUSTED})),
    Attack("slow documents", documents("text", b"Hello.", pause=1.0), frozenset({LATE, EXHAUSTED})),
    Attack("health watchers", watching, frozenset({EXHAUSTED})),
    Attack("scans of a JPEG file", asking("ClassifyImage", lambda: {"images": [scans()] * 10}), frozenset({INVALID})),
]


@dataclass
class Findings:
    """Wrong answers and unexpected ends, and figures for the log."""

    wrong: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of each well-behaved call
    worst_health: float = 0.0


def outcome(send: Callable[[], object]) -> grpc.StatusCode:
    try:
        send()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
        return code
    return OK


def attack(address: str, seed: int, stop: threading.Event, found: Findings) -> None:
    rng = random.Random(seed)
    while not stop.is_set():
        one = rng.choice(ATTACKS)
        with grpc.insecure_channel(address, [*UNLIMITED, *OWN]) as channel:
            code = outcome(lambda: one.send(channel))  # noqa: B023 - called at once
        found.ended[f"{one.name}: {code.name}"] += 1
        if code not in one.codes:
            found.wrong.append(f"{one.name} ended with {code.name}")


def behave(address: str, stop: threading.Event, found: Findings) -> None:
    """Translate sentences one by one; in float32 the answers are known."""
    with grpc.insecure_channel(address, OWN) as channel:
        for source, target in itertools.cycle(PAIRS):
            if stop.is_set():
                return
            began = time.monotonic()
            response = ask(channel, "Translate", contents=[source])
            found.seconds.append(time.monotonic() - began)
            if (said := response.translations[0].translated_text) != target:
                found.wrong.append(f"{source} -> {said}")
            time.sleep(0.01)


def check_health(address: str, stop: threading.Event, found: Findings) -> None:
    with grpc.insecure_channel(address, OWN) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while not stop.wait(0.02):
            began = time.monotonic()
            stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS)
            found.worst_health = max(found.worst_health, time.monotonic() - began)


def guarded(run: Callable[..., None], stop: threading.Event, found: Findings, *arguments: Any) -> threading.Thread:
    """Start a thread; what it raises is a finding."""

    def target() -> None:
        try:
            run(*arguments, stop, found)
        except Exception as error:  # an assertion in a thread would be lost
            found.wrong.append(repr(error))

    thread = threading.Thread(target=target)
    thread.start()
    return thread


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(copy_models(tmp_path)) as server:
        yield server


def test_costly_requests_neither_stop_nor_disturb_others(server: ServerProcess) -> None:
    process, stop, alone = psutil.Process(server.pid), threading.Event(), threading.Event()
    quiet, found = Findings(), Findings()
    first = guarded(behave, alone, quiet, server.address)
    time.sleep(SECONDS / 10)
    alone.set()
    first.join()
    threads = [guarded(attack, stop, found, server.address, seed) for seed in range(ATTACKERS)]
    threads += [guarded(run, stop, found, server.address) for run in (behave, check_health)]
    peak, settled = 0, 0
    began = time.monotonic()
    while (passed := time.monotonic() - began) < SECONDS:
        resident = process.memory_info().rss
        settled = max(settled, resident) if passed < SECONDS / 10 else settled
        peak = max(peak, resident)
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    usual, busy, health = (1e3 * one for one in (median(quiet.seconds), median(found.seconds), found.worst_health))
    logger.info("%s", dict(sorted(found.ended.items())))
    # The attackers share this process, and its lock, with the others.
    logger.info("p50 %.1f ms alone, %.1f ms under attack; health at most %.0f ms", usual, busy, health)
    logger.info("%.0f MB after a tenth of %.0f s, at most %.0f MB", settled / 1e6, SECONDS, peak / 1e6)
    assert not [*quiet.wrong, *found.wrong]
    assert len(found.seconds) > SECONDS / 10  # the well-behaved client was served all the time
    assert peak - settled < GROWTH_BYTES
    with grpc.insecure_channel(server.address, OWN) as channel:
        assert outcome(lambda: ask(channel, "Translate", contents=SOURCES[:3])) is OK
