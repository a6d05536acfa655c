"""Minutes of translation and text generation together: every answer right or refused as documented, no task starved.

TRIPTYCH_SOAK_SECONDS=300 pytest -m soak tests/service/load/test_generation_soak.py --log-cli-level=INFO
"""

import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from triptych_client import Client, DeadlineExceededError, DecodingOptions, InvalidArgumentError, ResourceExhaustedError
from triptych_client.generation import Generation

from ...fixtures.decoders import SHAPE, llama_bundle
from ...fixtures.sentences import SENTENCES
from ...fixtures.toy import PAIRS, SOURCES, copy_bundle
from ..support.processes import PATIENCE_SECONDS, ServerProcess

SECONDS = float(os.environ.get("TRIPTYCH_SOAK_SECONDS", "180"))
TRANSLATORS, GENERATORS = 3, 5  # clients
STARVED_SECONDS = 10.0  # without an answer to any client of a task
GROWTH_BYTES = 48 << 20  # after a third of the time: allocators settle
PROMPTS = [text[:length] for text in SENTENCES[:40] for length in (1, 20, 90)]
logger = logging.getLogger(__name__)
pytestmark = pytest.mark.soak


@dataclass
class Findings:
    """Wrong answers and unexpected errors, and when each task was answered last."""

    wrong: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    latest: dict[str, float] = field(default_factory=dict)
    gaps: dict[str, float] = field(default_factory=dict)  # the longest time without an answer
    known: dict[Any, Any] = field(default_factory=dict)  # the first answer to a request
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, task: str, kind: str) -> None:
        """Note an answer of a task."""
        with self.lock:
            now = time.monotonic()
            self.gaps[task] = max(self.gaps.get(task, 0.0), now - self.latest.get(task, now))
            self.latest[task] = now
            self.ended[f"{task}: {kind}"] += 1

    def compare(self, request: Any, answer: Any) -> None:
        """Compare an answer with the first one to the same request: int8 generation is equal to the last bit."""
        with self.lock:
            if self.known.setdefault(request, answer) != answer:
                self.wrong.append(f"{request}: {answer}")


def translate(client: Client, rng: random.Random, found: Findings) -> str:
    """Send single texts, big calls, beams, samples, scores, streams read to the end or dropped: at random."""
    beam_size, kind = rng.choice([1, 1, 2, 4, 5]), rng.choice(["many", "stream", "drop", "short", "sample", "score"])
    options, sources = DecodingOptions(beam_size=beam_size), rng.choices(SOURCES, k=rng.choice([1, 1, 1, 40]))
    source = sources[0]
    match kind:
        case "many":
            for text, answer in zip(sources, client.translate_many(sources, options=options), strict=True):
                found.compare((text, beam_size), answer.text)
        case "short":
            cut = client.translate(source, options=DecodingOptions(max_length=2)).text
            found.wrong += [cut] * (not found.known[source, 1].startswith(cut))
        case "sample":
            drawn = DecodingOptions(sampling_topk=rng.choice([0, 5, 50]), num_hypotheses=3)
            found.wrong += [source] * (len(client.translate(source, options=drawn).hypotheses) != 3)
        case "score":
            [score] = client.score_translations([rng.choice(PAIRS)])
            found.wrong += [str(score)] * (score.log_probability < -1)
        case _:
            with client.translate_stream(source, options=options) as stream:
                if kind == "drop":
                    next(iter(stream))
                    return "dropped"
                found.compare((source, beam_size), "".join(stream))
    return "right"


def generate(client: Client, rng: random.Random, found: Findings) -> str:
    """Send prompts or a stream with random options, or a request that must be refused."""
    prompt, kind = rng.choice(PROMPTS), rng.choice(["many", "options", "stream", "drop", "long", "late", "bad"])
    options: dict[str, Any] = rng.choice(
        [
            {"sampling_topk": 1},
            {"sampling_topk": 1, "stop": ("e",)},
            {"sampling_topk": 1, "top_logprobs": 2, "echo": True},
            {"sampling_topk": 20, "seed": 5, "n": 2},
            {"beam_size": 2, "sampling_topk": 1},
        ]
    )
    most = rng.choice([4, 16])
    match kind:
        case "many":
            prompts = rng.choices(PROMPTS, k=12)
            for text, one in zip(prompts, client.generate_many(prompts, sampling_topk=1, max_tokens=most), strict=True):
                found.compare((text, most, str({"sampling_topk": 1})), answer_of(one))
        case "options":
            found.compare((prompt, most, str(options)), answer_of(client.generate(prompt, max_tokens=most, **options)))
        case "stream" | "drop":
            with client.generate_stream(prompt, sampling_topk=1, max_tokens=most) as stream:
                if kind == "drop":
                    next(iter(stream), "")
                    return "dropped"
                text = "".join(stream)
            found.compare((prompt, most, str({"sampling_topk": 1})), answer_of(stream.generation))
            found.compare((prompt, most), text)
        case "late":
            client.generate(prompt, max_tokens=16, timeout_seconds=rng.choice([0.002, 0.02]))
        case "long":
            return refused(lambda: client.generate("a b c " * SHAPE["max_positions"], max_tokens=most), found)
        case _:
            return refused(lambda: client.generate(prompt, top_logprobs=10**6), found)
    return "right"


def answer_of(generation: Generation) -> Any:
    return [(choice.text, choice.finish_reason, choice.tokens) for choice in generation.choices]


def refused(send: Callable[[], object], found: Findings) -> str:
    try:
        send()
    except InvalidArgumentError:
        return "refused"
    found.wrong.append("a bad request was answered")
    return "answered"


def load(
    address: str, seed: int, ask: Callable[[Client, random.Random, Findings], str], stop: threading.Event, found: Findings
) -> None:
    """Ask until it is over; what a server under load may answer is noted, all other errors are findings."""
    rng = random.Random(seed)
    with Client(address, timeout_seconds=PATIENCE_SECONDS) as client:
        while not stop.is_set():
            try:
                found.note(ask.__name__, ask(client, rng, found))
            except (DeadlineExceededError, ResourceExhaustedError) as error:
                found.note(ask.__name__, type(error).__name__)
            except Exception as error:  # an assertion in a thread would be lost
                found.wrong.append(repr(error))


def test_translation_and_generation_together_are_right_and_memory_stays_flat(tmp_path: Path) -> None:
    copy_bundle(tmp_path)
    llama_bundle(tmp_path, "int8")
    found, stop = Findings(known={(source, 1): target for source, target in PAIRS}), threading.Event()
    with ServerProcess(tmp_path, "--prefix-cache-bytes", str(1 << 20)) as server:
        process = psutil.Process(server.pid)
        tasks = [translate] * TRANSLATORS + [generate] * GENERATORS
        threads = [
            threading.Thread(target=load, args=(server.address, seed, ask, stop, found)) for seed, ask in enumerate(tasks)
        ]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS / 3)
        settled = process.memory_info().rss
        time.sleep(2 * SECONDS / 3)
        grown = process.memory_info().rss - settled
        stop.set()
        for thread in threads:
            thread.join()
    logger.info("%s", dict(sorted(found.ended.items())))
    logger.info("longest time without an answer: %s", {task: f"{gap:.2f} s" for task, gap in found.gaps.items()})
    logger.info("%.0f MB after a third of %.0f s, %+.1f MB at the end", settled / 1e6, SECONDS, grown / 1e6)
    assert not found.wrong[:5]
    assert all(found.gaps[ask.__name__] < STARVED_SECONDS for ask in (translate, generate))
    assert grown < GROWTH_BYTES
