"""Memory is taken when a model is loaded, and not a byte more while it works."""

import gc
import os
import random
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.errors import DeviceMemoryError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.tasks import EMBEDDING_TASK, FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.budget import Budgets, parse_limit
from triptych_serving.runtime.memory.cudart import gpu_memory

from ..fixtures.toy import SOURCES
from .models import picture
from .test_encoders import masked

pytestmark = [pytest.mark.gpu, pytest.mark.parametrize("name", ["toy", "toy-bert", "toy-vit"])]

ROUNDS, REHEARSED = 300 * int(os.environ.get("TRIPTYCH_GPU_TIMES", "1")), 12  # on a GPU, on the CPU
HOST_GROWTH = 32 << 20  # bytes; allocators settle
FREED = 64 << 20  # bytes that libraries may keep for good
SLOTS, MANY_SLOTS = 64, 4_096  # the caches of many are several times what libraries keep
IMAGES = [picture(seed) for seed in range(8)]
TEXTS = masked()

AnyModel = Translator | TextModel | ImageModel


def open_model(repository: Path, name: str, device: Device, budgets: Budgets | None = None, slots: int = SLOTS) -> AnyModel:
    bundle = open_bundle(repository / name / "1")
    if name == "toy":
        engine = EngineOptions(workers=1, slots=slots, devices=(device,), budgets=budgets)
        return Translator(name, 1, bundle, DecodeModelOptions("fp16", engine, eager=True))
    options = EncoderOptions("fp16", devices=(device,), budgets=budgets)
    return TextModel(name, 1, bundle, options) if name == "toy-bert" else ImageModel(name, 1, bundle, options)


def use(model: AnyModel, rounds: int) -> None:
    """Batches of all sizes, and of all kinds."""
    rng = random.Random(0)
    for turn in range(rounds):
        if isinstance(model, TextModel):
            model.run(FILL_MASK_TASK, rng.choices(TEXTS, k=rng.randint(1, 64)), top_k=rng.choice([1, 5]))
            model.run(EMBEDDING_TASK, rng.choices(TEXTS, k=rng.randint(1, 64)))
        elif isinstance(model, ImageModel):
            model.classify(rng.choices(IMAGES, k=rng.randint(1, 64)), top_k=rng.choice([1, 5]))
        else:
            translate(model, rng, score=turn % 10 == 0)


def translate(model: Translator, rng: random.Random, score: bool) -> None:
    """Greedy and with beams."""
    texts = rng.choices(SOURCES, k=rng.randint(1, 64))
    model.translate(texts, DecodingOptions(beam_size=rng.choice([1, 1, 3]), max_length=rng.randint(4, 30)))
    if score:
        model.score([(text, "Der Mann sieht das Haus.") for text in texts])


def test_memory_is_flat(repository: Path, device: Device, name: str) -> None:
    with closing(open_model(repository, name, device)) as model:
        rounds = ROUNDS if device.kind == "cuda" else REHEARSED
        use(model, rounds)
        gc.collect()
        host = psutil.Process().memory_info().rss
        free = gpu_memory(device).free_bytes if device.kind == "cuda" else 0
        use(model, rounds)
        gc.collect()
        assert psutil.Process().memory_info().rss - host < HOST_GROWTH
        if device.kind == "cuda":
            assert gpu_memory(device).free_bytes >= free


def test_a_closed_model_gives_its_memory_back(repository: Path, gpu: Device, name: str) -> None:
    settle(repository, gpu, name)
    free = gpu_memory(gpu).free_bytes
    for _ in range(3):
        settle(repository, gpu, name)
    assert free - gpu_memory(gpu).free_bytes < FREED


def test_a_model_that_cannot_fit_is_refused_before_anything_is_taken(repository: Path, gpu: Device, name: str) -> None:
    free = gpu_memory(gpu).free_bytes
    budgets = Budgets(parse_limit("1MiB"))
    with pytest.raises(DeviceMemoryError, match=rf"model {name} version 1 takes .* of {gpu} .* are left of 1 MiB"):
        open_model(repository, name, gpu, budgets)
    assert budgets.of(gpu).reserved_bytes == 0
    gc.collect()
    assert free - gpu_memory(gpu).free_bytes < FREED


def test_no_more_is_taken_than_planned(repository: Path, gpu: Device, name: str) -> None:
    settle(repository, gpu, name)
    budgets, free = Budgets(parse_limit("4GiB")), gpu_memory(gpu).free_bytes
    with closing(open_model(repository, name, gpu, budgets, MANY_SLOTS)) as model:
        use(model, 20)
        taken, planned = free - gpu_memory(gpu).free_bytes, model.reserved[gpu]
        assert budgets.of(gpu).reserved_bytes == planned
        assert taken < planned + FREED
        if isinstance(model, Translator):  # most of it is caches, which are no estimate
            assert taken > planned / 2
    assert budgets.of(gpu).reserved_bytes == 0


def settle(repository: Path, gpu: Device, name: str) -> None:
    """Load a model, use it and close it: what libraries take once and keep for good is no model's."""
    model = open_model(repository, name, gpu)
    use(model, 3)
    model.close()
    del model
    gc.collect()
