"""The one-shot engine: threads, lookahead, failures, cancellation, shutdown."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions, Runner
from triptych_serving.errors import CancelledError, DeadlineError, EngineError, OverloadedError, UnavailableError
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Call, Item, Listener
from triptych_serving.scheduling.wait_estimator import ExpectedCall

from ..calls import PATIENCE_SECONDS, RecordedCall, eventually, item_call
from ..stub_lane import Gate
from ..stub_runner import INDIGESTIBLE, POISON, UNREADABLE, StubRunner

FULL = 256  # tokens that saturate the processor: a busy engine plans such a batch ahead


@contextmanager
def engine_with(
    runner: Runner, runs: int = 1, clock: Callable[[], float] | None = None, limits: BatchLimits | None = None
) -> Iterator[OneShotEngine]:
    options = OneShotOptions(runs, limits or BatchLimits())
    engine = OneShotEngine(runner, options, **({"clock": clock} if clock else {}))
    engine.start()
    try:
        yield engine
    finally:
        engine.close(drain=False)


@contextmanager
def gated_engine(
    runs: int = 1, clock: Callable[[], float] | None = None, limits: BatchLimits | None = None
) -> Iterator[tuple[OneShotEngine, StubRunner, Gate]]:
    """One whose runs end when the gate lets them."""
    gate = Gate()
    runner = StubRunner(gate)
    with engine_with(runner, runs, clock, limits) as engine:
        try:
            yield engine, runner, gate
        finally:
            gate.open()


def busy(engine: OneShotEngine, runner: StubRunner) -> RecordedCall:
    """A call that keeps a run occupied until the gate lets it go."""
    call = item_call(5, payload="first")
    before = runner.running
    engine.submit(call)
    eventually(lambda: runner.running == before + 1)
    return call


def doubled(call: RecordedCall) -> bool:
    return call.error is None and all(item.result == item.payload * 2 for item in call.rows)


def test_a_lone_item_starts_at_once() -> None:
    call = item_call(5, payload="a")
    runner = StubRunner()
    with engine_with(runner) as engine:
        engine.submit(call)
        call.wait()
    assert call.rows[0].result == "aa"
    assert runner.batches == [["a"]]


def test_what_arrives_while_the_engine_is_busy_runs_together() -> None:
    calls = [item_call(5, payload=letter) for letter in "abcdef"]
    with gated_engine() as (engine, runner, gate):
        busy(engine, runner)
        for call in calls:
            engine.submit(call)
            time.sleep(0.01)  # enough for a hasty engine to take each by itself
        assert engine.load() == (1, 6)
        gate.open()
        for call in calls:
            call.wait()
    assert runner.batches == [["first"], list("abcdef")]
    assert all(map(doubled, calls))


def test_the_next_full_batch_is_prepared_while_one_runs() -> None:
    call = item_call(FULL, payload="next")
    with gated_engine() as (engine, runner, gate):
        first = busy(engine, runner)
        engine.submit(call)
        eventually(lambda: runner.prepared == 2)
        assert (runner.running, len(runner.batches)) == (1, 1)
        assert engine.load() == (2, 0)
        gate.allow()
        first.wait()
        eventually(lambda: len(runner.batches) == 2)
        gate.allow()
        call.wait()


def test_a_batch_runs_while_the_results_of_the_last_one_are_written() -> None:
    finishing = Gate()

    class SlowFinish(StubRunner):
        def finish(self, items: Sequence[Item], outputs: list[str]) -> None:
            finishing.pass_one()
            super().finish(items, outputs)

    gate = Gate()
    runner, call = SlowFinish(gate), item_call(5, payload="next")
    with engine_with(runner) as engine:
        first = busy(engine, runner)
        engine.submit(call)
        gate.open()
        eventually(lambda: len(runner.batches) == 2)
        assert first.listener.ends == 0
        finishing.open()
        call.wait()
        first.wait()


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_no_more_than_one_batch_is_planned_ahead(runs: int) -> None:
    calls = [item_call(FULL, payload="x") for _ in range(20)]
    with gated_engine(runs, limits=BatchLimits(batch_rows=1)) as (engine, runner, gate):
        for call in calls:
            engine.submit(call)
        eventually(lambda: runner.prepared == runs + 1)
        assert engine.load() == (runs + 1, 19 - runs)
        gate.open()
        for call in calls:
            call.wait()
    assert runner.most_running == runs
    assert runner.most_planned == runs + 1


def test_idle_runs_share_the_items_of_a_call() -> None:
    call = item_call(*[20] * 8, payload="x")
    with gated_engine(runs=2) as (engine, runner, gate):
        engine.submit(call)
        eventually(lambda: runner.running == 2)
        assert [len(batch) for batch in runner.batches] == [4, 4]
        gate.open()
        call.wait()
    assert doubled(call)


@pytest.mark.parametrize("poison", [INDIGESTIBLE, POISON, UNREADABLE])
def test_a_poisoned_item_fails_alone(poison: str) -> None:
    healthy, poisoned = [item_call(5, payload="x") for _ in range(5)], item_call(5, payload=poison)
    with gated_engine() as (engine, runner, gate):
        busy(engine, runner)
        for call in (*healthy[:3], poisoned, *healthy[3:]):
            engine.submit(call)
        gate.open()
        for call in (*healthy, poisoned):
            call.wait()
        assert all(map(doubled, healthy))
        assert isinstance(poisoned.error, EngineError)
        assert "the runtime failed: cannot" in str(poisoned.error)

        later = item_call(5, payload="y")
        engine.submit(later)
        later.wait()
        assert doubled(later)
        eventually(lambda: engine.load() == (0, 0))


def test_after_a_failure_every_item_of_the_batch_runs_once_more_and_alone() -> None:
    calls = [item_call(5, payload=payload) for payload in ("a", POISON, "b")]
    with gated_engine() as (engine, runner, gate):
        busy(engine, runner)
        for call in calls:
            engine.submit(call)
        gate.open()
        for call in calls:
            call.wait()
    assert runner.batches[1:] == [["a", POISON, "b"], ["a"], [POISON], ["b"]]


def test_items_of_one_call_share_its_fate() -> None:
    call = item_call(5, 6, 7, payload=POISON)
    with engine_with(StubRunner()) as engine:
        engine.submit(call)
        call.wait()
        assert isinstance(call.error, EngineError)
        eventually(lambda: engine.load() == (0, 0))
    assert call.listener.ends == 1


def test_the_runtimes_own_error_is_not_wrapped_twice() -> None:
    class Failing(StubRunner):
        def run(self, batch: list[str]) -> list[str]:
            raise EngineError("the runtime failed: no memory")

    call = item_call(5, payload="x")
    with engine_with(Failing()) as engine:
        engine.submit(call)
        call.wait()
    assert str(call.error) == "the runtime failed: no memory"


def test_a_call_cancelled_while_it_runs_is_told_once_and_at_once() -> None:
    with gated_engine() as (engine, runner, gate):
        call = busy(engine, runner)
        engine.cancel(call)
        assert isinstance(call.error, CancelledError)
        gate.allow()
        eventually(lambda: engine.load() == (0, 0))
        engine.cancel(call)
    assert call.listener.ends == 1


def test_a_cancelled_call_that_waits_never_runs() -> None:
    gone, other = item_call(5, 5, payload="gone"), item_call(5, payload="other")
    with gated_engine() as (engine, runner, gate):
        busy(engine, runner)
        engine.submit(gone)
        engine.submit(other)
        engine.cancel(gone)
        gate.open()
        other.wait()
        eventually(lambda: engine.load() == (0, 0))
    assert runner.batches == [["first"], ["other"]]


def test_a_prepared_batch_that_nobody_waits_for_never_runs() -> None:
    gone, other = item_call(FULL, payload="gone"), item_call(5, payload="other")
    with gated_engine() as (engine, runner, gate):
        busy(engine, runner)
        engine.submit(gone)
        eventually(lambda: runner.prepared == 2)
        engine.cancel(gone)
        engine.submit(other)
        gate.open()
        other.wait()
        eventually(lambda: engine.load() == (0, 0))
    assert runner.batches == [["first"], ["other"]]


def test_calls_end_at_their_deadline() -> None:
    now = [0.0]
    ahead, waiting = item_call(FULL, payload="ahead", deadline=5.0), item_call(5, payload="waiting", deadline=5.0)
    patient = item_call(5, payload="patient", deadline=6.0)
    with gated_engine(clock=lambda: now[0]) as (engine, runner, gate):
        busy(engine, runner)
        engine.submit(ahead)
        eventually(lambda: runner.prepared == 2)
        engine.submit(waiting)
        engine.submit(patient)
        now[0] = 5.0
        gate.open()
        for call in (ahead, waiting, patient):
            call.wait()
        with pytest.raises(DeadlineError):
            engine.submit(item_call(5, deadline=5.0))
    assert [type(call.error) for call in (ahead, waiting, patient)] == [DeadlineError, DeadlineError, type(None)]
    assert runner.batches == [["first"], ["patient"]]


def test_a_full_queue_refuses() -> None:
    with gated_engine(limits=BatchLimits(waiting_rows=2)) as (engine, runner, gate):
        busy(engine, runner)
        waiting = item_call(5, 5, payload="x")
        engine.submit(waiting)
        with pytest.raises(OverloadedError):
            engine.submit(item_call(5))
        gate.open()
        waiting.wait()
        later = item_call(5, payload="y")
        engine.submit(later)
        later.wait()
    assert doubled(waiting)
    assert doubled(later)


def test_times_of_an_item_are_in_order() -> None:
    ticks = iter(range(1, 1_000))
    call = item_call(5, 6, 2_000, payload="x")
    with engine_with(StubRunner(), clock=lambda: next(ticks)) as engine:
        engine.submit(call)
        call.wait()
    for item in call.rows:
        assert 0 < call.arrived < item.started < item.ended


def test_a_listener_may_wait_for_another_thread_that_uses_the_engine() -> None:
    class Nosy(Listener):
        def __init__(self) -> None:
            self.done = threading.Event()
            self.answered = False

        def on_end(self) -> None:
            asking = threading.Thread(target=engine.load, daemon=True)
            asking.start()
            asking.join(PATIENCE_SECONDS)
            self.answered = not asking.is_alive()
            self.done.set()

    listener = Nosy()
    with engine_with(StubRunner()) as engine:
        engine.submit(Call([Item("x", 5)], listener))
        assert listener.done.wait(2 * PATIENCE_SECONDS)
    assert listener.answered


def test_many_threads_get_their_own_results() -> None:
    limits = BatchLimits()
    runner = StubRunner()
    calls = [
        [Call([Item(f"{who}.{n}.{i}", 1 + (7 * n + i) % 90) for i in range(1 + n % 4)], Counter()) for n in range(150)]
        for who in range(8)
    ]

    def send(mine: list[Call[Item]]) -> None:
        rng = random.Random(len(mine))
        for call in mine:
            engine.submit(call)
            if rng.random() < 0.1:
                engine.cancel(call)

    with engine_with(runner, runs=2, limits=limits) as engine:
        threads = [threading.Thread(target=send, args=(mine,)) for mine in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        engine.close()
        assert engine.load() == (0, 0)
    everything = [call for mine in calls for call in mine]
    assert {call.listener.ends for call in everything} == {1}
    assert {type(call.error) for call in everything} <= {CancelledError, type(None)}
    for call in everything:
        assert call.error is not None or [item.result for item in call.rows] == [item.payload * 2 for item in call.rows]
    served = [payload for batch in runner.batches for payload in batch]
    assert len(served) == len(set(served)), "an item ran twice"
    assert runner.most_running <= 2


class Counter(Listener):
    """Counts how often it is told of the end."""

    def __init__(self) -> None:
        self.ends = 0

    def on_end(self) -> None:
        self.ends += 1


def test_the_runner_is_warm_before_anything_is_prepared() -> None:
    class Cold(StubRunner):
        warm = False

        def warm_up(self) -> None:
            assert self.prepared == 0
            self.warm = True

    runner, call = Cold(), item_call(5, payload="x")
    engine = OneShotEngine(runner, OneShotOptions())
    engine.submit(call)
    engine.start()
    call.wait()
    engine.close()
    assert runner.warm


def refuses(engine: OneShotEngine) -> bool:
    try:
        engine.submit(item_call(5, payload="x"))
    except UnavailableError:
        return True
    return False


@contextmanager
def closing(engine: OneShotEngine, gate: Gate, drain: bool) -> Iterator[None]:
    """Close from another thread; the gate opens afterwards."""
    closer = threading.Thread(target=engine.close, args=(drain,))
    closer.start()
    eventually(lambda: refuses(engine))
    yield
    gate.open()
    closer.join(PATIENCE_SECONDS)
    assert not closer.is_alive()


def test_a_draining_engine_answers_all_that_it_has_accepted() -> None:
    ahead, waiting = item_call(FULL, payload="x"), item_call(*[5] * 100, payload="y")
    with gated_engine() as (engine, runner, gate):
        running = busy(engine, runner)
        engine.submit(ahead)
        engine.submit(waiting)
        with closing(engine, gate, drain=True):
            assert running.listener.ends == 0
    assert all(map(doubled, (running, ahead, waiting)))


def test_a_batch_that_fails_in_a_draining_engine_is_still_retried() -> None:
    calls = [item_call(5, payload=payload) for payload in ("a", POISON, "b")]
    with gated_engine(runs=2) as (engine, runner, gate):
        busy(engine, runner)
        busy(engine, runner)
        for call in calls:
            engine.submit(call)
        with closing(engine, gate, drain=True):
            pass
    assert [doubled(call) for call in calls] == [True, False, True]
    assert isinstance(calls[1].error, EngineError)


def test_an_engine_that_does_not_drain_fails_what_waits() -> None:
    ahead, waiting = item_call(FULL, payload="ahead"), item_call(*[5] * 20, payload="waiting")
    with gated_engine() as (engine, runner, gate):
        running = busy(engine, runner)
        engine.submit(ahead)
        eventually(lambda: runner.prepared == 2)
        engine.submit(waiting)
        with closing(engine, gate, drain=False):
            waiting.wait()
        assert engine.load() == (0, 0)
    assert doubled(running)
    for call in (ahead, waiting):
        assert isinstance(call.error, UnavailableError)
        assert call.listener.ends == 1
    assert runner.batches == [["first"]]


def test_a_failure_during_the_shutdown_leaves_no_call_unanswered() -> None:
    calls = [item_call(5, payload=payload) for payload in ("a", POISON)]
    with gated_engine() as (engine, runner, gate):
        busy(engine, runner)
        for call in calls:
            engine.submit(call)
        gate.allow()
        eventually(lambda: runner.batches[1:] == [["a", POISON]])
        with closing(engine, gate, drain=False):
            pass
    assert [call.listener.ends for call in calls] == [1, 1]
    assert {type(call.error) for call in calls} == {UnavailableError}


def test_closing_twice_is_closing_once() -> None:
    with engine_with(StubRunner()) as engine:
        engine.close()
        engine.close(drain=False)
        with pytest.raises(UnavailableError):
            engine.submit(item_call(5))


def test_what_waits_in_an_engine_that_never_started_is_failed() -> None:
    engine, call = OneShotEngine(StubRunner(), OneShotOptions()), item_call(5)
    engine.submit(call)
    engine.close(drain=False)
    assert isinstance(call.error, UnavailableError)


def test_closed_workers_end() -> None:
    before = threading.active_count()
    with engine_with(StubRunner(), runs=3):
        assert threading.active_count() == before + 4
    assert threading.active_count() == before


def test_an_engine_without_runs_would_never_answer() -> None:
    with pytest.raises(ValueError, match="runs is 0, it must be at least 1"):
        OneShotOptions(runs=0)


def test_endings_are_counted() -> None:
    now = [0.0]
    with gated_engine(clock=lambda: now[0], limits=BatchLimits(waiting_rows=4)) as (engine, runner, gate):
        first, expired, gone, failed = (
            busy(engine, runner),
            item_call(5, 5, payload="x", deadline=1.0),
            item_call(5, payload="x"),
            item_call(5, payload=POISON),
        )
        for call in (expired, gone, failed):
            engine.submit(call)
        with pytest.raises(OverloadedError):
            engine.submit(item_call(5))
        engine.count_rejected()
        engine.cancel(gone)
        now[0] = 1.0
        gate.open()
        for call in (first, expired, failed):
            call.wait()
        eventually(lambda: engine.load() == (0, 0))
        counters = engine.counters
    assert (counters.finished, counters.expired, counters.cancelled, counters.failed) == (1, 1, 1, 1)
    assert (counters.rejected, counters.freed) == (2, 3)


def test_a_call_is_refused_before_it_is_made() -> None:
    with gated_engine(limits=BatchLimits(waiting_rows=2)) as (engine, runner, _):
        engine.check(ExpectedCall(), deadline=time.monotonic() + 1)
        busy(engine, runner)
        engine.submit(item_call(5, 5, payload="x"))
        with pytest.raises(OverloadedError, match="2 rows are waiting, 1 more exceed"):
            engine.check(ExpectedCall())
        assert engine.counters.rejected == 1
