"""Steps that are replayed from captured graphs say what eager steps say, whatever has changed between two of them."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from triptych_serving.bundle.bundle import Bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.runtime.memory import Memory
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ..fixtures.toy import SOURCES
from .rig import Rig

pytestmark = pytest.mark.gpu

COUNT = 32
BUCKETS = (1, 8, 32)
GARBAGE = 1_000.0
Ids = Sequence[int]


@pytest.fixture(scope="module")
def sources(bundle: Bundle) -> list[list[int]]:
    """Ids of the toy's sentences."""
    limits, [path, _] = bundle.manifest_of(TranslationManifest).limits, bundle.manifest_of(TranslationManifest).tokenizers
    codec = TranslationTokenizer(bundle.path(path), limits.max_source_tokens, limits.max_target_tokens)
    return [list(ids) for ids in codec.encode(SOURCES[::5])]


def pair(bundle: Bundle, memory: Memory) -> tuple[Rig, Rig]:
    """One that captures, one that does not."""
    return Rig(bundle, memory, COUNT, captures=True), Rig(bundle, memory, COUNT, captures=False)


def assert_same(captured: Rig, eager: Rig, rows: int) -> None:
    """Tokens and positions to the bit, caches nearly: the two may take other kernels of one operator."""
    assert captured.read(captured.tokens.first(rows)).tolist() == eager.read(eager.tokens.first(rows)).tolist()
    assert captured.read(captured.positions.first(rows)).tolist() == eager.read(eager.positions.first(rows)).tolist()
    np.testing.assert_allclose(captured.read(captured.cache)[:, :rows], eager.read(eager.cache)[:, :rows], rtol=1e-2, atol=1e-2)


def test_a_replay_goes_on_where_the_last_one_ended(bundle: Bundle, memory: Memory, sources: list[Ids]) -> None:
    rigs = pair(bundle, memory)
    for rig in rigs:
        rig.begin(0, sources[:8])
    for _ in range(12):
        for rig in rigs:
            rig.step(8)
        assert_same(*rigs, rows=8)


def test_rows_begin_anew_between_replays(bundle: Bundle, memory: Memory, sources: list[Ids]) -> None:
    """Positions, lengths and sources change under the captured graph."""
    rigs = pair(bundle, memory)
    for rig in rigs:
        rig.begin(0, sources[:8])
    for step in range(24):
        if step % 3 == 2:
            for rig in rigs:
                rig.begin(step % 8, [sources[8 + step]])
        for rig in rigs:
            rig.step(8)
    assert_same(*rigs, rows=8)


def test_a_forced_token_is_said_once(bundle: Bundle, memory: Memory, sources: list[Ids]) -> None:
    rigs = pair(bundle, memory)
    for rig in rigs:
        rig.begin(0, sources[:8])
        rig.step(8)
        rig.put(rig.forced, 3, [17])
        rig.step(8)
        assert rig.read(rig.tokens.first(8))[3] == 17
        rig.put(rig.forced, 3, [-1])
        rig.step(8)
    assert_same(*rigs, rows=8)


def test_buckets_share_their_memory(bundle: Bundle, memory: Memory, sources: list[Ids]) -> None:
    """Several captured graphs over one buffer, with eager prefills in between, thousands of times."""
    rng = random.Random(0)
    rigs = pair(bundle, memory)
    for rig in rigs:
        rig.begin(0, [sources[index % len(sources)] for index in range(COUNT)])
    runs = 3_000 if memory.device.kind == "cuda" else 60
    for run in range(1, runs + 1):
        rows = rng.choice(BUCKETS)
        fresh = (rng.randrange(COUNT), [rng.choice(sources)]) if rng.random() < 0.1 else None
        for rig in rigs:
            if fresh:
                rig.begin(*fresh)
            rig.step(rows)
        if run % (runs // 10) == 0:
            assert_same(*rigs, rows=COUNT)


def test_idle_rows_harm_nobody(bundle: Bundle, memory: Memory, sources: list[Ids]) -> None:
    """Two rows of eight are in use; the others run on garbage."""
    clean, dirty = Rig(bundle, memory, 8, captures=True), Rig(bundle, memory, 8, captures=True)
    rng = np.random.default_rng(0)
    for array in (dirty.cache, dirty.memory):
        memory.upload(rng.uniform(-GARBAGE, GARBAGE, array.shape).astype(np.float16), array)
    dirty.put(dirty.tokens, 2, [9] * 6)
    dirty.put(dirty.positions, 2, [40, 3, 7, 63, 63, 1])
    dirty.put(dirty.lengths, 2, [64, 1, 9, 2, 30, 64])
    for rig in (clean, dirty):
        rig.begin(0, sources[:2])
    for _ in range(12):
        for rig in (clean, dirty):
            rig.step(8)
        assert clean.read(clean.tokens.first(2)).tolist() == dirty.read(dirty.tokens.first(2)).tolist()


def test_positions_stop_at_the_last(bundle: Bundle, memory: Memory, sources: list[Ids]) -> None:
    """A row that nobody reads any more never leaves its cache."""
    rig = Rig(bundle, memory, 1, captures=True)
    rig.begin(0, sources[:1])
    last = bundle.manifest_of(TranslationManifest).limits.max_target_tokens - 1
    for _ in range(last + 5):
        rig.step(1)
    assert rig.read(rig.positions).tolist() == [last]
