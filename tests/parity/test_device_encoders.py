"""Graphs of precision fp16 as they are run on devices, here the CPU: padded to buckets and bound to static memory.

Every row of a mixed batch answers as it does by itself without buckets, up to the last bits of float16, and as in float32 up to
what float16 can tell.
"""

import random
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import TextManifest
from triptych_serving.encoding.image_runner import ImageRow, ImageRunner
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.encoding.text_runner import PER_MASK, TextRow, TextRunner
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item

from ..fixtures.half import HALF_MODELS
from .test_encoder_export import HEADS, jpeg, save_text, save_vit

HALF, SINGLE = 2e-6, 2e-2  # differences of runs in float16, whose sums of padding are in float32, and to float32
LIMITS = BatchLimits(batch_tokens=200, batch_rows=12)
OPTIONS = EncoderOptions("fp16", runs=1, limits=LIMITS)


def export_two(checkpoint: Path, models: Path) -> Bundle:
    return open_bundle(export(checkpoint, ExportOptions(models, precisions=("fp32", "fp16")), lambda line: None))


@pytest.fixture(scope="module", params=["", *(pytest.param(task, marks=pytest.mark.full) for task in HEADS)])
def text_bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The one that fills masks as it was written once, and all of them as they are written now."""
    if not request.param:
        return open_bundle(HALF_MODELS / "toy-bert" / "1")
    work = tmp_path_factory.mktemp("text")
    return export_two(save_text(work / "checkpoint", request.param), work / "models")


@pytest.fixture(scope="module", params=["committed", pytest.param("exported", marks=pytest.mark.full)])
def image_bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    if request.param == "committed":
        return open_bundle(HALF_MODELS / "toy-vit" / "1")
    work = tmp_path_factory.mktemp("image")
    return export_two(save_vit(work / "checkpoint"), work / "models")


def graph_of(bundle: Bundle, precision: str) -> Session:
    return Session(bundle.path(bundle.manifest_of(TextManifest).precisions[precision].graph))


def text_rows(rng: random.Random, outputs: tuple[str, ...], longest: int, count: int) -> list[TextRow]:
    rows = []
    for length in [longest, *(rng.randrange(2, longest + 1) for _ in range(count - 1))]:
        ids = np.array([2, *(rng.randrange(5, 40) for _ in range(length - 2)), 3], np.int32)
        row = TextRow(ids, np.zeros(length, np.int32), tuple(rng.sample(outputs, 2)), np.zeros(0, np.int64), 5)
        if PER_MASK & set(row.outputs) and length > 2:
            row.places = np.array([rng.randrange(1, length - 1)])
            ids[row.places] = 4
        row.targets = np.array([6, 9])
        rows.append(row)
    return rows


def answer(runner: Any, rows: list[Any]) -> list[Any]:
    items = [Item(row, 1) for row in rows]
    batch = runner.prepare(items)
    runner.finish(items, runner.run(batch))
    if hasattr(runner, "release"):
        runner.release(batch)
    return [item.result for item in items]


def test_texts_answer_in_mixed_batches_as_each_by_itself(text_bundle: Bundle) -> None:
    rng = random.Random(text_bundle.manifest.task)
    half, single = graph_of(text_bundle, "fp16"), graph_of(text_bundle, "fp32")
    with closing(TextModel("model", 1, text_bundle, OPTIONS)) as model:
        runner = model.engine._runner
        arguments = model.manifest.tokens, model.tokenizer.vocabulary
        plain, reference = (TextRunner(session, *arguments) for session in (half, single))
        for _ in range(12):
            rows = text_rows(rng, tuple(set(half.outputs) - {"tokens"}), rng.randrange(3, 21), rng.randrange(1, 10))
            for row, mine in zip(rows, answer(runner, rows), strict=True):
                [alone], [exact] = answer(plain, [row]), answer(reference, [row])
                assert mine.keys() == alone.keys() == set(row.outputs)
                for name in row.outputs:
                    assert mine[name].shape == alone[name].shape
                    np.testing.assert_allclose(mine[name], alone[name], rtol=HALF, atol=HALF, err_msg=name)
                    np.testing.assert_allclose(mine[name], exact[name], rtol=SINGLE, atol=SINGLE, err_msg=name)


def test_images_answer_in_batches_as_each_by_itself(image_bundle: Bundle) -> None:
    half, single = (
        closing(ImageModel("model", 1, image_bundle, EncoderOptions(name, runs=1, limits=LIMITS))) for name in ("fp16", "fp32")
    )
    with half as model, single as exact:
        alone = ImageRunner(Session(image_bundle.path(model.manifest.precisions["fp16"].graph)), model.manifest.image)
        rows = [ImageRow(np.random.default_rng(n).integers(0, 256, (32, 32, 3), np.uint8), 1 + n % 3) for n in range(12)]
        for count in (1, 2, 5, 12):
            for row, (scores, labels) in zip(rows, answer(model.engine._runner, rows[:count]), strict=False):
                [(own_scores, own_labels)] = answer(alone, [row])
                assert len(scores) == row.k
                assert labels[0] == own_labels[0]
                np.testing.assert_allclose(scores, own_scores, atol=HALF)
        files = [jpeg(index) for index in range(20)]
        for mine, true in zip(model.classify(files, 3), exact.classify(files, 3), strict=True):
            scores = {label.index: label.score for label in true.labels}
            assert [label.score for label in mine.labels] == pytest.approx(
                [scores[label.index] for label in mine.labels], abs=SINGLE
            )
