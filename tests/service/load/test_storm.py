"""A storm of all three tasks on one server: every answer is right or refused, and no task waits for the others.

TRIPTYCH_STORM_SECONDS=600 pytest -m soak tests/service/load/test_storm.py
"""

import asyncio
import io
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from triptych_client import AsyncClient, ResourceExhaustedError
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.models.text.tasks import FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel

from ...fixtures.toy import PAIRS, SOURCES, copy_models
from ..support.in_process import local_server
from ..support.processes import PATIENCE_SECONDS, ServerProcess

SECONDS = float(os.environ.get("TRIPTYCH_STORM_SECONDS", "300"))
GROWTH_BYTES = 32 * 1024 * 1024  # allocators settle; a leak of a kilobyte a call would show ten times this
CALLS = 200  # answered in the short storm
CALLERS, FEW = 67, 16  # of each task, each with one call under way, in the long storm and in the short one
WINDOW = 9  # answers for each caller of a task; in so many, one after the other, every task has some

CLEAR = 0.05  # by so much a mask's best candidate leads; less, and the rounding of a batch might decide
COLOURS = {
    "blue": (30, 60, 220),
    "green": (30, 190, 60),
    "red": (220, 40, 40),
    "white": (245, 245, 245),
    "yellow": (240, 220, 40),
}
FORMATS = ("JPEG", "PNG", "WEBP")
Case = tuple[Any, Any]  # an input and its answer


@dataclass(frozen=True)
class Task:
    """One kind of call."""

    name: str
    ask: Callable[[AsyncClient, list[Any]], Awaitable[list[Any]]]
    cases: Sequence[Case]


@dataclass
class Tally:
    """Number of calls with each outcome."""

    answered: Counter[str] = field(default_factory=Counter)  # how often each task was answered
    cancelled: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    longest_gap: int = 0  # answers from one of a task to its next
    _last: Counter[str] = field(default_factory=Counter)  # the number of each task's last answer

    def answer(self, task: str) -> None:
        """A task has one more answer."""
        self.answered[task] += 1
        self.close_gap(task)
        self._last[task] = self.answered.total()

    def close_gap(self, task: str) -> None:
        """Nothing more is awaited of a task, or its next answer is here."""
        self.longest_gap = max(self.longest_gap, self.answered.total() - self._last[task])


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of each task."""
    return copy_models(tmp_path_factory.mktemp("storm"))


@pytest.fixture(scope="module")
def tasks(repository: Path) -> list[Task]:
    """Requests of every task, with the expected results."""
    return [
        Task("translation", translate, PAIRS),
        Task("fill-mask", fill_mask, masked_texts(repository / "toy-bert" / "1")),
        Task("image-classification", classify_image, [picture(random.Random(seed)) for seed in range(20)]),
    ]


async def translate(client: AsyncClient, texts: list[str]) -> list[str]:
    return [translation.text for translation in await client.translate_many(texts)]


async def fill_mask(client: AsyncClient, texts: list[str]) -> list[list[str]]:
    return [[mask.candidates[0].sequence for mask in text.masks] for text in await client.fill_mask_many(texts, top_k=3)]


async def classify_image(client: AsyncClient, images: list[bytes]) -> list[tuple[str, int, int]]:
    results = await client.classify_image_many(images)
    return [(image.labels[0].label, image.width, image.height) for image in results]


def masked_texts(folder: Path) -> list[Case]:
    """Texts with one mask or two, and how the model fills each when nothing else runs."""
    rng = random.Random(0)
    texts = [masked(rng, " ".join(rng.sample(SOURCES, rng.choice([1, 1, 2])))) for _ in range(40)]
    model = TextModel("alone", 1, open_bundle(folder))
    try:
        filled = [[mask.candidates for mask in model.run(FILL_MASK_TASK, [text], top_k=2)[0].masks] for text in texts]
    finally:
        model.close()
    return [
        (text, [best.sequence for best, _ in masks])
        for text, masks in zip(texts, filled, strict=True)
        if all(best.score - second.score > CLEAR for best, second in masks)
    ]


def masked(rng: random.Random, text: str) -> str:
    words = text.split()
    for index in rng.sample(range(len(words)), rng.choice([1, 2])):
        words[index] = "[MASK]"
    return " ".join(words)


def picture(rng: random.Random) -> Case:
    """An image of one colour."""
    name = rng.choice(list(COLOURS))
    width, height = rng.randint(8, 300), rng.randint(8, 300)
    file = io.BytesIO()
    Image.new("RGB", (width, height), COLOURS[name]).save(file, rng.choice(FORMATS))
    return file.getvalue(), (name, width, height)


async def storm(address: str, tasks: Sequence[Task], callers: int, more: Callable[[Tally], bool]) -> Tally:
    """Call the server as long as there is to be more. Raises whatever a call raises beside being refused."""
    tally = Tally()
    async with AsyncClient(address, retries=0, timeout_seconds=PATIENCE_SECONDS) as client, asyncio.TaskGroup() as group:
        for seed in range(callers):
            for task in tasks:
                group.create_task(call_on(client, task, random.Random(seed), tally, more))
    for task in tasks:
        tally.close_gap(task.name)
    return tally


async def call_on(client: AsyncClient, task: Task, rng: random.Random, tally: Tally, more: Callable[[Tally], bool]) -> None:
    """One caller: single inputs and small calls; of some it wants no answer any more after a moment."""
    while more(tally):
        chosen = rng.choices(task.cases, k=rng.choice([1, 1, 1, 4, 9]))
        patience = rng.uniform(0, 0.05) if rng.random() < 0.1 else None
        try:
            async with asyncio.timeout(patience):
                answers = await task.ask(client, [given for given, _ in chosen])
        except TimeoutError:
            tally.cancelled[task.name] += 1
        except ResourceExhaustedError:
            tally.refused[task.name] += 1
        else:
            tally.answer(task.name)
            expected = [answer for _, answer in chosen]
            tally.wrong += [] if answers == expected else [f"{task.name}: {answers} instead of {expected}"]


def check(tally: Tally, tasks: Sequence[Task], callers: int) -> None:
    """All went well."""
    assert not tally.wrong
    assert all(tally.answered[task.name] and tally.cancelled[task.name] for task in tasks), tally
    assert tally.longest_gap < WINDOW * callers, tally


def test_a_storm_of_all_tasks(repository: Path, tasks: list[Task]) -> None:
    with local_server(repository) as server:
        tally = asyncio.run(storm(server.address, tasks, FEW, lambda tally: tally.answered.total() < CALLS))
        check(tally, tasks, FEW)


@pytest.mark.soak
def test_a_long_storm_leaves_memory_flat(repository: Path, tasks: list[Task]) -> None:
    with ServerProcess(repository) as server, ThreadPoolExecutor(1) as pool:
        end = time.monotonic() + SECONDS
        process = psutil.Process(server.pid)
        running = pool.submit(asyncio.run, storm(server.address, tasks, CALLERS, lambda _: time.monotonic() < end))
        time.sleep(SECONDS / 3)
        settled = process.memory_info().rss
        tally = running.result()
        assert process.memory_info().rss - settled < GROWTH_BYTES
        assert process.num_threads() < 64
        check(tally, tasks, CALLERS)
