"""The whole way once: the toy checkpoint traced, quantized, compared with PyTorch token by token, and shipped."""

from pathlib import Path

import onnx
import pytest

from triptych_export.exporter import ExportOptions, export
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.models.translation.translator import Translator, TranslatorOptions

from ..fixtures.toy import HERE, SOURCES, TARGETS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    options = ExportOptions(tmp_path_factory.mktemp("models"), name="toy", precisions=("fp32", "int8"))
    return open_bundle(export(HERE / "checkpoint", options, lambda line: None))


def test_the_report_shows_what_was_compared(bundle: Bundle) -> None:
    report = bundle.manifest.parity["fp32"]
    assert report["identical"] is True
    assert report["batches"] == [1, 3, 16]
    assert report["sentences"] >= 200
    assert report["distinct_outputs"] >= 150
    assert report["tokens"] > 10 * report["sentences"]


def test_int8_says_how_near_it_is(bundle: Bundle) -> None:
    report = bundle.manifest.parity["int8"]
    assert report["identical_sentences_percent"] > 95
    assert report["token_agreement_percent"] > 98


def test_both_precisions_translate_what_was_learnt(bundle: Bundle) -> None:
    metrics = bundle.manifest.metrics
    assert metrics["validation_pairs"] == len(SOURCES)
    assert metrics["bleu_fp32"] == 100
    assert metrics["bleu_int8"] > 99


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_bundle_translates(bundle: Bundle, precision: str) -> None:
    translator = Translator("toy", 1, bundle, TranslatorOptions(precision, EngineOptions(workers=1, slots=8)))
    try:
        texts = [output.text for output in translator.translate(SOURCES[::6])]
    finally:
        translator.close()
    wrong = [(text, target) for text, target in zip(texts, TARGETS[::6], strict=True) if text != target]
    assert len(wrong) <= (0 if precision == "fp32" else 2)


def test_the_graphs_are_the_ones_that_are_fast(bundle: Bundle) -> None:
    """No mask, no branch, no copied weights; attention is fused and the cache updated in place."""
    layers = bundle.manifest.decoder.layers
    step = onnx.load(bundle.path("step.fp32.onnx"), load_external_data=False)
    kinds = [node.op_type for node in step.graph.node]
    assert kinds.count("GroupQueryAttention") == 2 * layers
    assert not {"If", "Loop", "Scan", "Softmax", "Concat", "TopK"} & set(kinds)
    quantized = onnx.load(bundle.path("step.int8.onnx"), load_external_data=False)
    assert [node.op_type for node in quantized.graph.node].count("DynamicQuantizeMatMul") == 6 * layers + 1
    assert bundle.path("weights.fp32.bin").stat().st_size < 1.2 * (HERE / "checkpoint/model.safetensors").stat().st_size


def test_the_graphs_say_nothing_of_where_they_were_made(bundle: Bundle) -> None:
    for path in Path(bundle.folder).glob("*.onnx"):
        content = path.read_bytes()
        assert b"site-packages" not in content
        assert str(Path.home()).encode() + b"/" not in content or Path.home() == Path("/")
