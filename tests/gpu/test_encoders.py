"""BERT and ViT in fp16 on the device answer as in fp32 on the CPU, in batches of all shapes."""

import random
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.tensors.tensor_model import TensorModel
from triptych_serving.models.text.tasks import EMBEDDING_TASK, FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime.device import Device

from ..fixtures.encoders import write_tensors_bundle
from ..fixtures.toy import SOURCES
from .models import picture

pytestmark = pytest.mark.gpu

ROUNDING = 1e-2  # of probabilities
CALLS, REHEARSED = 2_000, 40  # on a GPU, on the CPU
CALLERS = 32
IMAGES = 24


def masked() -> list[str]:
    """Texts of many lengths with one mask or two."""
    rng = random.Random(0)
    texts = []
    for index in range(48):
        words = " ".join(rng.choices(SOURCES, k=1 + index % 6)).split()[:50]
        for place in rng.sample(range(len(words)), rng.choice([1, 2])):
            words[place] = "[MASK]"
        texts.append(" ".join(words))
    return texts


class Best(NamedTuple):
    """Best token or label."""

    number: int  # token or label
    score: float  # probability
    lead: float  # before the second


def filled(model: TextModel, texts: Sequence[str]) -> list[list[Best]]:
    """Return the best tokens of each mask of each text."""
    return best_tokens(model.run(FILL_MASK_TASK, texts, top_k=2))


def best_tokens(texts: Iterable[Any]) -> list[list[Best]]:
    """Return the best tokens of results with two tokens per mask."""
    pairs = [[mask.candidates for mask in text.masks] for text in texts]
    return [[Best(first.token, first.score, first.score - second.score) for first, second in text] for text in pairs]


def classified(model: ImageModel, images: Sequence[bytes]) -> list[list[Best]]:
    """Return the best labels of each image."""
    return best_labels(model.classify(images, top_k=2))


def best_labels(images: Iterable[Any]) -> list[list[Best]]:
    """Return the best labels of results with two labels per image."""
    pairs = [image.labels for image in images]
    return [[Best(first.index, first.score, first.score - second.score)] for first, second in pairs]


def assert_near(found: Sequence[Sequence[Best]], exact: Sequence[Sequence[Best]]) -> None:
    """Scores are nearly the same, and so are the answers: two that are equally good may change places."""
    for ours, theirs in zip(found, exact, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert abs(one.score - other.score) < ROUNDING
            assert one.number == other.number or other.lead < 2 * ROUNDING


def test_masks_are_filled_alike(repository: Path, device: Device) -> None:
    bundle = open_bundle(repository / "toy-bert" / "1")
    texts = masked()
    with closing(TextModel("a", 1, bundle, EncoderOptions("fp32"))) as exact, closing(_text(repository, device)) as half:
        whole = filled(exact, texts)
        assert_near(filled(half, texts), whole)
        for text, expected in zip(texts[:8], whole[:8], strict=True):
            assert_near(filled(half, [text]), [expected])


def test_vectors_are_alike(repository: Path, device: Device) -> None:
    bundle = open_bundle(repository / "toy-bert" / "1")
    with closing(TextModel("a", 1, bundle, EncoderOptions("fp32"))) as exact, closing(_text(repository, device)) as half:
        ours, theirs = (np.array([text.values for text in model.run(EMBEDDING_TASK, SOURCES[:40])]) for model in (half, exact))
    assert np.linalg.norm(ours - theirs) < 1e-2 * np.linalg.norm(theirs)


def test_images_are_classified_alike(repository: Path, device: Device) -> None:
    bundle = open_bundle(repository / "toy-vit" / "1")
    images = [picture(seed) for seed in range(IMAGES)]
    exact = ImageModel("a", 1, bundle, EncoderOptions("fp32"))
    half = ImageModel("b", 1, bundle, EncoderOptions("fp16", devices=(device,)))
    with closing(exact), closing(half):
        assert_near(classified(half, images), classified(exact, images))


def test_most_answers_are_clear(repository: Path) -> None:
    """Else the comparisons would allow any answer."""
    with closing(TextModel("a", 1, open_bundle(repository / "toy-bert" / "1"), EncoderOptions("fp32"))) as model:
        leads = [mask.lead for text in filled(model, masked()) for mask in text]
    assert sum(lead > 2 * ROUNDING for lead in leads) > len(leads) / 2


def test_calls_of_all_shapes_at_once(repository: Path, device: Device) -> None:
    """Batches form as they come; each answer is what it is alone, up to rounding."""
    texts, calls = masked(), CALLS if device.kind == "cuda" else REHEARSED
    with closing(_text(repository, device)) as model:
        alone = [filled(model, [text])[0] for text in texts]

        def ask(seed: int) -> None:
            chosen = random.Random(seed).choices(range(len(texts)), k=1 + seed % 5)
            assert_near(filled(model, [texts[index] for index in chosen]), [alone[index] for index in chosen])

        with ThreadPoolExecutor(CALLERS) as pool:
            deque(pool.map(ask, range(calls)), 0)


def _text(repository: Path, device: Device) -> TextModel:
    return TextModel("b", 1, open_bundle(repository / "toy-bert" / "1"), EncoderOptions("fp16", devices=(device,)))


def test_plain_tensors_are_those_of_the_cpu(device: Device, tmp_path: Path) -> None:
    write_tensors_bundle(tmp_path)
    model = TensorModel("tensors", 1, open_bundle(tmp_path / "tensors/1"), EncoderOptions(devices=(device,)))
    numbers = np.arange(1200, dtype=np.float32).reshape(40, 30)
    with closing(model):
        with ThreadPoolExecutor(CALLERS) as pool:
            found = list(pool.map(lambda rows: model.run({"numbers": numbers[:rows]})["sum"], range(1, len(numbers))))
        for rows, sums in enumerate(found, 1):
            np.testing.assert_allclose(sums, numbers[:rows].sum(1, keepdims=True), rtol=ROUNDING)
        assert device.kind == "cpu" or model.reserved[device]
