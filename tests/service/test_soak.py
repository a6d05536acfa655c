"""Minutes of mixed load with cancelled calls: every answer right, memory flat.

TRIPTYCH_SOAK_SECONDS=600 pytest -m soak
"""

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from triptych_client import Client, DecodingOptions

SECONDS = float(os.environ.get("TRIPTYCH_SOAK_SECONDS", "180"))
FIXTURES = Path(__file__).parents[1] / "fixtures"
GROWTH_BYTES = 32 * 1024 * 1024  # allocators settle; a leak of a kilobyte a call would show ten times this
pytestmark = pytest.mark.soak


@pytest.fixture
def server() -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "triptych_cli", "serve", "--models", str(FIXTURES / "models"), "--host", "127.0.0.1"]
    process = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    port = next(match[1] for line in process.stderr if (match := re.search(r"ready on [^:]+:(\d+)", line)))
    yield f"127.0.0.1:{port}", psutil.Process(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def test_mixed_load_is_answered_and_memory_stays_flat(server: tuple[str, psutil.Process]) -> None:
    address, process = server
    pairs = _pairs()
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


def _pairs() -> list[tuple[str, str]]:
    lines = (FIXTURES / "checkpoint" / "samples.tsv").read_text(encoding="utf-8").splitlines()
    return [(source, target) for source, _, target in (line.partition("\t") for line in lines)]


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
