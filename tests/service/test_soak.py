"""Minutes of mixed load with cancelled calls: every answer right, memory flat.

TRIPTYCH_SOAK_SECONDS=600 pytest -m soak
"""

import os
import random
import threading
import time

import psutil
import pytest

from triptych_client import Client, DecodingOptions

from ..fixtures.toy import MODELS, SOURCES, TARGETS
from .processes import ServerProcess

SECONDS = float(os.environ.get("TRIPTYCH_SOAK_SECONDS", "180"))
GROWTH_BYTES = 32 * 1024 * 1024  # allocators settle; a leak of a kilobyte a call would show ten times this
pytestmark = pytest.mark.soak


def test_mixed_load_is_answered_and_memory_stays_flat() -> None:
    with ServerProcess(MODELS) as server:
        _soak(server.address, psutil.Process(server.pid))


def _soak(address: str, process: psutil.Process) -> None:
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    stop = threading.Event()
    wrong: list[str] = []
    threads = [threading.Thread(target=_load, args=(address, pairs, seed, stop, wrong)) for seed in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS / 3)
    settled = process.memory_info().rss
    time.sleep(2 * SECONDS / 3)
    grown = process.memory_info().rss - settled
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert grown < GROWTH_BYTES
    assert process.num_threads() < 64


def _load(address: str, pairs: list[tuple[str, str]], seed: int, stop: threading.Event, wrong: list[str]) -> None:
    """Single texts, big calls, streams read to the end, streams dropped, short answers: at random until stopped."""
    rng = random.Random(seed)
    with Client(address) as client:
        while not stop.is_set():
            chosen = rng.choices(pairs, k=rng.choice([1, 1, 1, 40]))
            kind = rng.choice(["many", "stream", "drop", "short"])
            if kind == "many":
                answers = [answer.text for answer in client.translate_many([source for source, _ in chosen])]
                wrong += [a for a, (_, target) in zip(answers, chosen, strict=True) if a != target]
            elif kind == "short":
                answer = client.translate(chosen[0][0], options=DecodingOptions(max_length=2))
                wrong += [answer.text] if not chosen[0][1].startswith(answer.text) else []
            else:
                with client.translate_stream(chosen[0][0]) as stream:
                    text = "".join(list(stream) if kind == "stream" else [next(iter(stream))])
                wrong += [text] if not chosen[0][1].startswith(text) else []
