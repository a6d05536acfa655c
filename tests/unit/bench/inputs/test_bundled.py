"""Inputs that come with the package, and what is made of them."""

import io

import pytest
from PIL import Image

from triptych_bench.inputs.bundled import SIDE, bundled
from triptych_bench.inputs.masking import masked
from triptych_bench.inputs.quality import quality_of
from triptych_bench.target import Sample
from triptych_bench.tasks import TASKS, Kind, Metric


@pytest.mark.parametrize("task", [name for name, task in TASKS.items() if task.kind not in (Kind.TENSORS, Kind.IMAGE)])
def test_every_task_has_some(task: str) -> None:
    samples = bundled(task)
    assert len(samples) >= 8
    assert len({sample.data for sample in samples}) == len(samples)
    pairs = TASKS[task].kind in (Kind.PAIR, Kind.TEXT_OR_PAIR)
    assert all(isinstance(sample.data, tuple if pairs else str) for sample in samples)
    assert all(sample.reference is None for sample in samples)


def test_models_of_single_texts_get_single_texts() -> None:
    assert all(isinstance(sample.data, str) for sample in bundled("classify-text", takes_pairs=False))


def test_images_are_images_and_the_same_every_time() -> None:
    first, second = bundled("classify"), bundled("classify")
    assert first == second
    for sample in first:
        with Image.open(io.BytesIO(sample.data)) as image:
            image.load()
            assert (image.format, image.size, image.mode) == ("PNG", (SIDE, SIDE), "RGB")
            assert len(image.getcolors(SIDE * SIDE) or ()) > 1_000


def test_a_word_is_masked_and_is_the_reference() -> None:
    samples = [Sample("Die größte Stadt."), Sample("She [MASK] home.", reference="went"), Sample("1 + 1 = 2")]
    first, second = masked(samples, "[MASK]", seed=1)
    assert first.reference is not None
    assert first.data.replace("[MASK]", first.reference) == "Die größte Stadt."
    assert second == samples[1]
    assert masked(samples, "[MASK]", seed=1) == [first, second]


def test_accuracy() -> None:
    found = quality_of(Metric.ACCURACY, ["Cat", "dog ", "cow"], ["cat", "Dog", "pig"])
    assert found is not None
    assert (found.metric, round(found.value, 3), found.signature) == ("accuracy", 0.667, "n:3")


def test_bleu() -> None:
    right = "the cat sat on the mat"
    found = quality_of(Metric.BLEU, [right, right], [right, right])
    assert found is not None
    assert found.value == pytest.approx(100.0)
    assert "n:2|" in found.signature
    assert "version:" in found.signature


def test_without_references_there_is_nothing_to_say() -> None:
    assert quality_of(Metric.BLEU, [], []) is None
    assert quality_of(Metric.NONE, ["a"], ["b"]) is None
