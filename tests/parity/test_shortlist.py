"""The toy checkpoint with a shortlist: short graphs traced, quantized and served."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import TranslationManifest
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.translation.translator import Translator, TranslatorOptions

from ..fixtures.toy import HERE, SOURCES, TARGETS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Of the precision alone: what it shares with int8 comes with it."""
    options = ExportOptions(
        tmp_path_factory.mktemp("models"),
        precisions=("int8-shortlist",),
        shortlist=(str(HERE / "checkpoint" / "samples.tsv"),),
    )
    return open_bundle(export(HERE / "checkpoint", options, lambda line: None))


def test_the_bundle_translates(bundle: Bundle) -> None:
    translator = Translator("toy", 1, bundle, TranslatorOptions(engine=EngineOptions(workers=1, slots=8)))
    try:
        texts = [output.text for output in translator.translate(SOURCES[::6])]
    finally:
        translator.close()
    assert sum(text != target for text, target in zip(texts, TARGETS[::6], strict=True)) <= 2


def test_quality_and_size_are_told(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert manifest.parity["int8-shortlist"]["token_agreement_percent"] > 98
    assert manifest.metrics["bleu_int8_shortlist"] > 99
    assert manifest.metrics["shortlist_coverage_percent"] == 100
    assert 0 < manifest.metrics["shortlist_mean_tokens"] < 300


def test_the_short_graphs_share_the_weights_of_int8_and_take_the_columns_as_an_input(bundle: Bundle) -> None:
    graphs = bundle.manifest_of(TranslationManifest).precisions["int8-shortlist"]
    whole, short = (onnx.load(bundle.path(name), load_external_data=False) for name in (graphs.step, graphs.short_step))
    places = [
        {(place.key, place.value) for place in tensor.external_data}
        for tensor in short.graph.initializer
        if tensor.external_data
    ]
    shared = [{(place.key, place.value) for place in tensor.external_data} for tensor in whole.graph.initializer]
    assert places
    assert all(place in shared for place in places)
    assert "DynamicQuantizeMatMul" in [node.op_type for node in short.graph.node if "columns" in node.input]


def test_the_projection_is_that_of_int8(bundle: Bundle) -> None:
    graphs = bundle.manifest_of(TranslationManifest).precisions["int8-shortlist"]
    step = onnx.load(bundle.path(graphs.step))
    matrices = [onnx.numpy_helper.to_array(tensor) for tensor in step.graph.initializer]
    with np.load(bundle.path(graphs.projection)) as projection:
        weights = projection["weights"]
    assert any(matrix.shape == weights.T.shape and (matrix == weights.T).all() for matrix in matrices)


def test_only_what_the_precision_needs_is_there(bundle: Bundle) -> None:
    names = {path.name for path in Path(bundle.folder).iterdir()}
    assert not [name for name in names if "fp32" in name]
    assert {"weights.int8.bin", "shortlist.npz", "projection.npz", "tokenizer.json"} < names
