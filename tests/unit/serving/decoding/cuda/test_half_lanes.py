"""Device lanes over fp16 graphs, on the CPU: the same code as on a GPU except for the copies themselves."""

import random
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from triptych.decoding import DecodingOptions
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.search_params import GREEDY, SearchParams
from triptych_serving.decoding.cuda.greedy_lane import DeviceGreedyLane
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.decoding.lane import Lane
from triptych_serving.decoding.lane_factory import LaneFactory
from triptych_serving.errors import DeviceError, DeviceMemoryError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.device import Device
from triptych_serving.runtime.memory.budget import Budgets, MemoryLimit
from triptych_serving.runtime.memory.cudart import GpuMemory
from triptych_serving.runtime.model_devices import ModelDevices
from triptych_serving.runtime.session import Session, SessionPlace
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Row

from .....fixtures.half import HALF_BUNDLE
from .....fixtures.toy import PAIRS, SOURCES, TARGETS
from ... import storms
from ...calls import decode_rows, row_of
from ...runtime.memory.strict_memory import StrictMemory

VOCABULARY, END = 300, 2
SLOTS = 20
STEPS, MORE_STEPS = 220, 3_000  # of a storm
GPUS = Device("cuda", 0), Device("cuda", 1)
SCORE_TOLERANCE = 0.02  # between a batch and a row alone: sums in another order, rounded to 16 bits
SEARCHES = {
    LaneKind.GREEDY: [GREEDY],
    LaneKind.SEARCH: [
        SearchParams(scores=True),
        SearchParams(beam_size=4, num_hypotheses=4),
        SearchParams(beam_size=5, length_penalty=0.3, coverage_penalty=0.2, alignment=True),
        SearchParams(sampling_topk=0, sampling_topp=0.9, num_hypotheses=3, seed=11),
        SearchParams(beam_size=2, repetition_penalty=1.3, no_repeat_ngram_size=2, min_length=4),
    ],
}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return open_bundle(HALF_BUNDLE)


@pytest.fixture(scope="module")
def lanes(bundle: Bundle) -> LaneFactory:
    lanes = LaneFactory(bundle, "fp16", SLOTS, [SessionPlace(StrictMemory())])
    lanes.open_all()
    return lanes


@pytest.fixture(scope="module")
def sources(bundle: Bundle) -> list[tuple[int, ...]]:
    translator = Translator("toy", 1, bundle, DecodeModelOptions("fp32", EngineOptions()))
    translator.close()
    return [tuple(ids) for ids in translator.tokenizer.encode(SOURCES)]


def assert_same(row: Row, expected: Row) -> None:
    assert [hypothesis.tokens for hypothesis in row.hypotheses] == [hypothesis.tokens for hypothesis in expected.hypotheses]
    for one, other in zip(row.hypotheses, expected.hypotheses, strict=True):
        assert one.finish is other.finish
        assert (one.score is None) == (other.score is None)
        assert one.score is None or one.score == pytest.approx(other.score, abs=SCORE_TOLERANCE)


def storm(searches: Sequence[SearchParams], sources: Sequence[tuple[int, ...]], length: int) -> list[storms.Event]:
    """Draw rows that join and leave so that buckets fill up and empty."""
    dice, events, steps = random.Random(5), list[storms.Event](), 0
    while steps < length:
        for _ in range(dice.choice([0, 0, 1, 1, 2, 12])):
            prefix = tuple(dice.choices(range(3, VOCABULARY), k=dice.choice([0, 0, 0, 1, 4])))
            events.append(("join", (dice.choice(sources), dice.randint(5, 63), dice.choice(searches), prefix)))
        if dice.random() < 0.1:
            events += [("leave", dice.randrange(SLOTS)) for _ in range(dice.randint(1, SLOTS))]
        events.append(("step", count := dice.randint(1, 12)))
        steps += count
    return events


@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("length", [STEPS, pytest.param(MORE_STEPS, marks=pytest.mark.full)])
def test_rows_of_a_storm_decode_as_alone(
    lanes: LaneFactory, sources: list[tuple[int, ...]], kind: LaneKind, length: int
) -> None:
    lane, other = lanes.make(kind), lanes.make(kind, 1)
    lane.warm_up()

    @cache
    def alone(*options: Any) -> Row:
        return decode_rows(other, [row_of(*options)])[0]

    ended = storms.play(lane, storm(SEARCHES[kind], sources, length), row_of)
    assert len(ended) > length / 10
    assert {row.search for row in ended} == set(SEARCHES[kind])
    for row in ended:
        assert_same(row, alone(tuple(row.source), row.max_tokens, row.search, row.prefix))


def test_fp16_agrees_with_fp32(bundle: Bundle, lanes: LaneFactory, sources: list[tuple[int, ...]]) -> None:
    """Compare each token given the ones before it, for known sentences and for shuffled words."""
    dice = random.Random(3)
    known = sources[::30]
    strange = [(*dice.sample(source[:-1], len(source) - 1), END) for source in known]
    agreed = asked = 0
    for translated in decode_rows(
        LaneFactory(bundle, "fp32", SLOTS).make(LaneKind.GREEDY), [row_of(ids, 62) for ids in known + strange]
    ):
        said = (*translated.tokens, END)
        rows = [row_of(translated.source, index + 1, prefix=said[:index]) for index in range(len(said))]
        found = decode_rows(half_lane(lanes), rows)
        agreed += sum((*row.tokens, END)[index] == token for index, (row, token) in enumerate(zip(found, said, strict=True)))
        asked += len(said)
    assert asked > 200
    assert agreed / asked >= 0.995


@cache
def half_lane(lanes: LaneFactory) -> Lane:
    lane = lanes.make(LaneKind.GREEDY, 2)
    assert isinstance(lane, DeviceGreedyLane)
    return lane


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> tuple[Device, ...]:
    """Make two strict memories of the CPU look like GPUs."""
    monkeypatch.setattr("triptych_serving.runtime.model_devices.open_memory", lambda device: StrictMemory())
    return GPUS


def budgets(free: int, limit: MemoryLimit | None = None) -> Budgets:
    return Budgets(limit, look=lambda device: GpuMemory(free, free))


def options(devices: tuple[Device, ...], counted: Budgets, **more: Any) -> DecodeModelOptions:
    return DecodeModelOptions("fp16", EngineOptions(workers=7, slots=4, devices=devices, budgets=counted), **more)


def test_every_gpu_has_a_worker_and_its_own_lanes(bundle: Bundle, gpus: tuple[Device, ...]) -> None:
    counted = budgets(1 << 40)
    translator = Translator("toy", 1, bundle, options(gpus, counted, eager=True))
    try:
        assert [output.text for output in translator.translate(SOURCES[:20])] == TARGETS[:20]
        assert [output.text for output in translator.translate(SOURCES[:4], DecodingOptions(beam_size=3))] == TARGETS[:4]
        assert translator.score(PAIRS[:3])[1].log_probability > -1
        workers = translator.engine._workers
        assert [sorted(kind.value for kind in worker.lanes) for worker in workers] == [["greedy", "search"]] * 2
        assert all(worker.steps.rows for worker in workers)
        assert translator.devices == gpus
        assert translator.rows == 2 * 4
        assert "cuda:0, cuda:1, fp16, 2 threads x" in translator.describe()
        held = {device: budget.reserved_bytes for device, budget in counted.made.items()}
        assert translator.reserved == held
        assert all(translator.engine.bytes / 2 < size for size in held.values())
    finally:
        translator.close()
    assert translator.reserved == {}
    assert {budget.reserved_bytes for budget in counted.made.values()} == {0}


def test_a_model_that_does_not_fit_is_rejected_with_figures(bundle: Bundle, gpus: tuple[Device, ...]) -> None:
    counted = budgets(1 << 40, MemoryLimit(bytes=1 << 20))
    with pytest.raises(
        DeviceMemoryError, match=r"model toy version 1 takes .* of cuda:0 \(weights .*caches of 4 rows"
    ) as error:
        Translator("toy", 1, bundle, options(gpus, counted))
    assert "1 MiB are left of 1 MiB: lower --slots, or raise --gpu-memory-limit" in str(error.value)
    assert {budget.reserved_bytes for budget in counted.made.values()} == {0}


def test_a_translator_that_fails_gives_its_memory_back(
    bundle: Bundle, gpus: tuple[Device, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker cannot make its lane: no translator, session or reservation remains."""

    def fail(self: DeviceGreedyLane) -> None:
        raise DeviceError("no kernel image is available")

    monkeypatch.setattr(DeviceGreedyLane, "warm_up", fail)
    sessions: weakref.WeakSet[Session] = weakref.WeakSet()
    make, close = Session.__init__, ModelDevices.close
    left: list[int] = []

    def count(self: Session, *args: Any, **kwargs: Any) -> None:
        sessions.add(self)
        make(self, *args, **kwargs)

    def close_after(self: ModelDevices) -> None:
        left.append(len(sessions))
        close(self)

    monkeypatch.setattr(Session, "__init__", count)
    monkeypatch.setattr(ModelDevices, "close", close_after)
    counted = budgets(1 << 40)
    with pytest.raises(DeviceError, match="no kernel image"):
        Translator("toy", 1, bundle, options(gpus, counted))
    assert left == [0]  # before their streams
    assert {budget.reserved_bytes for budget in counted.made.values()} == {0}


def test_other_precisions_run_on_the_cpu_only(bundle: Bundle, gpus: tuple[Device, ...]) -> None:
    with pytest.raises(DeviceError, match="precision fp32 runs on the CPU only, not on cuda:0, cuda:1"):
        Translator("toy", 1, bundle, DecodeModelOptions("fp32", EngineOptions(devices=gpus)))


def test_the_memory_plan_fits_what_is_allocated(bundle: Bundle, gpus: tuple[Device, ...]) -> None:
    """The caches, which Python allocates."""
    counted = budgets(1 << 40)
    translator = Translator("toy", 1, bundle, options(gpus, counted, eager=True))
    try:
        [reservation, _] = translator._model_devices._reservations.values()
        parts = reservation.parts
        [prefill, _] = translator.lanes._prefills.values()
        greedy, search = (translator.engine._workers[0].lanes[kind] for kind in (LaneKind.GREEDY, LaneKind.SEARCH))
        taken = greedy.bytes + prefill.bytes
        assert taken <= parts["caches of 4 rows"] <= 1.05 * taken
        assert parts["caches of 8 beams and samples"] <= search.bytes
        assert search.bytes - parts["caches of 8 beams and samples"] < parts["between operators"]
        weights = bundle.weight_bytes("fp16")
        assert weights / 2 < parts["weights"] < 4 * weights
    finally:
        translator.close()
