"""Shortlists learnt from sentence pairs, without tracing."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from triptych_export.bundle_files import needed_files
from triptych_export.errors import SourceError
from triptych_export.families import shortlist as shortlist_module
from triptych_export.families.shortlist import (
    check_shortlist,
    coverage,
    learn_shortlist,
    write_short_graphs,
    write_shortlist,
)
from triptych_export.graphs.translation import NEVER, GraphSettings
from triptych_export.quantization.weights_file import WeightsFile
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame, read_manifest
from triptych_serving.decoding.shortlist import Shortlist, read_shortlist
from triptych_training.checkpoints.translation import load_checkpoint
from triptych_training.data import lexicon
from triptych_training.data.lexicon import Lexicon
from triptych_training.models.transformer import Transformer

from ....fixtures.toy import BUNDLE, HERE, PAIRS, SOURCE, SOURCES, TARGET, TARGETS


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Limit lists to a small vocabulary."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lexicon, "TARGETS", 8)
        patch.setattr(lexicon, "ALWAYS", 16)
        yield


@pytest.fixture(scope="module")
def checkpoint() -> TranslationSource:
    return TranslationSource.of(load_checkpoint(HERE / "checkpoint"))


@pytest.fixture(scope="module")
def learned(checkpoint: TranslationSource, small: None) -> Lexicon:
    return learn_shortlist(checkpoint, PAIRS)


@pytest.fixture(scope="module")
def shortlist(checkpoint: TranslationSource, learned: Lexicon, tmp_path_factory: pytest.TempPathFactory) -> Shortlist:
    path = tmp_path_factory.mktemp("bundle") / "shortlist.npz"
    write_shortlist(learned, path)
    return read_shortlist(path, checkpoint.model.config.vocabulary_size)


def encode(checkpoint: TranslationSource, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in checkpoint.tokenizer.encode_batch(texts)]


def test_a_learnt_shortlist_is_read_back(
    checkpoint: TranslationSource, learned: Lexicon, shortlist: Shortlist, tmp_path: Path
) -> None:
    source = encode(checkpoint, [SOURCE])[0]
    ids = shortlist.ids(source)
    assert ids is not None
    assert set(ids.tolist()) == {*learned.always, *source, *(target for token in source for target in learned.of(token))}
    assert checkpoint.model.config.eos_id in learned.always
    for name in ("a.npz", "b.npz"):
        write_shortlist(learned, tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_shortlists_cover_translations(checkpoint: TranslationSource, shortlist: Shortlist) -> None:
    report = coverage(shortlist, encode(checkpoint, SOURCES), encode(checkpoint, TARGETS))
    assert report["shortlist_coverage_percent"] > 99
    assert 17 < report["shortlist_mean_tokens"] < checkpoint.model.config.vocabulary_size / 2


def test_coverage_counts_unknown_sources_as_covered() -> None:
    shortlist = Shortlist(np.array([0, 1, 2, 2, 2]), np.array([2, 0]), np.array([], np.int64))  # knows 0 and 1
    report = coverage(shortlist, [[0], [0, 1], [3]], [[0, 2, 1, 3], [3], [3, 3, 3]])
    assert report == {"shortlist_mean_tokens": 2.5, "shortlist_coverage_percent": 62.5}


def test_pairs_too_long_for_the_model_are_skipped(checkpoint: TranslationSource, learned: Lexicon) -> None:
    long = " ".join([TARGET] * 20)
    again = learn_shortlist(checkpoint, [*PAIRS, (SOURCE, long), (long, TARGET)])
    assert (again.offsets == learned.offsets).all()
    assert (again.targets == learned.targets).all()
    with pytest.raises(SourceError, match="none of 1 pairs has at most 64 tokens on both sides"):
        learn_shortlist(checkpoint, [(SOURCE, long)])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target_tokenizer": Tokenizer(WordLevel())}, "source and target tokenizers differ"),
        ({"targets": {"de": TargetFrame(), "fr": TargetFrame(forced=(5,))}}, "texts of fr have extra tokens"),
        ({"sources": {"en": SourceFrame(before=(5,))}}, "texts of en have extra tokens"),
    ],
    ids=["vocabularies", "targets", "sources"],
)
def test_unsupported_models_are_rejected(checkpoint: TranslationSource, changes: dict[str, Any], reason: str) -> None:
    check_shortlist(checkpoint)
    with pytest.raises(SourceError, match=f"shortlist: {reason}"):
        check_shortlist(replace(checkpoint, **changes))


@pytest.mark.parametrize(("size", "kind"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_ids_use_the_smallest_type(tmp_path: Path, size: int, kind: type) -> None:
    path = tmp_path / "shortlist.npz"
    offsets = np.full(size + 1, 1)
    offsets[0] = 0
    write_shortlist(Lexicon(offsets, np.array([size - 1]), np.array([0])), path)
    with np.load(path) as arrays:
        assert (arrays["offsets"].dtype, arrays["targets"].dtype, arrays["always"].dtype) == (np.uint32, kind, kind)
    ids = read_shortlist(path, size).ids([0])
    assert ids is not None
    assert ids.tolist() == [0, size - 1]


def test_a_precision_needs_its_graphs_and_their_weights() -> None:
    graphs = read_manifest(BUNDLE).precisions["int8"]
    assert needed_files(BUNDLE, graphs) == {*graphs.files, "weights.int8.bin"}


def test_the_projection_has_the_models_bias_and_excludes_suppressed_tokens(
    tmp_path: Path, checkpoint: TranslationSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortlist_module, "trace_translation", lambda *given: None)
    monkeypatch.setattr(shortlist_module, "write_graph", lambda *given: None)
    model = Transformer(replace(checkpoint.model.config, projection_bias=True))
    with torch.no_grad():
        model.projection.bias.copy_(torch.arange(model.config.vocabulary_size))
    source, weights = replace(checkpoint, model=model), WeightsFile(tmp_path / "weights.int8.bin")
    write_short_graphs(source, GraphSettings(8, 8, suppressed=(3, 5)), tmp_path, weights)
    with np.load(tmp_path / "projection.npz") as projection:
        biases = projection["biases"]
        matrix = projection["weights"] * projection["scales"][:, None]
    assert biases[[0, 2, 4, 9]].tolist() == [0, 2, 4, 9]
    assert (biases[[3, 5]] == NEVER).all()
    np.testing.assert_allclose(matrix, model.projection.weight.detach().numpy(), atol=0.01)
