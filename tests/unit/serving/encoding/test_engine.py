"""The one-shot engine: batches prepared ahead, overlapping runs, options. What both engines share is tested in scheduling/."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from triptych_serving.encoding.engine import OneShotEngine, OneShotOptions
from triptych_serving.encoding.options import SMALL_BYTES, TINY_BYTES, EncoderOptions
from triptych_serving.errors import DeadlineError, EngineError, UnavailableError
from triptych_serving.scheduling.batch_scheduler import BatchLimits
from triptych_serving.scheduling.request import Call, Item, Listener

from ..calls import PATIENCE_SECONDS, RecordedCall, eventually, item_call
from ..stub_lane import Gate
from ..stub_runner import INDIGESTIBLE, POISON, UNREADABLE, StubRunner

FULL = 256  # tokens that saturate the processor: a busy engine plans such a batch ahead
SMALL_BATCHES = BatchLimits(batch_rows=4, saturating_tokens=20)


@contextmanager
def engine_with(runner: StubRunner, *options: Any, **clock: Any) -> Iterator[OneShotEngine]:
    engine = OneShotEngine(runner, OneShotOptions(*options), **clock)
    engine.start()
    try:
        yield engine
    finally:
        engine.close(drain=False)


@contextmanager
def gated_engine(
    runs: int = 1, limits: BatchLimits | None = None, overlap: int = 1, **clock: Any
) -> Iterator[tuple[OneShotEngine, StubRunner, Gate]]:
    """Run an engine whose runs end when the gate lets them; all batches must be released at the end."""
    gate = Gate()
    runner = StubRunner(gate)
    with engine_with(runner, runs, limits or BatchLimits(), overlap, **clock) as engine:
        try:
            yield engine, runner, gate
        finally:
            gate.open()
    assert runner.held == 0


def occupy(engine: OneShotEngine, runner: StubRunner) -> RecordedCall:
    """Submit a call that runs until the gate lets it end."""
    call = item_call(5, payload="first")
    before = runner.running
    engine.submit(call)
    eventually(lambda: runner.running == before + 1)
    return call


def doubled(call: RecordedCall) -> bool:
    return call.error is None and all(item.result == item.payload * 2 for item in call.rows)


def test_items_that_arrive_while_the_engine_is_busy_run_together() -> None:
    calls = [item_call(5, payload=letter) for letter in "abcdef"]
    with gated_engine() as (engine, runner, gate):
        occupy(engine, runner)
        for call in calls:
            engine.submit(call)
            time.sleep(0.01)  # enough for a hasty engine to take each by itself
        assert engine.count_rows() == (1, 6)
        gate.open()
        for call in calls:
            call.wait()
    assert runner.batches == [["first"], list("abcdef")]
    assert all(map(doubled, calls))


def test_the_next_full_batch_is_prepared_while_one_runs() -> None:
    call = item_call(FULL, payload="next")
    with gated_engine() as (engine, runner, gate):
        first = occupy(engine, runner)
        engine.submit(call)
        eventually(lambda: runner.prepared == 2)
        assert (runner.running, len(runner.batches)) == (1, 1)
        assert engine.count_rows() == (2, 0)
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
        first = occupy(engine, runner)
        engine.submit(call)
        gate.open()
        eventually(lambda: len(runner.batches) == 2)
        assert first.listener.ends == 0
        finishing.open()
        call.wait()
        first.wait()


@pytest.mark.parametrize(("runs", "overlap"), [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_one_batch_more_is_prepared_than_runs(runs: int, overlap: int) -> None:
    call = item_call(*[5] * 80, payload="x")  # all rows at once: idle runs would divide the first ones
    with gated_engine(runs, SMALL_BATCHES, overlap) as (engine, runner, gate):
        engine.submit(call)
        eventually(lambda: runner.prepared == runs * overlap + 1 and runner.running == runs * overlap)
        assert engine.count_rows() == (4 * (runs * overlap + 1), 4 * (19 - runs * overlap))
        gate.open()
        call.wait()
    assert runner.most_running == runs * overlap
    assert max(runner.most_planned, runner.most_held) <= runs * overlap + 1


def test_idle_runs_share_the_items_of_a_call() -> None:
    call = item_call(*[20] * 8, payload="x")
    with gated_engine(runs=2) as (engine, runner, gate):
        engine.submit(call)
        eventually(lambda: runner.running == 2)
        assert [len(batch) for batch in runner.batches] == [4, 4]
        gate.open()
        call.wait()
    assert doubled(call)


def test_only_a_full_batch_is_sent_behind_another() -> None:
    first, *others = (item_call(5, payload=letter) for letter in "abcd")
    large = item_call(*[5] * 4, payload="e")
    with gated_engine(1, SMALL_BATCHES, 2) as (engine, runner, gate):
        engine.submit(first)
        eventually(lambda: runner.running == 1)
        for call in others:
            engine.submit(call)
        assert engine.count_rows() == (1, 3)
        gate.allow()
        eventually(lambda: runner.running == 1 and len(runner.batches) == 2)
        engine.submit(large)
        eventually(lambda: runner.running == 2)
        gate.open()
        large.wait()
    assert runner.batches == [["a"], ["b", "c", "d"], ["e"] * 4]


@pytest.mark.parametrize("poison", [INDIGESTIBLE, POISON, UNREADABLE, "cancelled"])
def test_batches_are_released_whatever_fails(poison: str) -> None:
    with gated_engine(1, SMALL_BATCHES, 2) as (engine, runner, gate):
        calls = [item_call(*[5] * 4, payload=payload) for payload in ("a", poison, "b", "c")]
        for call in calls:
            engine.submit(call)
        eventually(lambda: runner.running == 2)
        if poison == "cancelled":
            for call in calls:
                engine.cancel(call)
        gate.open()
        for call in calls:
            call.wait()
        eventually(lambda: engine.count_rows() == (0, 0))
        eventually(lambda: runner.held == 0)
        assert poison == "cancelled" or [type(call.error) for call in calls].count(EngineError) == 1


def test_a_prepared_batch_without_callers_never_runs() -> None:
    now = [0.0]
    gone, late = item_call(FULL, payload="gone"), item_call(FULL, payload="late", deadline=5.0)
    with gated_engine(clock=lambda: now[0]) as (engine, runner, gate):
        for call in (gone, late):
            occupy(engine, runner)
            engine.submit(call)
            eventually(lambda: engine.count_rows() == (2, 0))
            engine.cancel(gone)
            now[0] = 5.0 if call is late else 0.0
            gate.allow()
            eventually(lambda: engine.count_rows() == (0, 0))
        assert isinstance(late.error, DeadlineError)
    assert runner.batches == [["first"], ["first"]]


def test_an_engine_that_does_not_drain_finishes_what_runs() -> None:
    ahead = item_call(FULL, payload="ahead")
    with gated_engine() as (engine, runner, gate):
        running = occupy(engine, runner)
        engine.submit(ahead)
        eventually(lambda: runner.prepared == 2)
        closer = threading.Thread(target=engine.close, args=(False,))
        closer.start()
        eventually(lambda: engine._aborting)
        gate.open()
        closer.join(PATIENCE_SECONDS)
    assert doubled(running)
    assert isinstance(ahead.error, UnavailableError)
    assert runner.batches == [["first"]]


def test_a_listener_may_wait_for_another_thread_that_uses_the_engine() -> None:
    class Nosy(Listener):
        def __init__(self) -> None:
            self.done = threading.Event()
            self.answered = False

        def on_end(self) -> None:
            other = threading.Thread(target=engine.count_rows, daemon=True)
            other.start()
            other.join(PATIENCE_SECONDS)
            self.answered = not other.is_alive()
            self.done.set()

    listener = Nosy()
    with engine_with(StubRunner()) as engine:
        engine.submit(Call([Item("x", 5)], listener))
        assert listener.done.wait(2 * PATIENCE_SECONDS)
    assert listener.answered


def test_many_threads_get_their_own_results() -> None:
    runner = StubRunner()
    calls = [
        [RecordedCall([Item(f"{who}.{n}.{i}", 1 + (7 * n + i) % 90) for i in range(1 + n % 4)]) for n in range(50)]
        for who in range(8)
    ]
    with engine_with(runner, 2) as engine:
        threads = [threading.Thread(target=lambda mine=mine: [engine.submit(call) for call in mine]) for mine in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        engine.close()
    assert all(doubled(call) for mine in calls for call in mine)
    ran = [payload for batch in runner.batches for payload in batch]
    assert len(ran) == len(set(ran)), "an item ran twice"
    assert runner.most_running <= 2


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


@pytest.mark.parametrize("options", [{"runs": 0}, {"overlap": 0}])
def test_an_engine_needs_runs(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is 0, it must be at least 1"):
        OneShotOptions(**options)


SMALL, LARGE = SMALL_BYTES - 1, SMALL_BYTES


@pytest.mark.parametrize(
    ("options", "weight_bytes", "cpus", "threads", "runs"),
    [
        (EncoderOptions(), SMALL, 1, 1, 1),
        (EncoderOptions(), SMALL, 8, 1, 8),
        (EncoderOptions(), LARGE, 1, 1, 1),
        (EncoderOptions(), LARGE, 2, 2, 1),
        (EncoderOptions(), LARGE, 16, 4, 4),
        (EncoderOptions(), LARGE, 7, 4, 1),
        (EncoderOptions(threads=3), SMALL, 8, 3, 2),
        (EncoderOptions(threads=16), LARGE, 8, 16, 1),
        (EncoderOptions(runs=4), LARGE, 8, 2, 4),
        (EncoderOptions(runs=16), LARGE, 8, 1, 16),
        (EncoderOptions(threads=2, runs=3), SMALL, 1, 2, 3),
    ],
)
def test_cpus_are_shared_by_threads_and_runs(
    options: EncoderOptions, weight_bytes: int, cpus: int, threads: int, runs: int
) -> None:
    inside, engine = options.engine(weight_bytes, cpus)
    assert (inside, engine.runs) == (threads, runs)


@pytest.mark.parametrize(
    ("options", "weight_bytes", "cpus", "threads"),
    [
        (EncoderOptions(), SMALL, 1, 1),
        (EncoderOptions(), SMALL, 8, 4),
        (EncoderOptions(runs=2), SMALL, 2, 2),
        (EncoderOptions(), TINY_BYTES, 8, 4),
        (EncoderOptions(), TINY_BYTES - 1, 8, 0),
        (EncoderOptions(), LARGE, 8, 0),
        (EncoderOptions(threads=1), SMALL, 8, 0),
    ],
)
def test_a_lone_run_of_a_small_model_has_more_threads(
    options: EncoderOptions, weight_bytes: int, cpus: int, threads: int
) -> None:
    assert options.lone_threads(weight_bytes, cpus) == threads
