"""Fixtures of the toy bundle, opened once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.kv_cache import HostKVCache
from triptych_serving.decoding.slots import Slots
from triptych_serving.runtime.session import Session
from triptych_serving.text.translation_tokenizer import TranslationTokenizer

from ...fixtures.toy import BUNDLE

MakeLane = Callable[[int], GreedyLane]


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    return open_bundle(BUNDLE)


@pytest.fixture(scope="session")
def manifest(bundle: Bundle) -> TranslationManifest:
    return bundle.manifest_of(TranslationManifest)


@pytest.fixture(scope="session")
def codec(bundle: Bundle) -> TranslationTokenizer:
    return TranslationTokenizer(bundle.path("tokenizer.json"), bundle.manifest.limits.max_source_tokens)


@pytest.fixture(scope="session")
def make_lane(bundle: Bundle, manifest: TranslationManifest) -> MakeLane:
    """Make lanes of so many slots over the same fp32 graphs."""
    graphs = bundle.manifest.precisions["fp32"]
    encoder, step = Session(bundle.path(graphs.encoder)), Session(bundle.path(graphs.step))
    return lambda count: GreedyLane(Slots(HostKVCache(encoder, step, manifest, count), manifest), manifest.tokens)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make an empty folder for models."""
    folder = tmp_path / "models"
    folder.mkdir()
    return folder
