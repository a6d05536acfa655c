"""Images through a toy model: order, limits, cancellation."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from triptych_serving.errors import CancelledError, InvalidInputError, UnavailableError
from triptych_serving.models.image import image_job as module
from triptych_serving.models.image.image_model import IN_FLIGHT, ImageModel

from .....fixtures.encoders import png
from ...calls import PATIENCE_SECONDS, eventually, hold_calls
from ...encoders import image_model

RED, GREEN, BLUE = png((250, 0, 0)), png((0, 250, 0), (7, 5)), png((0, 0, 250))


@pytest.fixture
def model(repository: Path) -> Iterator[ImageModel]:
    with image_model(repository) as model:
        yield model


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is decoded before this is set."""
    yield from hold_calls(monkeypatch, module, "decode_image")


def test_labels_come_best_first_with_the_images_size(model: ImageModel) -> None:
    red, green = model.classify([RED, GREEN])
    assert green.labels[0].label == "green"
    assert (green.width, green.height) == (7, 5)
    assert (red.labels[0].label, red.labels[0].index) == ("red", 0)
    assert sum(label.score for label in red.labels) == pytest.approx(1)
    assert [len(model.classify([RED], top_k)[0].labels) for top_k in (1, 2, 3, 1_000)] == [1, 2, 3, 3]
    job = model.begin(RED, None, "image")
    job.result()
    assert job.arrived <= job.started <= job.ended
    assert job.decode_seconds > 0
    assert job.waited >= 0


def test_order_is_kept_over_many_images(model: ImageModel) -> None:
    images = [RED, GREEN, BLUE, GREEN] * (IN_FLIGHT // 2)
    found = [result.labels[0].label for result in model.classify(images, top_k=1)]
    assert found == ["red", "green", "blue", "green"] * (IN_FLIGHT // 2)


def test_waiting_images_are_counted(model: ImageModel, held: threading.Event) -> None:
    jobs = [model.begin(RED, None, "image") for _ in range(IN_FLIGHT)]
    threads = model._pool._max_workers
    eventually(lambda: model.count_rows() == (0, IN_FLIGHT - threads))
    held.set()
    for job in jobs:
        job.result()
    eventually(lambda: model.count_rows() == (0, 0))


def test_a_bad_image_cancels_the_others(model: ImageModel) -> None:
    with pytest.raises(InvalidInputError, match=r"^images\[1\]: "):
        model.classify([RED, b"GIF89a", b""])
    with pytest.raises(InvalidInputError, match="top_k: 0 is out of range"):
        model.classify([RED], 0)
    eventually(lambda: model.engine.count_rows() == (0, 0))
    assert model.limiter.held == 0
    assert model.classify([RED])[0].labels[0].label == "red"


def test_a_job_cancelled_before_decoding_never_runs(model: ImageModel, held: threading.Event) -> None:
    jobs = [model.begin(RED, None, "image") for _ in range(20)]
    for job in jobs:
        job.cancel()
    held.set()
    for job in jobs:
        with pytest.raises(CancelledError):
            job.result()
    eventually(lambda: model.engine.count_rows() == (0, 0))


def test_closing_with_drain_finishes_admitted_images(model: ImageModel, held: threading.Event) -> None:
    results: list[str] = []

    def classify() -> None:
        results.extend(result.labels[0].label for result in model.classify([RED, BLUE]))

    asking = threading.Thread(target=classify)
    asking.start()
    eventually(lambda: model.limiter.held == 2)
    closing = threading.Thread(target=model.close)
    closing.start()
    held.set()
    for thread in (asking, closing):
        thread.join(PATIENCE_SECONDS)
    assert results == ["red", "blue"]
    with pytest.raises(UnavailableError):
        model.classify([RED])


def test_closing_at_once_fails_waiting_images(model: ImageModel, held: threading.Event) -> None:
    jobs = [model.begin(RED, None, "image") for _ in range(20)]
    closing = threading.Thread(target=model.close, args=(False,))
    closing.start()
    for job in jobs[10:]:
        with pytest.raises(UnavailableError):
            job.done.result(PATIENCE_SECONDS)
    held.set()
    closing.join(PATIENCE_SECONDS)
    for job in jobs[:10]:
        assert job.done.exception(PATIENCE_SECONDS) is None or isinstance(job.done.exception(), UnavailableError)
