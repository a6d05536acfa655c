"""Texts over a graph bound to device memory: results equal those of the same graph run directly."""

import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.encoding.cuda import buckets
from triptych_serving.encoding.cuda.text_runner import DeviceTextRunner
from triptych_serving.encoding.options import GPU_BATCHES, EncoderOptions
from triptych_serving.encoding.text_runner import PER_MASK, TextRow
from triptych_serving.errors import BundleError, EngineError
from triptych_serving.models.text.tasks import EMBEDDING_TASK, FILL_MASK_TASK
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.runtime.device import CPU, Device
from triptych_serving.runtime.session import Binding
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Item

from .....fixtures.encoders import NUMBERS, VOCABULARY, write_text_bundle
from ...calls import eventually
from ...encoders import TWO_WAYS, both_ways

TASKS = ("fill-mask", "text-classification", "token-classification", "question-answering", "text-embedding")


def two_ways(folder: Path, task: str, **members: Any) -> Bundle:
    return open_bundle(write_text_bundle(folder, task, precisions=TWO_WAYS, **members))


both = partial(both_ways, TextModel, limits=BatchLimits(batch_tokens=400, batch_rows=20))


def random_row(rng: random.Random, outputs: Sequence[str], length: int) -> TextRow:
    ids = np.array([rng.randrange(5, len(VOCABULARY)) for _ in range(length)], np.int32)
    wanted = tuple(name for name in outputs if name != "tokens" and rng.random() < 0.5) or (outputs[0],)
    wanted += ("tokens",) if "scores" in wanted else ()
    row = TextRow(ids, np.array([rng.randrange(2) for _ in range(length)], np.int32), wanted, np.zeros(0, np.int64))
    if PER_MASK & set(wanted):
        count = rng.randrange(1, max(2, length // 4))
        row.places = np.sort(rng.sample(range(1, length), min(count, length - 1))).astype(np.int64)
        row.k = rng.choice([1, 5, 8, 9, 40])
        row.targets = np.array(rng.sample(range(len(VOCABULARY)), 3), np.int64)
    return row


def run_batch(model: TextModel, rows: Sequence[TextRow]) -> list[dict[str, Any]]:
    """Run one batch of new items through the model's runner; return their results."""
    runner = model.engine._runner
    items = [Item(row, len(row.ids)) for row in rows]
    batch = runner.prepare(items)
    runner.finish(items, runner.run(batch))
    if isinstance(runner, DeviceTextRunner):
        runner.release(batch)
    return [item.result for item in items]


def assert_equal(results: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
    for mine, plain in zip(results, expected, strict=True):
        assert mine.keys() == plain.keys()
        for name, array in plain.items():
            assert mine[name].dtype == array.dtype
            np.testing.assert_allclose(mine[name], array, rtol=1e-6, err_msg=name)
            base = mine[name].base
            assert base is None or base.nbytes == mine[name].nbytes, "a view would keep the batch"


@pytest.mark.parametrize("task", TASKS)
def test_results_of_mixed_batches_equal_those_of_the_graph_itself(repository: Path, task: str) -> None:
    rng = random.Random(task)
    with both(two_ways(repository, task, **({"next_sentence": True} if task == "fill-mask" else {}))) as (plain, bucketed):
        [_, *others] = outputs = plain.engine._runner._session.outputs
        assert others
        for _ in range(25):
            longest = rng.randrange(3, 64)
            count = rng.randrange(1, 1 + min(20, 400 // longest))
            lengths = [longest, *(rng.randrange(2, longest + 1) for _ in range(count - 1))]
            rows = [random_row(rng, outputs, length) for length in lengths]
            assert_equal(run_batch(bucketed, rows), run_batch(plain, rows))


def test_more_masks_than_fit_take_several_runs(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "LOGIT_BYTES", 4 * len(VOCABULARY) * 3)
    rng = random.Random(1)
    outputs = ("scores", "tokens", "log_probabilities", "mean")
    with both(two_ways(repository, "fill-mask")) as (plain, bucketed):
        runs: list[int | None] = []
        run = Binding.run
        monkeypatch.setattr(Binding, "run", lambda binding, graph=None: (runs.append(graph), run(binding, graph))[1])
        for masks in (2, 3, 4, 10):
            rows = [random_row(rng, outputs, 30) for _ in range(4)]
            for row in rows:
                row.places, row.outputs = np.zeros(0, np.int64), ("mean",)
            rows[1].places = np.arange(3, 3 + masks // 2)
            rows[3].places = np.arange(1, 1 + masks - masks // 2)
            for row in (rows[1], rows[3]):
                row.outputs, row.targets = outputs, np.array([7, 9])
            runs.clear()
            assert_equal(run_batch(bucketed, rows), run_batch(plain, rows))
            assert len(runs) == -(-masks // 3)


def test_padding_is_never_seen(repository: Path) -> None:
    """Leftovers of a batch in a buffer or on a device do not reach the next one."""
    with both(two_ways(repository, "fill-mask")) as (_, bucketed):
        runner = bucketed.engine._runner
        row = random_row(random.Random(2), ("mean", "scores", "tokens"), 9)
        alone = run_batch(bucketed, [row])
        for _ in range(4):  # all buffers
            batch = runner.prepare([Item(random_row(random.Random(3), ("mean", "scores", "tokens"), 16), 16)])
            batch.buffer.inputs[...] = 4  # an id that exists, places that exist
            batch.buffer.results[...] = 255
            runner.release(batch)
            assert_equal(run_batch(bucketed, [row]), alone)


def test_buffers_are_released_after_failures(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise EngineError("the runtime failed: out of luck")

    with both(two_ways(repository, "fill-mask")) as (_, bucketed):
        buffers = bucketed.engine._runner._pool._buffers
        count = buffers.qsize()
        for owner, name in ((Binding, "run"), (DeviceTextRunner, "_fill")):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, fail)
                for _ in range(2 * count):
                    with pytest.raises(EngineError, match="out of luck"):
                        bucketed.run(EMBEDDING_TASK, ["one", "two"])
        assert bucketed.run(EMBEDDING_TASK, ["one"])[0].token_count == 3
        eventually(lambda: buffers.qsize() == count)


def test_captured_runs_give_equal_results(repository: Path) -> None:
    """Every small bucket is bound and run before the first request, as on a GPU, but not captured."""
    with both(two_ways(repository, "fill-mask")) as (plain, bucketed):
        graph = bucketed.engine._runner._pool._graphs[0]
        graph._captures = True
        graph.warm_up()
        assert set(graph._captured) == set(graph.plan.buckets.captured)
        rows = [random_row(random.Random(n), ("mean", "scores", "tokens"), 5 + n) for n in range(6)]
        assert_equal(run_batch(bucketed, rows), run_batch(plain, rows))


def test_a_model_that_cannot_warm_up_leaves_no_thread_behind(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise EngineError("the runtime failed: no room")

    bundle, before = two_ways(repository, "fill-mask"), threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(Binding, "run", fail)
        with pytest.raises(EngineError, match="no room"):
            TextModel("toy", 1, bundle, EncoderOptions("fp16"))
    assert threading.active_count() == before


def test_devices_of_a_model(repository: Path) -> None:
    bundle = two_ways(repository, "fill-mask")
    with both(bundle) as (plain, bucketed):
        assert (plain.devices, plain.reserved) == (bucketed.devices, bucketed.reserved) == ((CPU,), {})
        assert "CPU, fp16, weights of" in bucketed.describe()
    with pytest.raises(BundleError, match="precision fp32 runs on the CPU only"):
        TextModel("toy", 1, bundle, EncoderOptions("fp32", devices=(Device("cuda"),)))


def test_a_model_may_have_several_devices(repository: Path) -> None:
    with both(two_ways(repository, "fill-mask"), devices=(CPU, CPU)) as (plain, bucketed):
        assert len(bucketed.engine._threads) == 5
        texts = [" ".join([*NUMBERS[:count], "[MASK]"]) for count in range(1, 10)] * 20
        assert bucketed.run(FILL_MASK_TASK, texts, top_k=2) == plain.run(FILL_MASK_TASK, texts, top_k=2)


def test_batches_on_a_gpu_are_large_by_default() -> None:
    cuda = (Device("cuda"), Device("cuda", 1))
    engine = EncoderOptions(devices=cuda).device_engine()
    assert (engine.runs, engine.overlap, engine.worker_count, engine.limits) == (2, 2, 5, GPU_BATCHES)
    chosen = BatchLimits(batch_rows=7, waiting_rows=99)
    assert EncoderOptions(devices=cuda, limits=chosen).device_limits == replace(GPU_BATCHES, batch_rows=7, waiting_rows=99)
    assert EncoderOptions(limits=chosen).device_limits == chosen
