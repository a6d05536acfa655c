"""Minutes of mixed load with cancelled calls: every answer right, memory flat.

TRIPTYCH_SOAK_SECONDS=600 pytest -m soak --log-cli-level=INFO
"""

import logging
import os
import random
import threading
import time

import psutil
import pytest

from triptych_client import Client, DecodingOptions

from ...fixtures.toy import MODELS, PAIRS, SOURCES
from ..support.processes import ServerProcess

SECONDS = float(os.environ.get("TRIPTYCH_SOAK_SECONDS", "180"))
GROWTH_BYTES = 32 * 1024 * 1024  # allocators settle; a leak of a kilobyte a call would show ten times this
logger = logging.getLogger(__name__)
pytestmark = pytest.mark.soak


def test_mixed_load_is_answered_and_memory_stays_flat() -> None:
    with ServerProcess(MODELS) as server:
        _soak(server.address, psutil.Process(server.pid))


class Answers:
    """Record the server's translations: in float32, equal requests must get equal results."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], str] = {(source, 1): target for source, target in PAIRS}
        self.wrong: list[str] = []

    def check(self, source: str, beam_size: int, text: str, whole: bool = True) -> None:
        """Compare an answer, or its beginning, with the one before."""
        known = self._known.setdefault((source, beam_size), text) if whole else self._known.get((source, beam_size), text)
        if text != (known if whole else known[: len(text)]):
            self.wrong.append(text)


def _soak(address: str, process: psutil.Process) -> None:
    stop = threading.Event()
    answers = Answers()
    threads = [threading.Thread(target=_load, args=(address, seed, stop, answers)) for seed in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(SECONDS / 3)
    settled = process.memory_info().rss
    time.sleep(2 * SECONDS / 3)
    grown = process.memory_info().rss - settled
    stop.set()
    for thread in threads:
        thread.join()
    logger.info("%.1f MB after a third of %.0f s, %+.1f MB at the end", settled / 1e6, SECONDS, grown / 1e6)
    assert not answers.wrong
    assert grown < GROWTH_BYTES
    assert process.num_threads() < 64


def _load(address: str, seed: int, stop: threading.Event, answers: Answers) -> None:
    """Single texts, big calls, beams, samples, scores, streams read to the end or dropped, short answers: at random."""
    rng = random.Random(seed)
    with Client(address) as client:
        while not stop.is_set():
            _ask(client, rng, answers)


def _ask(client: Client, rng: random.Random, answers: Answers) -> None:
    beam_size = rng.choice([1, 1, 2, 4, 5])
    options = DecodingOptions(beam_size=beam_size)
    sources = rng.choices(SOURCES, k=rng.choice([1, 1, 1, 40]))
    match rng.choice(["many", "stream", "drop", "short", "sample", "score"]):
        case "many":
            for source, answer in zip(sources, client.translate_many(sources, options=options), strict=True):
                answers.check(source, beam_size, answer.text)
        case "short":
            answers.check(sources[0], 1, client.translate(sources[0], options=DecodingOptions(max_length=2)).text, whole=False)
        case "sample":
            drawn = DecodingOptions(sampling_topk=rng.choice([0, 5, 50]), num_hypotheses=3)
            answers.wrong += [""] * (len(client.translate(sources[0], options=drawn).hypotheses) != 3)
        case "score":
            [score] = client.score_translations([rng.choice(PAIRS)])
            answers.wrong += [str(score)] * (score.log_probability < -1)
        case kind:
            with client.translate_stream(sources[0], options=options) as stream:
                text = "".join(list(stream) if kind == "stream" else [next(iter(stream))])
            answers.check(sources[0], beam_size, text, whole=kind == "stream")
