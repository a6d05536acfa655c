"""Warm-up of models."""

import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.encoding.text_runner import TextRunner
from triptych_serving.errors import EngineError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.model import Model
from triptych_serving.models.text.text_model import TextModel
from triptych_serving.models.translation.translator import Translator
from triptych_serving.repository import loading
from triptych_serving.repository.loading import Loader
from triptych_serving.repository.repository import VersionFolder, newest_versions
from triptych_serving.repository.warmup import WarmUp
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.admission import Counters
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.decode_scheduler import LaneKind

from ....fixtures.encoders import write_every_bundle, write_image_bundle, write_text_bundle
from ....fixtures.toy import BUNDLE, SOURCE, TARGET, copy_old_bundle

TOY = VersionFolder("toy", 1, BUNDLE)


def loader(warm_up: WarmUp, **options: Any) -> Loader:
    return Loader(DecodeModelOptions(engine=EngineOptions(workers=2, slots=2)), EncoderOptions(runs=1, **options), warm_up)


def loaded(entry: VersionFolder, warm_up: WarmUp, **options: Any) -> Model:
    model, fault = loader(warm_up, **options).attempt(entry)
    assert model is not None, fault
    return model


def engine_threads() -> int:
    return sum(thread.name.startswith(("triptych-engine", "triptych-oneshot")) for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("warm_up", "kinds", "runs"),
    [
        (WarmUp.NONE, {LaneKind.GREEDY}, [False]),
        (WarmUp.USUAL, {LaneKind.GREEDY}, [True]),
        (WarmUp.ALL, {LaneKind.GREEDY, LaneKind.SEARCH}, [True, True]),
    ],
)
def test_warm_up_creates_the_lanes_of_every_worker(warm_up: WarmUp, kinds: set[LaneKind], runs: list[bool]) -> None:
    """Each level runs the engines named; warm-up runs appear in no request counter."""
    with closing(loaded(TOY, warm_up)) as model:
        assert isinstance(model, Translator)
        assert [set(worker.lanes) for worker in model.engine._workers] == [kinds, kinds]
        assert [engine.steps.rows.count > 0 for engine in model.engines] == runs
        assert [engine.counters for engine in model.engines] == [Counters()] * len(runs)
        assert model.translate([SOURCE])[0].text == TARGET
        assert model.engine.counters.finished == 1


def test_warm_up_runs_several_batch_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    prepare = TextRunner.prepare

    def noted(runner: TextRunner, items: Sequence[Any]) -> Any:
        batch = prepare(runner, items)
        shapes.append(batch.inputs["ids"].shape)
        return batch

    monkeypatch.setattr(TextRunner, "prepare", noted)
    loaded(VersionFolder("bert", 1, write_text_bundle(tmp_path)), WarmUp.USUAL).close()
    assert max(rows for rows, _ in shapes) >= 16
    assert {rows for rows, _ in shapes} > {1}
    assert max(rows * length for rows, length in shapes) > 500


def test_models_of_every_task_are_warmed_up(tmp_path: Path) -> None:
    write_every_bundle(tmp_path)
    write_text_bundle(tmp_path, "fill-mask", "pretrained", next_sentence=True)
    write_text_bundle(tmp_path, "text-classification", "pairs", pairs=True)
    for entry in newest_versions(tmp_path):
        with closing(loaded(entry, WarmUp.ALL)) as model:
            assert model.engines[0].steps.rows.count >= 4 * len(model.capabilities), entry.name


def test_a_short_queue_is_no_fault(tmp_path: Path) -> None:
    """Images of one warm-up request do not fit into it together."""
    loaded(VersionFolder("image", 1, write_image_bundle(tmp_path)), WarmUp.ALL, limits=BatchLimits(waiting_calls=1)).close()


def test_an_old_bundle_is_warmed_up_without_searches(repository: Path) -> None:
    with closing(loaded(VersionFolder("toy", 1, copy_old_bundle(repository)), WarmUp.ALL)) as model:
        assert [engine.steps.rows.count > 0 for engine in model.engines] == [True]


@pytest.mark.parametrize(
    "error", [EngineError("bad weight"), MemoryError("no room"), RecursionError(), type("Panic", (BaseException,), {})("rust")]
)
@pytest.mark.parametrize(
    ("owner", "name"), [(TextModel, "run"), (Session, "__init__"), (loading, "open_bundle")], ids=["warm-up", "load", "open"]
)
def test_every_load_error_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: BaseException
) -> None:
    folder, threads = write_text_bundle(tmp_path), engine_threads()

    def fail(*arguments: Any, **named: Any) -> Any:
        raise error

    monkeypatch.setattr(owner, name, fail)
    model, fault = loader(WarmUp.USUAL).attempt(VersionFolder("bert", 1, folder))
    assert model is None
    assert fault == f"{folder}: cannot be loaded: {str(error) or 'RecursionError'}"
    assert engine_threads() == threads
