"""Copies between rows of the host's caches are made together, in order, before anything reads or overwrites them."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from triptych_serving.bundle.manifest import Limits, TranslationManifest
from triptych_serving.decoding.kv_cache import HostKVCache, StepArrays
from triptych_serving.runtime.native.library import LEVEL

from ....fixtures.memory import resident
from ..toy_graphs import SHAPE, TableEncoder
from .test_slots import Recording


@pytest.mark.parametrize("level", ["", "off"])
def test_copies_are_made_before_the_next_step_and_the_next_source(
    manifest: TranslationManifest, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv(LEVEL, level)
    manifest = replace(manifest, decoder=SHAPE, limits=Limits(8, 8))
    cache = HostKVCache(TableEncoder(), Recording(), manifest, 4)  # type: ignore[arg-type]
    cache.cache[:] = np.arange(4)[:, None, None, None]  # the row's number
    run = cache.bind(StepArrays({}, {}), 4)
    cache.copy(3, 0, slice(2, 5))
    cache.copy(0, 1, slice(0, 4))  # its source is what was copied before
    run()
    run()  # copies nothing again
    assert [cache.cache[0, row, 0, :, 0].tolist() for row in (0, 1)] == [[0, 0, 3, 3, 3, 0, 0, 0], [0, 0, 3, 3, 1, 1, 1, 1]]
    cache.encode(np.array([[7, 8]]), np.array([2], np.int32), 0)
    cache.copy(0, 1, slice(0, 0), 2)
    cache.encode(np.array([[5, 6]]), np.array([2], np.int32), 0)
    assert [cache.memory[0, row, 0, :2, 0].tolist() for row in (0, 1)] == [[5, 6], [7, 8]]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_caches_use_the_memory_of_written_positions_only(manifest: TranslationManifest) -> None:
    manifest = replace(manifest, decoder=replace(SHAPE, heads=64, head_dim=64), limits=Limits(256, 256))
    cache = HostKVCache(TableEncoder(), Recording(), manifest, 16)  # type: ignore[arg-type]
    before = resident()
    cache.cache[..., 0, :] = 1
    assert resident() - before < cache.bytes // 8  # with huge pages, half
