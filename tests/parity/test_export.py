"""Whole export of the toy checkpoint in all precisions for CPUs: traced, quantized, compared with PyTorch and served."""

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from triptych.decoding import DecodingOptions
from triptych_export.bundle_files import needed_files
from triptych_export.exporter import ExportOptions, export
from triptych_export.families import alignment
from triptych_export.families import translation as translation_family
from triptych_export.families.alignment import AlignmentChoice, cross_attention
from triptych_export.families.translation import write_translation
from triptych_export.parity import comparison
from triptych_export.parity import translation as parity
from triptych_export.translation_source import TranslationSource
from triptych_models import REPOSITORY
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import AlignmentHeads, TranslationManifest
from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding import kv_cache
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.decoding.greedy_lane import GreedyLane
from triptych_serving.decoding.kv_cache import OFFSETS, HostKVCache
from triptych_serving.models.attention import AttentionInput
from triptych_serving.models.attention import attend as attend_with
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.translation.translator import Translator
from triptych_serving.runtime.arrays import stack_rows
from triptych_serving.runtime.session import Session
from triptych_serving.scheduling.decode_scheduler import LaneKind
from triptych_serving.scheduling.request import Row
from triptych_training.checkpoints.translation import load_checkpoint

from ..fixtures.toy import BUNDLE, HERE, PAIRS, SOURCE, SOURCES, TARGET, TARGETS

# Default tests read the other graphs from embedded models.
MORE = pytest.param(("int8", "int8-caches", "int8-shortlist"), marks=pytest.mark.full, id="int8 int8-caches int8-shortlist")
FEW = 40  # sentences
COMMITTED = "committed.int8.bin"  # weights of committed graphs
TOLERANCE = 1e-4
TRACE = translation_family._write_graphs


def write_graphs(source: Any, settings: Any, folder: Path, precision: str, weights: Any) -> None:
    """Trace the graphs with caches in int8; the others, which test_huggingface_translation traces, are the committed ones."""
    if precision == "fp32":
        for path in BUNDLE.glob("*.fp32.*"):
            shutil.copy(path, folder)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation_family, "KINDS", translation_family.CACHE_KINDS)
        TRACE(source, settings, folder, precision, weights)
    shutil.copy(BUNDLE / "weights.int8.bin", folder / COMMITTED)
    for kind in ("score", "attend"):
        model = onnx.load(BUNDLE / f"{kind}.int8.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                entry.value = COMMITTED if entry.key == "location" else entry.value
        onnx.save(model, folder / f"{kind}.int8.onnx")


@pytest.fixture(scope="module", params=[pytest.param(("fp32", "int8"), id="fp32 int8"), MORE])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Export once; the comparison with PyTorch, which test_exporter tests, is brief."""
    models, shortlist = tmp_path_factory.mktemp("models"), (str(HERE / "checkpoint" / "samples.tsv"),)
    (models / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS[::8]), encoding="utf-8")
    options = ExportOptions(models, name="toy", precisions=request.param, valid=(str(models / "pairs.tsv"),))
    if "int8-shortlist" in request.param:
        options = replace(options, shortlist=shortlist)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "BATCHES", (16,))
        patch.setattr(translation_family, "_write_graphs", write_graphs)
        for count in ("PARITY_SENTENCES", "RANDOM_SENTENCES"):
            patch.setattr(translation_family, count, FEW)
        patch.setattr(alignment, "PAIRS", FEW)
        for minimum in ("MIN_SENTENCES", "MIN_DISTINCT"):
            patch.setattr(parity, minimum, FEW // 2)
        return open_bundle(export(HERE / "checkpoint", options, lambda line: None))


def load_graph(bundle: Bundle, name: str) -> onnx.GraphProto:
    return onnx.load(bundle.path(name), load_external_data=False).graph


def integers(bundle: Bundle) -> list[str]:
    """Precisions with int8 graphs of their own."""
    return [precision for precision in bundle.manifest.precisions if precision in ("int8", "int8-caches")]


def test_quality_of_each_precision(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert manifest.metrics["validation_pairs"] == len(PAIRS[::8])
    for precision in manifest.precisions:
        exact = precision == "fp32"
        assert manifest.metrics[f"bleu_{precision.replace('-', '_')}"] > (99.99 if exact else 99)
        assert exact or manifest.parity[precision]["token_agreement_percent"] > 98
    if "int8-shortlist" in manifest.precisions:
        assert manifest.metrics["shortlist_coverage_percent"] == 100
        assert 0 < manifest.metrics["shortlist_mean_tokens"] < 300


def test_the_bundle_translates(bundle: Bundle) -> None:
    for precision in bundle.manifest.precisions:
        with closing(Translator("toy", 1, bundle, DecodeModelOptions(precision, EngineOptions(workers=1, slots=8)))) as model:
            texts = [output.text for output in model.translate(SOURCES[::6])]
        assert sum(a != b for a, b in zip(texts, TARGETS[::6], strict=True)) <= (0 if precision == "fp32" else 2), precision


def check_independence(bundle: Bundle, precision: str, texts: list[str]) -> None:
    """A row's results are the same bit by bit, whatever the searches and lengths of its neighbours."""
    options = DecodeModelOptions(precision, EngineOptions(workers=1, slots=24))
    with closing(Translator("toy", 1, bundle, options)) as translator:
        searches = [SearchParams(), SearchParams(beam_size=3, scores=True), SearchParams(sampling_topk=9, seed=3)]
        sources = translator.tokenizer.encode(texts)
        rows = [Row(source, 40, searches[index % 3]) for index, source in enumerate(sources)]
        for row in rows:
            translator.run([row])
        together = [Row(row.source, 40, row.search) for row in rows]
        translator.run(together)
    for alone, row in zip(rows, together, strict=True):
        assert [(h.tokens, h.score) for h in row.hypotheses] == [(h.tokens, h.score) for h in alone.hypotheses]


def test_int8_results_do_not_depend_on_other_rows(bundle: Bundle) -> None:
    for precision in integers(bundle):
        check_independence(bundle, precision, SOURCES[::16])


def test_results_with_int8_caches_do_not_depend_on_other_rows() -> None:
    """Decode with the graphs of an embedded model; the full tier exports such graphs."""
    check_independence(open_bundle(REPOSITORY / "en-de" / "1"), "int8-caches", SOURCES[::64])


def test_sources_in_one_row_give_what_padded_ones_give(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit; with few tokens at a time, too, and a source that is longer than that."""
    for precision in integers(bundle):
        translator = Translator("toy", 1, bundle, DecodeModelOptions(precision, EngineOptions(workers=1, slots=8)))
        lane = translator.lanes.make(LaneKind.GREEDY)
        assert isinstance(lane, GreedyLane)
        cache = lane._slots.cache
        assert isinstance(cache, HostKVCache)
        sources = translator.tokenizer.encode(SOURCES[:6])
        lengths = np.array([len(source) for source in sources], np.int32)
        padded = stack_rows(sources, 0, np.int64)
        translator.close()
        monkeypatch.setattr(cache, "_packs", False)
        cache.encode(padded, lengths, 1)
        expected = cache.memory.copy()
        if not cache._encoder.takes_sequences:
            pytest.skip("the kernels do not read several sequences in one row on this processor")
        monkeypatch.setattr(cache, "_packs", True)
        for tokens in (512, int(lengths[:2].sum()), 1):
            monkeypatch.setattr(kv_cache, "PACKED_TOKENS", tokens)
            cache.memory[:] = 0
            cache.encode(padded, lengths, 1)
            for row, length in enumerate(lengths, 1):
                np.testing.assert_array_equal(cache.memory[:, row, :, :length], expected[:, row, :, :length])


def test_encoders_of_int8_have_an_optional_input_for_sources_in_one_row(bundle: Bundle) -> None:
    for precision in {"fp32", *integers(bundle)} & set(bundle.manifest.precisions):
        session = Session(bundle.path(f"encoder.{precision}.onnx"))
        has = {OFFSETS} if precision != "fp32" else set()
        assert (session.inputs, session.optional_inputs) == (("source", "lengths"), has)


def test_graphs_use_the_fast_operators(bundle: Bundle) -> None:
    """No mask, branch or copied weights; attention is fused and the cache updated in place."""
    layers = bundle.manifest_of(TranslationManifest).decoder.layers
    kinds = [node.op_type for node in load_graph(bundle, "step.int8.onnx").node]
    assert kinds.count("GroupQueryAttention") == 2 * layers
    assert not {"If", "Loop", "Scan", "Softmax", "Concat", "TopK"} & set(kinds)
    assert kinds.count("MatMulIntegerToFloat") == kinds.count("QuantizeLinear") + kinds.count("NormToBytes") == 6 * layers + 1
    assert kinds.count("NormToBytes") >= 2 * layers
    for name in ("encoder", "step", "search"):
        assert not any(node.op_type.startswith("Dynamic") for node in load_graph(bundle, f"{name}.int8.onnx").node)
    assert bundle.path("weights.int8.bin").stat().st_size < (HERE / "checkpoint/model.safetensors").stat().st_size


def test_graphs_contain_no_local_paths(bundle: Bundle) -> None:
    for path in Path(bundle.folder).glob("*.onnx"):
        content = path.read_bytes()
        assert b"site-packages" not in content
        assert str(Path.home()).encode() + b"/" not in content or Path.home() == Path("/")


@pytest.mark.parametrize("bundle", [MORE], indirect=True)
def test_graphs_with_int8_caches_share_the_weights_of_int8(bundle: Bundle) -> None:
    precisions = bundle.manifest_of(TranslationManifest).precisions
    plain, cached = precisions["int8"], precisions["int8-caches"]
    assert (cached.score, cached.saturation_free) == (plain.score, plain.saturation_free)
    assert needed_files(Path(bundle.folder), cached) - set(cached.files) == {"weights.int8.bin", COMMITTED}
    for name in ("encoder", "step", "search"):
        mine, theirs = (load_graph(bundle, getattr(graphs, name)) for graphs in (cached, plain))
        places = [
            {(e.key, e.value) for tensor in graph.initializer for e in tensor.external_data if e.key == "offset"}
            for graph in (mine, theirs)
        ]
        assert places[0] == places[1]
        caches = [value.type.tensor_type.elem_type for value in mine.input if value.name.startswith(("cache_", "memory_"))]
        assert set(caches) <= {onnx.TensorProto.INT8}


@pytest.mark.parametrize("bundle", [MORE], indirect=True)
def test_short_graphs_share_the_weights_of_int8_and_take_the_projection_as_an_input(bundle: Bundle) -> None:
    precisions = bundle.manifest_of(TranslationManifest).precisions
    graphs = precisions["int8-shortlist"]
    whole, short = (load_graph(bundle, name) for name in (graphs.step, graphs.short_step))
    stored, shared = (
        [{(entry.key, entry.value) for entry in tensor.external_data} for tensor in graph.initializer if tensor.external_data]
        for graph in (short, whole)
    )
    assert stored
    assert all(entries in shared for entries in stored)
    assert "MatMulIntegerToFloat" in [node.op_type for node in short.node if "columns" in node.input]
    matrices = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(bundle.path(graphs.step)).graph.initializer]
    with np.load(bundle.path(graphs.projection)) as projection:
        weights = projection["weights"]
    assert any(matrix.shape == weights.T.shape and (matrix == weights.T).all() for matrix in matrices)
    names = needed_files(Path(bundle.folder), graphs)
    assert {"weights.int8.bin", "shortlist.npz", "projection.npz"} < names
    assert not [name for name in names if "fp32" in name]


@pytest.mark.full
def test_alignments_are_those_of_the_chosen_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = AlignmentChoice(AlignmentHeads(0, (1,)), 0.9, 0.8)
    monkeypatch.setattr(translation_family, "choose_alignment", lambda *_: choice)
    source = TranslationSource.of(load_checkpoint(HERE / "checkpoint"))
    made = write_translation(source, tmp_path / "bundle", lambda line: None, None, PAIRS, ("fp32",), short=False)
    assert made is choice
    with closing(Translator("toy", 1, open_bundle(tmp_path / "bundle"), DecodeModelOptions("fp32"))) as model:
        assert model.manifest.alignment == choice.heads
        [translation] = model.translate([SOURCE], DecodingOptions(return_alignment=True))
        found = attend_with(model, AttentionInput(SOURCE))
    aligned = translation.hypotheses[0].alignment
    assert aligned is not None
    assert found.cross is not None
    np.testing.assert_allclose(aligned, found.cross[0, 1, :-1], atol=TOLERANCE)
    ours = cross_attention(source.model, *teacher_forced(source))
    np.testing.assert_allclose(ours, found.cross, atol=TOLERANCE)


def teacher_forced(source: TranslationSource) -> tuple[list[int], list[int]]:
    """The first pair, as the decoder reads it."""
    ids, answer = (source.tokenizer.encode(text).ids for text in (SOURCE, TARGET))
    return ids, [source.model.config.bos_id, *answer[:-1]]
