"""Cached responses and shared computations."""

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_serving.errors import DeadlineError, EngineError, InvalidInputError, UnsupportedError
from triptych_serving.response_cache.response_cache import ENTRY_BYTES, ResponseCache, ResponseCacheOptions

from ..calls import in_loop

CACHE = ResponseCacheOptions(cache_bytes=1 << 20)
SHARE = ResponseCacheOptions(deduplicate=True)
BOTH = ResponseCacheOptions(cache_bytes=1 << 20, deduplicate=True)


class FakeModel:
    """A model with nothing but its identity."""


class Work:
    """Computations that run until they are told to end."""

    def __init__(self) -> None:
        self.begun_by: list[asyncio.Task[Any] | None] = []
        self.cancelled = 0
        self._ends: asyncio.Queue[bytes | BaseException] = asyncio.Queue()

    @property
    def begun(self) -> int:
        return len(self.begun_by)

    async def __call__(self) -> bytes:
        self.begun_by.append(asyncio.current_task())
        try:
            end = await self._ends.get()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(end, BaseException):
            raise end
        return end

    def end(self, end: bytes | BaseException) -> None:
        self._ends.put_nowait(end)

    def forget(self) -> None:
        """Drop ends that nobody needed."""
        self._ends = asyncio.Queue()


class Asking:
    """Requests to one model."""

    def __init__(self, options: ResponseCacheOptions) -> None:
        self.repeats = ResponseCache(options)
        self.work = Work()
        self.model: Any = FakeModel()

    def ask(self, content: bytes = b"hello", deadline: float | None = None) -> "asyncio.Task[bytes]":
        key = self.repeats.key(self.model, "Translate", content)
        return asyncio.create_task(self.repeats.respond(key, deadline, self.work))

    async def asked(self, count: int) -> "list[asyncio.Task[bytes]]":
        """Start `count` equal requests."""
        tasks = [self.ask() for _ in range(count)]
        await settle()
        return tasks

    async def answered(self, content: bytes = b"hello", value: bytes = b"hallo") -> bytes:
        """Send one request, for which `value` would be computed."""
        self.work.end(value)
        answer = await self.ask(content)
        self.work.forget()
        return answer


async def settle() -> None:
    """Let every task run as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_the_cache_is_off_by_default() -> None:
    assert not ResponseCache(ResponseCacheOptions()).is_on
    assert all(ResponseCache(options).is_on for options in (CACHE, SHARE, BOTH))
    with pytest.raises(ValueError, match="cache_bytes is -1, it must be at least 0"):
        ResponseCacheOptions(cache_bytes=-1)


@in_loop
async def test_a_cached_response_is_not_computed_again() -> None:
    asking = Asking(CACHE)
    assert [await asking.answered(), await asking.answered(value=b"other")] == [b"hallo", b"hallo"]
    assert asking.work.begun == 1
    counters = asking.repeats.counters
    assert (counters.hits, counters.misses, counters.entries, counters.bytes) == (1, 1, 1, 5 + ENTRY_BYTES)


@in_loop
async def test_keys_depend_on_request_method_and_model() -> None:
    asking = Asking(CACHE)
    repeats, model, other = asking.repeats, asking.model, FakeModel()
    key = repeats.key(model, "Translate", b"hello").digest
    assert key == repeats.key(model, "Translate", b"hello").digest
    assert key != repeats.key(model, "Translate", b"hello ").digest
    assert key != repeats.key(model, "FillMask", b"hello").digest
    assert key != repeats.key(other, "Translate", b"hello").digest  # type: ignore[arg-type]
    assert repeats.key(model, "A", b"B").digest != repeats.key(model, "AB", b"").digest


@in_loop
async def test_errors_are_not_cached() -> None:
    asking = Asking(BOTH)
    for error in (EngineError("broken"), InvalidInputError("contents[0]", "the text is empty")):
        asking.work.end(error)
        with pytest.raises(type(error)):
            await asking.ask()
    assert await asking.answered() == b"hallo"
    assert asking.repeats.counters.entries == 1


@in_loop
async def test_the_least_recently_used_response_is_evicted() -> None:
    asking = Asking(ResponseCacheOptions(cache_bytes=3 * (ENTRY_BYTES + 1)))
    for content in (b"1", b"2", b"3"):
        await asking.answered(content, b"x")
    await asking.answered(b"1")  # used again
    await asking.answered(b"4", b"x")
    await asking.answered(b"large", bytes(3 * (ENTRY_BYTES + 1) - ENTRY_BYTES + 1))  # more than the cache holds: not kept
    assert [await asking.answered(content, b"y") for content in (b"1", b"3", b"4", b"2")] == [b"x", b"x", b"x", b"y"]
    assert asking.repeats.counters.evictions == 2


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300)), max_size=60))
@in_loop
async def test_the_cache_never_exceeds_its_limit(requests: list[tuple[int, int]]) -> None:
    asking = Asking(ResponseCacheOptions(cache_bytes=2_000))
    counters = asking.repeats.counters
    kept: dict[int, int] = {}
    for content, size in requests:
        answer = await asking.answered(b"%d" % content, bytes(size))
        assert len(answer) == kept.setdefault(content, size)
        kept = {one: size for one, size in kept.items() if is_kept(asking, b"%d" % one)}
        assert counters.bytes == sum(size + ENTRY_BYTES for size in kept.values()) <= 2_000
        assert counters.entries == len(kept)


def is_kept(asking: Asking, content: bytes) -> bool:
    key = asking.repeats.key(asking.model, "Translate", content)
    return key.digest in key.entries.keys


@in_loop
async def test_a_models_responses_are_dropped_with_it() -> None:
    asking = Asking(CACHE)
    await asking.answered()
    first, asking.model = asking.model, FakeModel()
    await asking.answered()
    asking.repeats.retain([asking.model])
    counters = asking.repeats.counters
    assert (counters.purged, counters.entries, counters.bytes) == (1, 1, 5 + ENTRY_BYTES)
    assert await asking.answered(value=b"other") == b"hallo"
    asking.model = first  # a request that found it before it went
    await asking.answered()
    assert await asking.answered(value=b"other") == b"other"
    assert counters.entries == 1


@in_loop
async def test_responses_keep_no_model_in_memory() -> None:
    asking = Asking(BOTH)
    await asking.answered()
    model = weakref.ref(asking.model)
    asking.model = None
    gc.collect()
    assert model() is None


@in_loop
async def test_equal_requests_in_flight_are_computed_once() -> None:
    asking = Asking(SHARE)
    tasks = await asking.asked(6)
    tasks.pop(2).cancel()  # a follower, which affects no other
    await settle()
    asking.work.end(b"hallo")
    assert await asyncio.gather(*tasks) == [b"hallo"] * 5
    assert (asking.work.begun, asking.repeats.counters.shared) == (1, 4)
    again = asking.ask()  # nothing is kept
    asking.work.end(b"again")
    assert await again == b"again"


@in_loop
async def test_a_cancelled_leader_is_replaced() -> None:
    asking = Asking(SHARE)
    leader, *followers = await asking.asked(4)
    leader.cancel()
    await settle()
    assert (asking.work.begun, asking.work.cancelled) == (2, 1)
    asking.work.end(b"hallo")
    assert await asyncio.gather(*followers) == [b"hallo"] * 3
    assert asking.repeats.counters.shared == 2


@pytest.mark.parametrize("error", [DeadlineError("too late"), EngineError("broken")], ids=lambda error: error.status)
@in_loop
async def test_other_errors_go_to_the_leader_alone(error: Exception) -> None:
    asking = Asking(SHARE)
    leader, *followers = await asking.asked(3)
    asking.work.end(error)
    asking.work.end(b"hallo")
    with pytest.raises(type(error)):
        await leader
    assert await asyncio.gather(*followers) == [b"hallo"] * 2
    assert asking.work.begun == 2


@pytest.mark.parametrize(
    "error", [InvalidInputError("top_k", "0 is too few"), UnsupportedError("cannot")], ids=lambda e: e.status
)
@in_loop
async def test_an_invalid_request_fails_for_all(error: Exception) -> None:
    asking = Asking(BOTH)
    tasks = await asking.asked(3)
    asking.work.end(error)
    assert await asyncio.gather(*tasks, return_exceptions=True) == [error] * 3
    assert asking.work.begun == 1


@in_loop
async def test_the_follower_with_the_latest_deadline_takes_over() -> None:
    asking = Asking(SHARE)
    now = time.monotonic()
    leader, short, long = asking.ask(), asking.ask(deadline=now + 100), asking.ask(deadline=now + 200)
    await settle()
    leader.cancel()
    await settle()
    asking.work.end(b"hallo")
    assert await asyncio.gather(short, long) == [b"hallo"] * 2
    assert asking.work.begun_by == [leader, long]


@in_loop
async def test_a_follower_has_its_own_deadline() -> None:
    asking = Asking(SHARE)
    leader = asking.ask()
    await settle()
    for left in (0.01, -1.0):
        with pytest.raises(DeadlineError, match="while an equal request was being answered"):
            await asking.ask(deadline=time.monotonic() + left)
    asking.work.end(b"hallo")
    assert await leader == b"hallo"
    assert asking.work.begun == 1


@in_loop
async def test_a_computation_without_waiters_is_cancelled() -> None:
    asking = Asking(SHARE)
    tasks = await asking.asked(3)
    for task in reversed(tasks):
        task.cancel()
    await settle()
    assert (asking.work.begun, asking.work.cancelled) == (1, 1)
    later = asking.ask()  # nothing of the flight is left
    await settle()
    asking.work.end(b"hallo")
    assert await later == b"hallo"


@in_loop
async def test_a_follower_cancelled_while_taking_over_hands_on() -> None:
    asking = Asking(SHARE)
    leader, first, second = await asking.asked(3)
    leader.cancel()
    await asyncio.sleep(0)  # the leader has handed over; the first has not woken up yet
    first.cancel()
    await settle()
    asking.work.end(b"hallo")
    assert await second == b"hallo"
    assert asking.work.begun_by == [leader, second]


STEPS = st.sampled_from(["ask", "ask", "ask", "cancel", "end", "break", "wait"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 20), st.booleans()), max_size=25))
@in_loop
async def test_every_caller_gets_one_outcome(steps: list[tuple[str, int, bool]]) -> None:
    asking = Asking(SHARE)
    tasks: list[asyncio.Task[bytes]] = []
    for step, number, pauses in steps:
        match step:
            case "ask":
                tasks.append(asking.ask(b"%d" % (number % 2)))
            case "cancel" if tasks:
                tasks[number % len(tasks)].cancel()
            case "end":
                asking.work.end(b"hallo")
            case "break":
                asking.work.end(EngineError("broken"))
        if pauses:
            await asyncio.sleep(0)
    for _ in tasks:
        asking.work.end(b"hallo")
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, bytes | asyncio.CancelledError | EngineError)
    assert asking.repeats.counters.misses == asking.work.begun
    assert asking.repeats._flights == {}
