"""Joins, leaves, beams, samples, prefixes and cancels at once, thousands of them: every answer is what it is alone."""

import os
import random
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pytest

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.bundle import Bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.options import may_sample
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.request import Call, Listener

from ..fixtures.toy import SOURCES

pytestmark = pytest.mark.gpu

CALLERS = 24
TIMES = int(os.environ.get("TRIPTYCH_GPU_TIMES", "1"))
CALLS, REHEARSED = 6_000 * TIMES, 150  # on a GPU, on the CPU
SLOTS = 64
TEXTS = SOURCES[::7]
SEARCHES = (
    DecodingOptions(),
    DecodingOptions(max_length=5),
    DecodingOptions(target_prefix=("Der Mann",)),
    DecodingOptions(beam_size=2),
    DecodingOptions(beam_size=4, num_hypotheses=3, return_scores=True),
    DecodingOptions(sampling_temperature=1.0, sampling_topk=5, seed=7),
)
PATIENCE_SECONDS = 120.0


class Ended(Listener):
    """Says when a call is over."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def on_end(self) -> None:
        self.event.set()


@dataclass
class Tally:
    """Counts of the outcomes."""

    right: int = 0
    other: int = 0  # samples that differ by the rounding of another batch
    cancelled: int = 0
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@pytest.fixture(scope="module")
def translator(bundle: Bundle, device: Device) -> Iterator[Translator]:
    engine = EngineOptions(workers=1, slots=SLOTS, devices=(device,))
    translator = Translator("toy", 1, bundle, DecodeModelOptions("fp16", engine, eager=True))
    yield translator
    translator.close()


@pytest.fixture(scope="module")
def alone(translator: Translator) -> dict[tuple[int, int], str]:
    """Translations by index of search and text, without other load."""
    return {
        (search, text): translator.translate([source], options)[0].text
        for search, options in enumerate(SEARCHES)
        for text, source in enumerate(TEXTS)
    }


def test_a_storm(translator: Translator, device: Device, alone: dict[tuple[int, int], str]) -> None:
    calls = CALLS if device.kind == "cuda" else REHEARSED
    tally = Tally()
    with ThreadPoolExecutor(CALLERS) as pool:
        deque(pool.map(partial(call_on, translator, alone, tally), range(calls)), 0)
    assert tally.wrong == []
    assert tally.right + tally.other + tally.cancelled == calls
    assert tally.right > calls / 2
    assert tally.other <= calls / 100
    assert tally.cancelled > calls / 50
    assert translator.count_rows() == (0, 0)


def call_on(translator: Translator, alone: dict[tuple[int, int], str], tally: Tally, seed: int) -> None:
    """One call of a few texts; one in eight is given up after a moment."""
    rng = random.Random(seed)
    search = rng.randrange(len(SEARCHES))
    options = SEARCHES[search]
    texts = [rng.randrange(len(TEXTS)) for _ in range(1 if options.target_prefix else rng.choice([1, 1, 2, 5]))]
    prepared = translator.prepare([TEXTS[text] for text in texts], options)
    translator.lanes.open_for(prepared.rows)
    ended = Ended()
    call = Call(prepared.rows, ended)
    translator.engine.submit(call)
    if rng.random() < 1 / 8:
        ended.event.wait(rng.uniform(0, 0.005))
        translator.engine.cancel(call)
    assert ended.event.wait(PATIENCE_SECONDS)
    with tally.lock:
        if call.error is not None or not all(row.finish for row in prepared.rows):
            tally.cancelled += 1
            return
        found = [output.text for output in translator.outputs(prepared)]
        expected = [alone[search, text] for text in texts]
        if found == expected:
            tally.right += 1
        elif may_sample(options):
            tally.other += 1
        else:
            tally.wrong.append(f"search {search}: {found} instead of {expected}")


def test_every_search_has_answers_of_its_own(alone: dict[tuple[int, int], str]) -> None:
    """Else the storm would not see rows that were mixed up."""
    for search, options in enumerate(SEARCHES):
        if options.max_length is None and not options.target_prefix:
            assert len({alone[search, text] for text in range(len(TEXTS))}) > 0.9 * len(TEXTS)
