"""The engine: threads, failures, cancellation, shutdown."""

import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.engine import DecodeEngine, EngineOptions, with_gpu_limits
from triptych_serving.errors import CancelledError, DeadlineError, EngineError, UnavailableError
from triptych_serving.models.translation.translator import Translator, TranslatorOptions
from triptych_serving.runtime.device import Device
from triptych_serving.scheduling.decode_scheduler import DecodeLimits, LaneKind
from triptych_serving.scheduling.request import Finish, Row
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ....fixtures.toy import PAIRS, SOURCES, TARGETS
from ..calls import PATIENCE_SECONDS, RecordedCall, call_of, eventually, make_call
from ..conftest import MakeLane
from ..stub_lane import INDIGESTIBLE, POISON, Gate, StubLane, factory

ENDLESS = 1_000_000  # tokens


@contextmanager
def engine_with(
    make_lane: Callable[[], Any], workers: int = 1, clock: Callable[[], float] | None = None
) -> Iterator[DecodeEngine]:
    engine = DecodeEngine(lambda kind, worker: make_lane(), EngineOptions(workers), **({"clock": clock} if clock else {}))
    engine.start()
    try:
        yield engine
    finally:
        engine.close(drain=False)


@contextmanager
def stepping_engine(clock: Callable[[], float] | None = None) -> Iterator[tuple[DecodeEngine, StubLane, Gate]]:
    """One that makes a step for each that the gate allows."""
    gate = Gate()
    lane = StubLane(gate=gate)
    with engine_with(factory(lane), clock=clock) as engine:
        try:
            yield engine, lane, gate
        finally:
            gate.open()


def finished(call: RecordedCall) -> bool:
    return call.error is None and all(row.finish is not None for row in call.rows)


@pytest.mark.parametrize("poison", [POISON, INDIGESTIBLE])
def test_a_poisoned_row_fails_alone(poison: int) -> None:
    healthy, poisoned = [make_call() for _ in range(5)], make_call(source=[poison, 2])
    with stepping_engine() as (engine, _, gate):
        for call in (*healthy[:3], poisoned, *healthy[3:]):
            engine.submit(call)
        gate.open()
        for call in (*healthy, poisoned):
            call.wait()
        assert all(finished(call) for call in healthy)
        assert [len(call.rows[0].tokens) for call in healthy] == [10] * 5
        assert isinstance(poisoned.error, EngineError)
        assert "the runtime failed: cannot" in str(poisoned.error)

        later = make_call()
        engine.submit(later)
        later.wait()
        assert finished(later)


def test_after_a_failure_every_row_of_the_batch_runs_once_more_and_alone() -> None:
    calls = [make_call(max_tokens=3) for _ in range(3)]
    poisoned = make_call(source=[POISON, 2], max_tokens=3)
    with stepping_engine() as (engine, lane, gate):
        engine.submit(make_call(max_tokens=1))  # keeps the worker busy while the others gather
        eventually(lambda: len(lane.rows) == 1)
        for call in (*calls, poisoned):
            engine.submit(call)
        gate.open()
        for call in (*calls, poisoned):
            call.wait()
        assert lane.batches == [1, 4] + [1] * (3 * 3 + 1)


def test_rows_of_one_call_share_its_fate() -> None:
    call = call_of(Row([5, 2], 3), Row([POISON, 2], 3), Row([6, 2], 3))
    with engine_with(StubLane) as engine:
        engine.submit(call)
        call.wait()
        assert isinstance(call.error, EngineError)
        eventually(lambda: engine.load() == (0, 0))
    assert call.listener.ends == 1


def test_the_runtimes_own_error_is_not_wrapped_twice() -> None:
    class Failing(StubLane):
        def step(self) -> list[Any]:
            raise EngineError("the runtime failed: no memory")

    call = make_call()
    with engine_with(Failing) as engine:
        engine.submit(call)
        call.wait()
    assert str(call.error) == "the runtime failed: no memory"


def test_cancelled_rows_are_gone_after_one_step() -> None:
    call = make_call(rows=8, max_tokens=ENDLESS)
    with stepping_engine() as (engine, lane, gate):
        engine.submit(call)
        gate.allow(3)
        eventually(lambda: lane.steps == 3)
        assert engine.load() == (8, 0)
        engine.cancel(call)
        assert isinstance(call.error, CancelledError)
        gate.allow()  # the step that was under way
        eventually(lambda: engine.load() == (0, 0))
        assert lane.steps <= 4


def test_a_row_that_ends_after_its_call_was_cancelled_is_not_told_of() -> None:
    call = make_call(rows=2, max_tokens=1)
    with stepping_engine() as (engine, lane, gate):
        engine.submit(call)
        eventually(lambda: len(lane.rows) == 2)
        engine.cancel(call)
        gate.allow()
        eventually(lambda: engine.load() == (0, 0))
    assert isinstance(call.error, CancelledError)
    assert call.listener.ends == 1


def test_the_slots_of_a_cancelled_call_go_to_who_waits() -> None:
    endless, waiting = make_call(rows=8, max_tokens=ENDLESS), make_call(rows=8, max_tokens=2)
    with stepping_engine() as (engine, lane, gate):
        engine.submit(endless)
        gate.allow()
        eventually(lambda: lane.steps == 1)
        engine.submit(waiting)
        engine.cancel(endless)
        gate.allow(3)
        waiting.wait()
        assert lane.batches[-2:] == [8, 8]
        assert finished(waiting)


def test_a_running_call_ends_at_its_deadline() -> None:
    now = [0.0]
    call = make_call(max_tokens=ENDLESS, deadline=5.0)
    with stepping_engine(clock=lambda: now[0]) as (engine, lane, gate):
        engine.submit(call)
        gate.allow()
        eventually(lambda: lane.steps == 1)
        now[0] = 5.0
        gate.allow()
        call.wait()
        assert isinstance(call.error, DeadlineError)
        eventually(lambda: engine.load() == (0, 0))


def test_hundreds_of_cancels_leave_nothing_behind(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    rng = random.Random(1)
    sources = codec.encode(SOURCES)
    calls = [call_of(*(Row(source, 63) for source in rng.sample(sources, rng.choice([1, 1, 5])))) for _ in range(400)]
    with engine_with(lambda: make_lane(8), workers=2) as engine:
        for index, call in enumerate(calls):
            engine.submit(call)
            engine.cancel(calls[rng.randrange(index + 1)])
        for call in calls:
            call.wait()
        eventually(lambda: engine.load() == (0, 0))
        for call in calls:
            engine.cancel(call)  # too late: no effect

        source, target = PAIRS[7]
        last = call_of(Row(codec.encode([source])[0], 63))
        engine.submit(last)
        last.wait()
        assert codec.decode([last.rows[0].tokens]) == [target]
    assert {call.listener.ends for call in calls} == {1}
    assert {type(call.error) for call in calls} == {CancelledError, type(None)}
    assert all(finished(call) for call in calls if call.error is None)


def test_workers_share_the_rows_of_one_call(make_lane: MakeLane, codec: TranslationTokenizer) -> None:
    call = call_of(*(Row(source, 63) for source in codec.encode(SOURCES)))
    with engine_with(lambda: make_lane(8), workers=3) as engine:
        engine.submit(call)
        call.wait()
    assert codec.decode([row.tokens for row in call.rows]) == TARGETS
    assert call.listener.ends == 1


def test_a_stream_hears_of_every_token() -> None:
    streamed, silent = make_call(max_tokens=4, streams=True), make_call(max_tokens=4)
    with engine_with(StubLane) as engine:
        for call in (streamed, silent):
            engine.submit(call)
            call.wait()
    assert streamed.listener.tokens == [1, 2, 3, 4]
    assert silent.listener.tokens == []


def test_times_of_a_row_are_in_order() -> None:
    call = make_call(rows=3)
    with engine_with(StubLane) as engine:
        engine.submit(call)
        call.wait()
    for row in call.rows:
        assert 0 < call.arrived <= row.started <= row.first_token <= row.ended


def test_a_draining_engine_answers_all_that_it_has_accepted() -> None:
    running, waiting = make_call(rows=8), make_call(rows=20)
    with stepping_engine() as (engine, lane, gate):
        engine.submit(running)
        gate.allow()
        eventually(lambda: lane.steps == 1)
        engine.submit(waiting)
        closer = threading.Thread(target=engine.close)
        closer.start()
        eventually(lambda: refuses(engine))
        gate.open()
        closer.join(PATIENCE_SECONDS)
        assert not closer.is_alive()
    assert finished(running)
    assert finished(waiting)


def refuses(engine: DecodeEngine) -> bool:
    try:
        engine.submit(make_call(max_tokens=1))
    except UnavailableError:
        return True
    return False


def test_an_engine_that_does_not_drain_fails_what_is_left() -> None:
    running, waiting = make_call(rows=8, max_tokens=ENDLESS), make_call(rows=20)
    with stepping_engine() as (engine, lane, gate):
        engine.submit(running)
        gate.allow()
        eventually(lambda: lane.steps == 1)
        engine.submit(waiting)
        closer = threading.Thread(target=engine.close, kwargs={"drain": False})
        closer.start()
        eventually(lambda: refuses(engine))
        gate.allow()
        closer.join(PATIENCE_SECONDS)
        assert not closer.is_alive()
        assert lane.steps <= 3
        assert engine.load() == (0, 0)
    for call in (running, waiting):
        assert isinstance(call.error, UnavailableError)
        assert call.listener.ends == 1


def test_a_failure_during_the_shutdown_leaves_no_call_unanswered() -> None:
    calls = [make_call(), make_call(source=[POISON, 2])]
    with stepping_engine() as (engine, _, gate):
        for call in calls:
            engine.submit(call)
        closer = threading.Thread(target=engine.close, kwargs={"drain": False})
        closer.start()
        eventually(lambda: refuses(engine))
        gate.open()
        closer.join(PATIENCE_SECONDS)
        assert not closer.is_alive()
    assert [call.listener.ends for call in calls] == [1, 1]


def test_closing_twice_is_closing_once() -> None:
    with engine_with(StubLane) as engine:
        engine.close()
        engine.close(drain=False)
        with pytest.raises(UnavailableError):
            engine.submit(make_call())


def test_closed_workers_end() -> None:
    before = threading.active_count()
    with engine_with(StubLane, workers=4):
        assert threading.active_count() == before + 4
    assert threading.active_count() == before


def test_a_translator_answers_in_order(bundle: Bundle) -> None:
    translator = Translator("toy", 1, bundle, TranslatorOptions(engine=EngineOptions(workers=2, slots=5)))
    try:
        outputs = translator.translate(SOURCES)
        pieces = list(translator.stream(SOURCES[0]))
        assert translator.translate([]) == []
    finally:
        translator.close()
    assert [output.text for output in outputs] == TARGETS
    assert {output.finish for output in outputs} == {Finish.STOP}
    *text, whole = pieces
    assert "".join(map(str, text)) == TARGETS[0]
    assert whole == outputs[0]


def test_a_stream_that_is_left_gives_up_its_slot(bundle: Bundle) -> None:
    translator = Translator("toy", 1, bundle, TranslatorOptions(engine=EngineOptions()))
    try:
        stream = translator.stream(SOURCES[0])
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        eventually(lambda: translator.engine.load() == (0, 0))
    finally:
        translator.close()


def test_a_lane_that_cannot_be_made_fails_its_rows_and_no_others() -> None:
    lanes = {LaneKind.GREEDY: StubLane()}

    def make(kind: LaneKind, worker: int) -> Any:
        if kind not in lanes:
            raise MemoryError("no room")
        return lanes[kind]

    engine = DecodeEngine(make, EngineOptions(workers=1))
    engine.start()
    try:
        searched, greedy = make_call(), make_call()
        for row in searched.rows:
            row.search = SearchParams(beam_size=2)
        for call in (searched, greedy):
            engine.submit(call)
            call.wait()
        assert isinstance(searched.error, EngineError)
        assert finished(greedy)
        assert engine.load() == (0, 0)
    finally:
        engine.close(drain=False)


def test_lanes_are_made_and_warmed_up_in_the_threads_of_their_workers() -> None:
    made: dict[int, set[int]] = {}

    class Warm(StubLane):
        def __init__(self, worker: int) -> None:
            super().__init__()
            made[worker] = {threading.get_ident()}
            self._worker = worker

        def warm_up(self) -> None:
            made[self._worker].add(threading.get_ident())

    engine = DecodeEngine(lambda kind, worker: Warm(worker), EngineOptions(workers=3))
    engine.start()
    engine.close()
    assert sorted(made) == [0, 1, 2]
    assert all(len(threads) == 1 for threads in made.values())
    assert len(set.union(*made.values()) - {threading.get_ident()}) == 3


def test_an_engine_of_which_one_worker_cannot_make_its_lane_does_not_start() -> None:
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


def test_nothing_of_a_lane_that_fails_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though somebody keeps the error, or what it came of, and nobody collects garbage."""
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

    def make(kind: LaneKind, worker: int) -> StubLane:
        return StubLane() if kind is LaneKind.GREEDY else Failing()

    searched = make_call()
    searched.rows[0].search = SearchParams(beam_size=2)
    gc.disable()
    try:
        with pytest.raises(EngineError, match="cannot step") as kept:
            DecodeEngine(lambda kind, worker: Failing(), EngineOptions(workers=2)).start()
        assert isinstance(kept.value.__cause__, MemoryError)
        assert not alive
        engine = DecodeEngine(make, EngineOptions())
        engine.start()
        engine.submit(searched)
        searched.wait()
        engine.close()
        assert isinstance(searched.error, EngineError)
        assert not alive
    finally:
        gc.enable()


def test_a_gpu_steps_with_its_own_limits_where_none_are_chosen() -> None:
    gpus = (Device("cuda"),)
    usual = with_gpu_limits(EngineOptions(devices=gpus)).limits
    assert (usual.prefill_tokens, usual.refill_rows) == (4_096, 64)
    for chosen in (DecodeLimits(prefill_tokens=512, refill_rows=8), DecodeLimits(prefill_tokens=7, refill_rows=9)):
        assert with_gpu_limits(EngineOptions(limits=chosen, devices=gpus)).limits == chosen
    assert with_gpu_limits(EngineOptions()) == EngineOptions()


def test_a_gpu_has_one_worker() -> None:
    gpus = Device("cuda", 0), Device("cuda", 1)
    assert EngineOptions(workers=7, devices=gpus).threads == 2
    assert EngineOptions(workers=7).threads == 7


def test_a_row_that_has_said_nothing_yet_has_no_first_token() -> None:
    """A lane whose steps are heard of later."""

    class Late(StubLane):
        @property
        def news(self) -> list[Any]:
            return self.rows if self.steps > 2 else []

    gate = Gate()
    lane = Late(gate=gate)
    call = make_call(max_tokens=9, streams=True)
    with engine_with(factory(lane)) as engine:
        engine.submit(call)
        gate.allow(2)
        eventually(lambda: lane.steps == 2)
        assert call.rows[0].first_token == 0
        gate.open()
        call.wait()
    assert call.rows[0].first_token > 0
    assert call.listener.tokens == [3, 4, 5, 6, 7, 8, 9]
