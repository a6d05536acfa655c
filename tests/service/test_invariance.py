"""float32 answers do not depend on what else is running.

    TRIPTYCH_INVARIANCE=REPOSITORY:PAIRS pytest -m full tests/service/test_invariance.py

runs it on a model of yours and the sources of a file of pairs; without, on the toy model.
"""

import os
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.repository.repository import newest_versions
from triptych_serving.scheduling.request import Call, Hypothesis, Listener, Row

from ..fixtures.toy import MODELS, SOURCES

SENTENCES = 500
SEARCHES = (
    SearchParams(),
    SearchParams(beam_size=4, num_hypotheses=2),
    SearchParams(beam_size=2, repetition_penalty=1.2, no_repeat_ngram_size=3),
    SearchParams(sampling_topk=8, temperature=1.3, seed=5),
    SearchParams(scores=True),
)
Answer = list[tuple[int, ...]]


class Silent(Listener):
    """Nobody listens."""


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    repository = Path(os.environ.get("TRIPTYCH_INVARIANCE", "").split(":")[0] or MODELS)
    entry = newest_versions(repository)[0]
    translator = Translator(
        entry.name, entry.version, open_bundle(entry.folder), TranslatorOptions("fp32", EngineOptions(2, 16))
    )
    yield translator
    translator.close(drain=False)


def texts() -> list[str]:
    """So many different sentences."""
    _, _, pairs = os.environ.get("TRIPTYCH_INVARIANCE", "").partition(":")
    if pairs:
        from triptych_training.data.corpus import read_pairs

        found = [source for source, _ in read_pairs([pairs])]
        return [found[index * len(found) // SENTENCES] for index in range(SENTENCES)]
    dice = random.Random(2)
    return [" ".join(dice.sample(words, len(words))) for words in (dice.choice(SOURCES).split() for _ in range(SENTENCES))]


def run_alone(translator: Translator, source: Sequence[int], search: SearchParams) -> Answer:
    row = Row(source, 60, search)
    translator.run([row])
    return answer(row.hypotheses)


def answer(hypotheses: Sequence[Hypothesis]) -> Answer:
    return [hypothesis.tokens for hypothesis in hypotheses]


@contextmanager
def load(translator: Translator, sources: Sequence[Sequence[int]]) -> Iterator[None]:
    """Calls of all kinds come and are cancelled all the time."""
    stop = threading.Event()
    dice = random.Random(9)

    def disturb() -> None:
        running: list[Call[Row]] = []
        while not stop.is_set():
            search = replace(dice.choice(SEARCHES), num_hypotheses=1)
            call = Call(
                [Row(dice.choice(sources), dice.randrange(1, 60), search) for _ in range(dice.randrange(1, 6))], Silent()
            )
            translator.engine.submit(call)
            running.append(call)
            if len(running) > 8:
                translator.engine.cancel(running.pop(dice.randrange(len(running))))
            running = [call for call in running if not call.over]
            stop.wait(dice.random() * 0.005)
        for call in running:
            translator.engine.cancel(call)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.full
def test_sentences_have_the_same_tokens_alone_and_under_mixed_load(translator: Translator) -> None:
    sources = translator.tokenizer.encode(texts())
    searches = [SEARCHES[index % len(SEARCHES)] for index in range(len(sources))]
    alone = [run_alone(translator, source, search) for source, search in zip(sources, searches, strict=True)]
    with load(translator, sources):
        for start in range(0, len(sources), 50):
            part = range(start, min(start + 50, len(sources)))
            rows = {index: Row(sources[index], 60, searches[index]) for index in part}
            translator.run(list(rows.values()))
            for index, row in rows.items():
                assert answer(row.hypotheses) == alone[index], f"sentence {index}, {searches[index]}"
    assert translator.engine.counters.cancelled > 20
