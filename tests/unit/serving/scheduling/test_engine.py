"""Behaviour that both engines share: failures, cancellation, deadlines, shutdown."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from triptych_serving.decoding.engine import DecodeEngine, EngineOptions
from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions
from triptych_serving.errors import CancelledError, DeadlineError, EngineError, OverloadedError, UnavailableError
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.decode_scheduler import DecodeLimits
from triptych_serving.scheduling.engine import Engine, run_rows
from triptych_serving.scheduling.request import Row
from triptych_serving.scheduling.wait_estimator import ExpectedCall

from .. import stub_lane, stub_runner
from ..calls import PATIENCE_SECONDS, RecordedCall, eventually, item_call
from ..stub_lane import Gate, StubLane
from ..stub_runner import StubRunner


@dataclass
class EngineStub:
    """One of the two engines over a stub; each batch, or step, waits at the gate. A row to decode has one token."""

    decodes: bool
    gate: Gate = field(default_factory=Gate)
    now: list[float] | None = None  # the engine's clock; None: real time

    def __post_init__(self) -> None:
        self.lane, self.runner = StubLane(gate=self.gate), StubRunner(self.gate)

    def make(self, **limits: Any) -> Engine[Any]:
        clock: dict[str, Any] = {} if self.now is None else {"clock": lambda: self.now[0]}  # type: ignore[index]
        if self.decodes:
            return DecodeEngine(lambda _kind, _worker: self.lane, EngineOptions(limits=DecodeLimits(**limits)), **clock)
        return OneShotEngine(self.runner, OneShotOptions(limits=BatchLimits(**limits)), **clock)

    @contextmanager
    def running(self, **limits: Any) -> Iterator[Engine[Any]]:
        """Start the engine; the gate opens at the end."""
        engine = self.make(**limits)
        engine.start()  # type: ignore[attr-defined]
        try:
            yield engine
        finally:
            self.gate.open()
            engine.close(drain=False)

    def call(self, *rows: str, deadline: float | None = None) -> RecordedCall:
        """Make a call of rows that are "good", or fail in "prepare" or "run"."""
        names = rows or ("good",)
        if self.decodes:
            sources = {"good": 5, "prepare": stub_lane.INDIGESTIBLE, "run": stub_lane.POISON}
            return RecordedCall([Row([sources[name], 2], 1) for name in names], deadline)
        payloads = {"good": "good", "prepare": stub_runner.INDIGESTIBLE, "run": stub_runner.POISON}
        call = item_call(*[5] * len(names), deadline=deadline)
        for row, name in zip(call.rows, names, strict=True):
            row.payload = payloads[name]
        return call

    def occupy(self, engine: Engine[Any]) -> RecordedCall:
        """Submit a call and wait until it runs; it ends when the gate lets it."""
        call = self.call()
        engine.submit(call)
        eventually(lambda: bool(self.lane.rows) if self.decodes else self.runner.running == 1)
        return call

    @property
    def batches(self) -> list[int]:
        """Sizes of the batches, in order."""
        return self.lane.batches if self.decodes else [len(batch) for batch in self.runner.batches]


@pytest.fixture(params=[True, False], ids=["decode", "one-shot"])
def stub(request: pytest.FixtureRequest) -> EngineStub:
    return EngineStub(request.param)


def succeeded(call: RecordedCall) -> bool:
    """Return True if all rows have a result, with times in order."""
    return call.error is None and all(0 < call.arrived <= row.started <= row.ended for row in call.rows)


@contextmanager
def closing(stub: EngineStub, engine: Engine[Any], drain: bool) -> Iterator[None]:
    """Close the engine from another thread; open the gate afterwards."""
    closer = threading.Thread(target=engine.close, args=(drain,))
    closer.start()
    eventually(lambda: engine._stopping)
    yield
    stub.gate.open()
    closer.join(PATIENCE_SECONDS)
    assert not closer.is_alive()


@pytest.mark.parametrize("failure", ["prepare", "run"])
def test_a_row_that_fails_fails_alone(stub: EngineStub, failure: str) -> None:
    healthy, poisoned = [stub.call() for _ in range(5)], stub.call(failure)
    with stub.running() as engine:
        stub.occupy(engine)
        for call in (*healthy[:3], poisoned, *healthy[3:]):
            engine.submit(call)
        stub.gate.open()
        for call in (*healthy, poisoned):
            call.wait()
        assert all(map(succeeded, healthy))
        assert isinstance(poisoned.error, EngineError)
        assert "the runtime failed: cannot" in str(poisoned.error)
        if failure == "run":
            assert stub.batches == [1, 6] + [1] * 6, "every row of the batch runs once more, alone"
        later = stub.call()
        engine.submit(later)
        later.wait()
        assert succeeded(later)
        eventually(lambda: engine.count_rows() == (0, 0))


def test_rows_of_one_call_share_its_outcome(stub: EngineStub) -> None:
    call = stub.call("good", "run", "good")
    stub.gate.open()
    with stub.running() as engine:
        engine.submit(call)
        call.wait()
        assert isinstance(call.error, EngineError)
        eventually(lambda: engine.count_rows() == (0, 0))
    assert call.listener.ends == 1


class Crash(BaseException):
    """Not caught as the failure of a batch."""


@pytest.fixture
def crashing(stub: EngineStub, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a method of the lane or runner raise once, before or after its work."""

    def crash_once(decoding: str, one_shot: str, after: bool = False) -> None:
        owner, name = (StubLane, decoding) if stub.decodes else (StubRunner, one_shot)
        method, left = getattr(owner, name), [Crash("out of order")]

        def crash(*arguments: Any) -> Any:
            result = method(*arguments) if after else None
            if left:
                raise left.pop()
            return result if after else method(*arguments)

        monkeypatch.setattr(owner, name, crash)

    return crash_once


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("decoding", "one_shot"), [("join", "prepare"), ("step", "run"), ("step", "finish"), ("step", "release")]
)
def test_a_worker_that_fails_fails_its_rows_and_is_rebuilt(
    stub: EngineStub, crashing: Callable[..., None], decoding: str, one_shot: str, after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    calls = [stub.call("good", "good") for _ in range(3)]
    with stub.running() as engine:
        stub.occupy(engine).listener.ended.clear()
        for call in calls:
            engine.submit(call)
        crashing(decoding, one_shot, after)
        stub.gate.open()
        for call in calls:
            call.wait()
        later = stub.call()
        engine.submit(later)
        later.wait()
        assert succeeded(later)
        eventually(lambda: engine.count_rows() == (0, 0))
    assert all(succeeded(call) or isinstance(call.error, EngineError) for call in calls)
    assert "worker failed" in caplog.text
    assert "Crash: out of order" in caplog.text


def test_a_row_that_leaves_badly_keeps_nobody_waiting(stub: EngineStub, crashing: Callable[..., None]) -> None:
    cancelled, other = stub.call("good", "good"), stub.call("good", "good")
    with stub.running() as engine:
        for call in (cancelled, other):
            engine.submit(call)
        eventually(lambda: engine.count_rows()[0] > 0)
        crashing("leave", "release")
        engine.cancel(cancelled)
        stub.gate.open()
        for call in (cancelled, other, later := stub.call()):
            if call is later:
                engine.submit(call)
            call.wait()
        assert succeeded(later)


def test_a_scheduler_that_fails_ends_all_calls(stub: EngineStub, monkeypatch: pytest.MonkeyPatch) -> None:
    with stub.running() as engine:
        running, waiting = stub.occupy(engine), stub.call(*["good"] * 40)
        engine.submit(waiting)
        monkeypatch.setattr(engine._queue, "plan", lambda *_: 1 / 0)
        stub.gate.open()
        for call in (running, waiting):
            call.wait()
        later = stub.call()
        engine.submit(later)
        later.wait()
        assert succeeded(later)
        assert engine.counters.failed >= 1
    assert isinstance(waiting.error, EngineError)


def test_a_listener_that_fails_harms_nobody_else(stub: EngineStub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.gate.open()
    with stub.running() as engine:
        bad, good = stub.call(), stub.call()
        monkeypatch.setattr(bad.listener, "on_end", lambda: 1 / 0)
        for call in (bad, good):
            engine.submit(call)
        good.wait()
        assert succeeded(good)
        eventually(lambda: succeeded(bad))


def test_an_engine_error_is_not_wrapped_again(stub: EngineStub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise EngineError("the runtime failed: no memory")

    monkeypatch.setattr(StubLane, "step", fail)
    monkeypatch.setattr(StubRunner, "run", fail)
    call = stub.call()
    with stub.running() as engine:
        engine.submit(call)
        call.wait()
    assert str(call.error) == "the runtime failed: no memory"


def test_cancelled_calls_end_at_once_and_never_run(stub: EngineStub) -> None:
    with stub.running() as engine:
        running, gone, other = stub.occupy(engine), stub.call("good", "good"), stub.call()
        for call in (gone, other):
            engine.submit(call)
        for call in (running, gone, running):
            engine.cancel(call)
        assert isinstance(running.error, CancelledError)
        stub.gate.open()
        other.wait()
        eventually(lambda: engine.count_rows() == (0, 0))
        engine.cancel(other)  # too late: no effect
        assert succeeded(other)
    assert [call.listener.ends for call in (running, gone, other)] == [1, 1, 1]
    assert stub.batches == [1, 1]


def test_outcomes_are_counted(stub: EngineStub) -> None:
    stub.now = [1.0]
    with stub.running(waiting_rows=4) as engine:
        first, expired, gone, failed = (
            stub.occupy(engine),
            stub.call("good", "good", deadline=2.0),
            stub.call(),
            stub.call("run"),
        )
        for call in (expired, gone, failed):
            engine.submit(call)
        with pytest.raises(OverloadedError):
            engine.submit(stub.call())
        assert engine.count_rows() == (1, 4)
        engine.cancel(gone)
        stub.now[0] = 2.0
        stub.gate.open()
        for call in (first, expired, failed):
            call.wait()
        eventually(lambda: engine.count_rows() == (0, 0))
        assert isinstance(expired.error, DeadlineError)
        counters = engine.counters
        assert (counters.finished, counters.expired, counters.cancelled, counters.failed) == (1, 1, 1, 1)
        assert (counters.rejected, counters.freed) == (1, 3)
        engine.forget()
        assert engine.counters.finished == 0


def test_a_call_is_rejected_before_its_rows_are_made(stub: EngineStub) -> None:
    with stub.running(waiting_rows=2) as engine:
        engine.check(ExpectedCall())
        stub.occupy(engine)
        engine.submit(stub.call("good", "good"))
        with pytest.raises(OverloadedError, match="2 rows are waiting, 1 more exceed the limit of 2"):
            engine.check(ExpectedCall())
        assert engine.counters.rejected == 1


def test_threads_that_submit_and_cancel_leave_nothing_behind(stub: EngineStub) -> None:
    stub.gate.open()
    calls = [[stub.call(*["good"] * (1 + n % 4)) for n in range(100)] for _ in range(4)]

    def send(mine: list[RecordedCall]) -> None:
        rng = random.Random(len(mine))
        for index, call in enumerate(mine):
            engine.submit(call)
            if rng.random() < 0.3:
                engine.cancel(mine[rng.randrange(index + 1)])

    with stub.running() as engine:
        threads = [threading.Thread(target=send, args=(mine,)) for mine in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        engine.close()
        assert engine.count_rows() == (0, 0)
    everything = [call for mine in calls for call in mine]
    assert {call.listener.ends for call in everything} == {1}
    assert {type(call.error) for call in everything} == {CancelledError, type(None)}
    assert all(succeeded(call) for call in everything if call.error is None)


def test_a_draining_engine_finishes_all_accepted_calls(stub: EngineStub) -> None:
    with stub.running() as engine:
        calls = [stub.occupy(engine), stub.call(*["good"] * 100), stub.call("good", "run")]
        for call in calls[1:]:
            engine.submit(call)
        with closing(stub, engine, drain=True):
            assert calls[0].listener.ends == 0
    assert [succeeded(call) for call in calls] == [True, True, False]
    assert isinstance(calls[2].error, EngineError)


def test_an_engine_that_does_not_drain_fails_what_waits(stub: EngineStub) -> None:
    with stub.running() as engine:
        stub.occupy(engine)
        waiting = stub.call(*["good"] * 8)  # too few for a batch to be prepared ahead
        engine.submit(waiting)
        with closing(stub, engine, drain=False):
            waiting.wait()
        assert engine.count_rows() == (0, 0)
        engine.close()  # changes nothing
        with pytest.raises(UnavailableError):
            engine.submit(stub.call())
    assert isinstance(waiting.error, UnavailableError)
    assert waiting.listener.ends == 1
    assert stub.batches == [1]


def test_a_failure_during_shutdown_leaves_no_call_without_an_end(stub: EngineStub) -> None:
    calls = [stub.call(), stub.call("run")]
    with stub.running() as engine:
        stub.occupy(engine)
        for call in calls:
            engine.submit(call)
        stub.gate.allow()
        eventually(lambda: engine.count_rows() == (2, 0))
        with closing(stub, engine, drain=False):
            pass
    assert [call.listener.ends for call in calls] == [1, 1]
    assert all(call.error is not None for call in calls)


def test_calls_of_an_engine_that_never_started_fail(stub: EngineStub) -> None:
    engine, call = stub.make(), stub.call()
    engine.submit(call)
    engine.close(drain=False)
    assert isinstance(call.error, UnavailableError)


@pytest.mark.parametrize(
    ("make", "threads"),
    [
        (lambda: DecodeEngine(lambda _kind, _worker: StubLane(), EngineOptions(workers=4)), 4),
        (lambda: OneShotEngine(StubRunner(), OneShotOptions(runs=3)), 4),
    ],
)
def test_closed_workers_end(make: Callable[[], Any], threads: int) -> None:
    before = threading.active_count()
    engine = make()
    engine.start()
    assert threading.active_count() == before + threads
    engine.close()
    assert threading.active_count() == before


def test_rows_can_be_run_synchronously(stub: EngineStub) -> None:
    stub.gate.open()
    with stub.running() as engine:
        run_rows(engine, [])
        rows = stub.call("good", "good").rows
        run_rows(engine, rows)
        assert all(row.ended for row in rows)
        with pytest.raises(EngineError):
            run_rows(engine, stub.call("run").rows)
