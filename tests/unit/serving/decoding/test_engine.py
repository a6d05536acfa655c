"""The decode engine: steps, streams, lanes and their threads. What both engines share is tested in scheduling/."""

import gc
import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.engine import NARROW_SLOTS, DecodeEngine, DecodeWorker, EngineOptions
from triptych_serving.errors import CancelledError, DeadlineError, EngineError, UnavailableError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.decode_scheduler import LaneKind, LanePlan
from triptych_serving.scheduling.request import Finish, Row

from ....fixtures.toy import SOURCES, TARGETS
from ..calls import RecordedCall, call_of, eventually, make_call, row_of
from ..stub_lane import POISON, Gate, StubLane

ENDLESS = 1_000_000  # tokens


@contextmanager
def started(
    make: Callable[[LaneKind, int], Any], workers: int = 1, kinds: Sequence[LaneKind] = (), **options: Any
) -> Iterator[DecodeEngine]:
    engine = DecodeEngine(make, EngineOptions(workers), **options)
    engine.start(kinds)
    try:
        yield engine
    finally:
        engine.close(drain=False)


@contextmanager
def stepping_engine(**options: Any) -> Iterator[tuple[DecodeEngine, StubLane, Gate]]:
    """Run an engine that makes a step for each that the gate allows."""
    gate = Gate()
    lane = StubLane(gate=gate)
    with started(lambda *_: lane, **options) as engine:
        try:
            yield engine, lane, gate
        finally:
            gate.open()


def finished(call: RecordedCall) -> bool:
    return call.error is None and all(row.finish is not None for row in call.rows)


def test_rows_leave_between_two_steps_when_cancelled_or_late() -> None:
    now = [0.0]
    gone, late = make_call(rows=4, max_tokens=ENDLESS), make_call(rows=4, max_tokens=ENDLESS, deadline=5.0)
    waiting = make_call(rows=8, max_tokens=2)
    with stepping_engine(clock=lambda: now[0]) as (engine, lane, gate):
        for call in (gone, late):
            engine.submit(call)
        gate.allow(3)
        eventually(lambda: lane.steps == 3)
        assert engine.count_rows() == (8, 0)
        engine.submit(waiting)
        engine.cancel(gone)
        now[0] = 5.0
        gate.allow(3)  # one of them was in progress
        waiting.wait()
        assert [type(call.error) for call in (gone, late)] == [CancelledError, DeadlineError]
        assert lane.batches[-2:] == [8, 8]
        assert finished(waiting)


def test_an_engine_that_does_not_drain_fails_running_rows() -> None:
    running = make_call(rows=8, max_tokens=ENDLESS)
    with stepping_engine() as (engine, lane, gate):
        engine.submit(running)
        eventually(lambda: len(lane.rows) == 8)
        gate.allow(2)
        engine.close(drain=False)
        assert lane.steps <= 2
    assert isinstance(running.error, UnavailableError)


def test_a_stream_is_told_of_every_token() -> None:
    streamed, silent = make_call(max_tokens=4, streams=True), make_call(max_tokens=4)
    with started(lambda *_: StubLane()) as engine:
        for call in (streamed, silent):
            engine.submit(call)
            call.wait()
    assert streamed.listener.tokens == [1, 2, 3, 4]
    assert silent.listener.tokens == []
    assert streamed.rows[0].started <= streamed.rows[0].first_token <= streamed.rows[0].ended


def test_the_first_token_is_timed_when_a_lane_reports_it() -> None:
    class Late(StubLane):
        @property
        def updated_rows(self) -> list[Any]:
            return self.rows if self.steps > 2 else []

    gate = Gate()
    lane, call = Late(gate=gate), make_call(max_tokens=9, streams=True)
    with started(lambda *_: lane) as engine:
        engine.submit(call)
        gate.allow(2)
        eventually(lambda: lane.steps == 2)
        assert call.rows[0].first_token == 0
        gate.open()
        call.wait()
    assert call.rows[0].first_token > 0
    assert call.listener.tokens == [3, 4, 5, 6, 7, 8, 9]


def test_a_translator_keeps_the_order_of_texts(bundle: Bundle) -> None:
    translator = Translator("toy", 1, bundle, DecodeModelOptions(engine=EngineOptions(workers=2, slots=5)))
    try:
        outputs = translator.translate(SOURCES[:60])
        *text, whole = translator.stream(SOURCES[0])
        assert translator.translate([]) == []
        left = translator.stream(SOURCES[0])
        next(left)
        left.close()  # type: ignore[attr-defined]
        eventually(lambda: translator.engine.count_rows() == (0, 0))
        assert re.search(r"CPU, fp32, (native kernels, )?2 threads x", translator.describe())
    finally:
        translator.close()
    assert [output.text for output in outputs] == TARGETS[:60]
    assert {output.hypotheses[0].finish for output in outputs} == {Finish.STOP}
    assert "".join(map(str, text)) == TARGETS[0]
    assert whole == outputs[0]


def test_lanes_share_the_time_of_a_thread() -> None:
    worker = DecodeWorker(lambda _kind, _number: StubLane(), 0)
    seconds = {LaneKind.GREEDY: 1.0, LaneKind.SEARCH: 5.0}

    def step(count: int) -> list[LaneKind | None]:
        chosen = []
        for _ in range(count):
            chosen.append(kind := worker.next_lane())
            if kind is not None:
                worker.use(kind, seconds[kind])
        return chosen

    search, greedy = worker.lane(LaneKind.SEARCH), worker.lane(LaneKind.GREEDY)
    assert step(1) == [None]
    search.join([row_of([5, 2], 9)])
    assert step(3) == [LaneKind.SEARCH] * 3
    greedy.join([row_of([5, 2], 9)])
    assert step(12).count(LaneKind.GREEDY) == 10
    search.reset()
    assert step(30) == [LaneKind.GREEDY] * 30
    search.join([row_of([5, 2], 9)])
    assert step(12).count(LaneKind.GREEDY) == 9, "the other lane owes nothing for the time that it had alone"


def test_wide_rows_have_threads_of_their_own() -> None:
    lanes: dict[tuple[LaneKind, int], StubLane] = {}

    def make(kind: LaneKind, worker: int) -> StubLane:
        lanes[kind, worker] = StubLane(32)
        return lanes[kind, worker]

    calls = [call_of(Row([5, 2], 3, SearchParams(beam_size=size))) for size in (1, NARROW_SLOTS, NARROW_SLOTS + 1)]
    retried = call_of(Row([POISON, 2], 3, SearchParams(beam_size=NARROW_SLOTS + 1)))
    with started(make, 2, [LaneKind.SEARCH], wide_workers=1) as engine:
        for call in (*calls, retried):
            engine.submit(call)
            call.wait()
    usual = {(kind, worker) for kind in (LaneKind.GREEDY, LaneKind.SEARCH) for worker in (0, 1)}
    assert set(lanes) == {*usual, (LaneKind.WIDE, 2)}
    assert all(map(finished, calls))
    assert isinstance(retried.error, EngineError)


def test_threads_are_woken_for_rows_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """One idle thread for one row, and a thread for wide rows for none of the others."""
    plans: list[int] = []
    plan = DecodeEngine._plans

    def note(self: DecodeEngine, worker: DecodeWorker) -> dict[LaneKind, LanePlan]:
        plans.append(worker.number)
        return plan(self, worker)

    monkeypatch.setattr(DecodeEngine, "_plans", note)
    with started(lambda *_: StubLane(32), 2, [LaneKind.SEARCH], wide_workers=1) as engine:
        eventually(lambda: len(set(plans)) == 3)
        plans.clear()
        call = call_of(Row([5, 2], 3, SearchParams()))
        engine.submit(call)
        call.wait()
        assert len(set(plans)) == 1
        assert 2 not in plans


def test_a_lane_that_cannot_be_made_fails_its_own_rows_only() -> None:
    lanes = {LaneKind.GREEDY: StubLane()}

    def make(kind: LaneKind, worker: int) -> Any:
        if kind not in lanes:
            raise MemoryError("no room")
        return lanes[kind]

    searched, greedy = call_of(Row([5, 2], 10, SearchParams(beam_size=2))), make_call()
    with started(make) as engine:
        for call in (searched, greedy):
            engine.submit(call)
            call.wait()
        assert isinstance(searched.error, EngineError)
        assert finished(greedy)
        assert engine.count_rows() == (0, 0)


def test_an_engine_whose_worker_cannot_be_rebuilt_fails() -> None:
    class Broken(StubLane):
        def reset(self) -> None:
            raise EngineError("the device is lost")

    gate = Gate()
    lanes: list[StubLane] = [Broken(gate=gate)]  # there is no second one
    reasons: list[str] = []
    running, waiting = make_call(rows=8, source=[POISON, 2]), make_call(rows=20)
    with started(lambda *_: lanes.pop()) as engine:
        engine.when_failed(reasons.append)
        engine.submit(running)
        eventually(lambda: engine.count_rows() == (8, 0))
        engine.submit(waiting)
        gate.open()
        for call in (running, waiting):
            call.wait()
        assert isinstance(running.error, EngineError)
        assert isinstance(waiting.error, UnavailableError)
        with pytest.raises(UnavailableError, match="could not be restarted: pop from empty list"):
            engine.submit(make_call())
        eventually(lambda: len(reasons) == 1)
        engine.when_failed(reasons.append)
        assert len(reasons) == 2
        assert engine.count_rows() == (0, 0)


def test_lanes_are_made_and_warmed_up_in_the_threads_of_their_workers() -> None:
    made: dict[int, set[int]] = {}

    class Warm(StubLane):
        def __init__(self, worker: int) -> None:
            super().__init__()
            made[worker] = {threading.get_ident()}
            self._worker = worker

        def warm_up(self) -> None:
            made[self._worker].add(threading.get_ident())

    with started(lambda _kind, worker: Warm(worker), workers=3):
        pass
    assert sorted(made) == [0, 1, 2]
    assert all(len(threads) == 1 for threads in made.values())
    assert len(set.union(*made.values()) - {threading.get_ident()}) == 3


def test_an_engine_does_not_start_if_one_worker_cannot_make_its_lane() -> None:
    before = threading.active_count()

    def make(kind: LaneKind, worker: int) -> StubLane:
        if worker == 1:
            raise MemoryError("no room on the second device")
        return StubLane()

    engine = DecodeEngine(make, EngineOptions(workers=2))
    with pytest.raises(MemoryError, match="no room on the second device"):
        engine.start()
    assert threading.active_count() == before
    with pytest.raises(UnavailableError):
        engine.submit(make_call())


def test_a_lane_that_fails_is_freed() -> None:
    """Without the garbage collector, though the error is kept."""
    alive: weakref.WeakSet[StubLane] = weakref.WeakSet()

    class Failing(StubLane):
        def __init__(self) -> None:
            super().__init__()
            alive.add(self)

        def warm_up(self) -> None:
            try:
                self.step_without_kernels()
            except MemoryError as error:
                raise EngineError("cannot step") from error

        def step_without_kernels(self) -> None:
            raise MemoryError("no room")

    searched = call_of(Row([5, 2], 10, SearchParams(beam_size=2)))
    gc.disable()
    try:
        with pytest.raises(EngineError, match="cannot step") as kept:
            DecodeEngine(lambda _kind, _worker: Failing(), EngineOptions(workers=2)).start()
        assert isinstance(kept.value.__cause__, MemoryError)
        assert not alive
        with started(lambda kind, _: StubLane() if kind is LaneKind.GREEDY else Failing()) as engine:
            engine.submit(searched)
            searched.wait()
        assert isinstance(searched.error, EngineError)
        assert not alive
    finally:
        gc.enable()


def test_a_gpu_has_one_worker() -> None:
    assert EngineOptions(workers=7, devices=(Device("cuda", 0), Device("cuda", 1))).worker_count == 2
    assert EngineOptions(workers=7).worker_count == 7
