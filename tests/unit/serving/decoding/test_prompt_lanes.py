"""Rows of decoder-only models: prompts are read in chunks beside rows that decode, and change nothing."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from triptych_serving.bundle.search_params import SearchParams, SearchRules
from triptych_serving.decoding import prompt_cache
from triptych_serving.decoding.prompt_cache import BLOCK, PrefixCache, PromptReader, Reading
from triptych_serving.models.generation.text import StopCheck
from triptych_serving.scheduling.request import Finish, Row

from ..toy_prompts import TOKENS, WORDS, greedy, log_probabilities, make_lane, read_together, row_of

RULES = SearchRules.TRANSFORMERS
SCORED = SearchParams(rules=RULES, top_log_probabilities=3)
SAMPLED = SearchParams(rules=RULES, sampling_topk=0, temperature=0.8, seed=5)


def prompts(count: int, seed: int = 1) -> list[list[int]]:
    """Return prompts of 1 to 90 tokens."""
    random = np.random.default_rng(seed)
    return [random.integers(4, TOKENS, size).tolist() for size in random.integers(1, 90, count).tolist()]


def join(lane: Any, rows: Sequence[Row]) -> None:
    for row in rows:
        row.call = SimpleNamespace(streams=False)  # type: ignore[assignment]
    lane.join(rows)


def run(lane: Any, arrivals: Sequence[Sequence[Row]]) -> None:
    """Let rows join, one group after each of the first steps, until all have ended."""
    waiting = [list(rows) for rows in arrivals]
    left = sum(map(len, waiting))
    while left:
        if waiting:
            join(lane, waiting.pop(0))
        left -= len(lane.step())


def generated(row: Row) -> list[int]:
    return list(row.hypotheses[0].tokens[row.prompt :])


@pytest.mark.parametrize(
    ("searches", "limit", "chunks"), [(False, 0, False), (False, 1 << 20, True), (True, 0, True), (True, 1 << 20, False)]
)
def test_rows_decode_alike_alone_and_in_company(searches: bool, limit: int, chunks: bool) -> None:
    given = prompts(20)
    shared = given[0] * 3
    given += [[*shared, 5], [*shared, 6], [*shared, 5]]
    search = SCORED if searches else SearchParams()
    lane, graph = make_lane(searches, prefixes=PrefixCache(limit), chunks=chunks)
    rows = [row_of(prompt, 15, search=search) for prompt in given]
    run(lane, [rows[i : i + 3] for i in range(0, len(rows), 3)])
    assert [generated(row) for row in rows] == [greedy(prompt, 15, searches) for prompt in given]
    assert all(chunk >= 2 for chunk in graph.reads)
    if not searches:
        assert bool(limit) == any(row.cached for row in rows[-2:])
    for row, prompt in zip(rows, given, strict=True) if searches else ():
        history = list(prompt)
        for note in row.log_probabilities:
            expected = log_probabilities(tuple(history), read_together(prompt, searches))
            assert note.log_probability == pytest.approx(expected[note.token], abs=1e-6)
            assert [token for token, _ in note.top] == np.argsort(-expected)[:3].tolist()
            history.append(note.token)
        assert history[len(prompt) :] == generated(row)


def test_samples_depend_on_seed_and_number_alone() -> None:
    given = prompts(6, seed=2)
    searches = [SAMPLED, SearchParams(rules=RULES, sampling_topk=0, temperature=0.8, seed=5, sample=1)]
    alone = []
    for prompt in given:
        for search in searches:
            row = row_of(prompt, 12, search=search)
            run(make_lane(True)[0], [[row]])
            alone.append(generated(row))
    rows = [row_of(prompt, 12, search=search) for prompt in given for search in searches]
    run(make_lane(True, count=16)[0], [rows[:5], rows[5:]])
    assert [generated(row) for row in rows] == alone
    assert alone[::2] != alone[1::2]


def test_a_long_prompt_is_read_in_chunks_between_steps() -> None:
    lane, graph = make_lane(False)
    first, long = row_of([4, 5], 40), row_of(prompts(1, seed=3)[0] * 3, 5)
    assert long.prompt > 100
    run(lane, [[first], [long]])
    assert max(graph.reads) < long.prompt
    assert generated(first) == greedy([4, 5], 40)


@pytest.mark.parametrize("step", [0.01, 0.04, 0.07, 0.2])
def test_chunks_are_bounded_by_the_time_of_steps_on_a_machine_of_any_speed(step: float) -> None:
    now = 0.0
    chunks = []

    def read(_slot: int, tokens: Sequence[int], _position: int) -> int:
        nonlocal now
        chunks.append(len(tokens))
        now += len(tokens) * cost
        return 4

    slots = SimpleNamespace(positions=[0], tokens=[0])
    reader = PromptReader(SimpleNamespace(read=read), PrefixCache(0), clock=lambda: now)  # type: ignore[arg-type]
    row = row_of([4] * 6_000, 5)
    reading = Reading(row, 0, 0, row.prompt)
    for cost in (1e-4, 1e-3, 5e-3, 2e-4):  # seconds of a token; suddenly another
        for index in range(8):
            before = now - step
            reader.read([reading], slots)  # type: ignore[arg-type]
            if index:  # one chunk to learn from
                assert now - before < prompt_cache.TOKEN_SECONDS + 1e-9 or chunks[-1] == prompt_cache.SMALLEST_CHUNK
                assert chunks[-1] * cost < prompt_cache.CHUNK_SECONDS + 1e-9 or chunks[-1] == prompt_cache.SMALLEST_CHUNK
            now += step
    assert chunks[7] > chunks[15] > chunks[23] or step > prompt_cache.TOKEN_SECONDS
    assert reading.position == sum(chunks)


@pytest.mark.parametrize("searches", [False, True])
@pytest.mark.parametrize("chunk", [2, 7, 16])
def test_prompts_of_every_length_end(searches: bool, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_cache, "SMALLEST_CHUNK", chunk)
    monkeypatch.setattr(prompt_cache, "LARGEST_CHUNK", chunk)
    for size in range(1, 36):  # also those of which the chunks leave a single token
        lane, _ = make_lane(searches, prefixes=PrefixCache(1 << 20))
        search, most = SCORED if searches else SearchParams(), 1 + size % 2
        row = row_of([5] * size, most, search=search)
        run(lane, [[row]])
        assert generated(row) == greedy([5] * size, most, searches)


def test_prefix_cache_is_bounded_and_counted() -> None:
    block = 2 * BLOCK * 2 * 4  # bytes: key and value, one head of two dimensions
    prefixes = PrefixCache(3 * block)
    prompt = [*range(4, 39), *range(4, 39)]
    for _ in range(2):
        lane, _ = make_lane(False, prefixes=prefixes)
        row = row_of(prompt, 3)
        run(lane, [[row]])
        assert generated(row) == greedy(prompt, 3)
    counters = prefixes.counters
    assert counters.bytes == counters.blocks * block <= 3 * block
    assert counters.evictions > 0
    assert counters.queries == 2 * (len(prompt) - 2)


def test_a_row_never_takes_the_blocks_of_an_earlier_one() -> None:
    lane, _ = make_lane(False, prefixes=PrefixCache(1 << 20))
    for prompt in prompts(30, seed=6):  # each row is freed, so that the next one may have its address
        row = row_of(prompt, 3)
        run(lane, [[row]])
        assert generated(row) == greedy(prompt, 3)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 90])
@pytest.mark.parametrize("chunks", [False, True])
def test_an_echoed_prompt_is_scored_in_chunks(size: int, chunks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_cache, "SCORES", 11 * TOKENS)
    prompt = (prompts(9, seed=4)[0] * 90)[:size]
    row = row_of(prompt, 4, search=SCORED, scored=True)
    lane, graph = make_lane(True, chunks=chunks, prefixes=PrefixCache(1 << 20))
    run(lane, [[row_of(prompt, 4, search=SCORED)]])
    graph.reads.clear()
    run(lane, [[row, row_of([4] * 30, 3, search=SCORED)]])
    notes = row.log_probabilities
    assert [note.token for note in notes] == [*prompt[1:], *greedy(prompt, 4, searches=True)]
    for index, note in enumerate(notes[: size - 1]):
        expected = log_probabilities(tuple(prompt[: index + 1]), min(index + 1, read_together(prompt, searches=True)))
        assert note.log_probability == pytest.approx(expected[note.token], abs=1e-6)
        assert [token for token, _ in note.top] == np.argsort(-expected)[:3].tolist()
    assert row.cached == 0
    assert size < 17 or 2 <= len(graph.reads) <= 2 + size // 8


def test_prompts_that_come_together_are_read_together_before_any_decodes() -> None:
    lane, graph = make_lane(False, chunks=False)
    given = prompts(12, seed=8)
    rows = [row_of(prompt, 20) for prompt in given]
    join(lane, rows)
    steps = 0
    while lane.rows:
        if any(len(row.tokens) < row.prompt > 1 for row in rows):
            assert not lane.updated_rows
        lane.step()
        steps += 1
    assert [generated(row) for row in rows] == [greedy(prompt, 20) for prompt in given]
    assert len(graph.reads) < len(rows)
    assert steps <= len(graph.reads) + 20


def test_rows_wait_only_so_long_for_other_prompts() -> None:
    now = 0.0

    def read(cost: float, prompts: int) -> list[int]:
        nonlocal now
        now += cost
        return [4] * prompts

    cache = SimpleNamespace(
        context=32,
        read=lambda _slot, tokens, _position: read(len(tokens) * 0.01, 1)[0],
        read_whole=lambda prompts: read(sum(map(len, prompts.values())) * 0.01, len(prompts)),
    )
    slots = SimpleNamespace(positions=[0] * 99, tokens=[0] * 99)
    reader = PromptReader(cache, PrefixCache(0), lambda: False, clock=lambda: now)  # type: ignore[arg-type]
    reader.warm_up()
    short = [Reading(row_of([4 + slot] * 20, 5), slot, 0, 19) for slot in range(90)]
    long = Reading(row_of([5] * 2_000, 5), 90, 0, 1_999)
    waits = []
    while unread := [reading for reading in (*short, long) if reading.is_unread]:
        waits.append((now, reader.read(unread, slots)))  # type: ignore[arg-type]
    held = [when for when, waited in waits if waited]
    assert prompt_cache.HELD_SECONDS - 1 < max(held) < prompt_cache.HELD_SECONDS + 1
    assert held == [when for when, _ in waits[: len(held)]]
    assert not reader.read([Reading(long.row, 90, 0, long.end)], slots)  # type: ignore[arg-type]


@pytest.mark.parametrize("searches", [False, True])
def test_stop_sequences_end_rows_across_tokens(searches: bool) -> None:
    prompt = [5, 6, 7]
    words = greedy(prompt, 20, searches)
    text = "".join(WORDS.bytes_of(token).decode() for token in words)
    stop = text[4:9]  # begins and ends within words
    row = row_of(prompt, 20, search=SCORED if searches else SearchParams())
    row.is_stopped = StopCheck(["never", stop], row.prompt, WORDS)
    run(make_lane(searches)[0], [[row]])
    shown = "".join(WORDS.bytes_of(token).decode() for token in generated(row))
    assert stop in shown
    assert stop not in "".join(WORDS.bytes_of(token).decode() for token in generated(row)[:-1])
    assert row.finish is Finish.LENGTH


def test_rows_that_leave_while_they_are_read_free_their_slots() -> None:
    lane, _ = make_lane(False, count=3)
    leaving, staying = row_of(prompts(1, seed=3)[0] * 3, 5), row_of([4, 5, 6] * 20, 5)
    join(lane, [leaving, staying])
    lane.step()
    lane.leave([leaving])
    assert lane.free == 2
    while not lane.step():
        pass
    assert generated(staying) == greedy([4, 5, 6] * 20, 5)
