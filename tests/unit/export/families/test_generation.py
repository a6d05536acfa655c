"""Texts that calibrate int8 of decoder-only models, and their int8 caches."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych_export.bundle_files import needed_files
from triptych_export.families.generation import count_samples, write_generation
from triptych_export.graphs.generation import takes_int8_caches
from triptych_export.quantization.calibration import calibrate_blocks
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import WITH_INT8_CACHES
from triptych_serving.errors import BundleError
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.generation.generator import Generator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.runtime.native.library import LEVEL, native_kernels, prefers_int8_caches
from triptych_training.models.gpt import Gpt, GptConfig

from ....fixtures.decoders import decoder_source


def test_without_texts_the_model_writes_some(tmp_path: Path) -> None:
    source, said = decoder_source("llama"), list[str]()
    texts = write_generation(source, tmp_path / "one", said.append, [], ["fp32", "int8"])
    assert "sampling texts from the model, since none were given" in said
    assert len(texts) == count_samples(source) // 2
    assert f"calibrating int8 with {len(texts)} texts" in said
    assert {text[0] for text in texts} == {source.start}
    assert len(set(map(tuple, texts))) == len(texts)
    assert max(map(len, texts)) > 40
    assert list(open_bundle(tmp_path / "one").manifest.precisions) == ["fp32", "int8"]
    assert write_generation(source, tmp_path / "two", said.append, [], ["fp32", "int8"]) == texts
    free = write_generation(replace(source, start=None), tmp_path / "three", said.append, [], ["fp32", "int8"])
    assert len({text[0] for text in free}) > 10


def test_texts_that_are_given_are_read(tmp_path: Path) -> None:
    source, said, given = decoder_source("llama"), list[str](), [[3, 4, 5], [6, 7]]
    assert write_generation(source, tmp_path / "one", said.append, given, ["fp32", "int8"]) == given
    assert said == ["tracing the graphs of fp32", "calibrating int8 with 2 texts", "tracing the graphs of int8"]


def test_many_texts_calibrate_or_compare(tmp_path: Path) -> None:
    source, said, given = decoder_source("llama"), list[str](), [[3, 4, *map(int, f"{index:02d}")] for index in range(64)]
    assert write_generation(source, tmp_path / "one", said.append, given, ["fp32", "int8"]) == given[1::2]
    assert "calibrating int8 with 32 texts" in said


def test_weights_that_have_four_bits_are_traced_with_fp32(tmp_path: Path) -> None:
    source, said, given = decoder_source("llama"), list[str](), [[3, 4, 5], [6, 7]]
    write_generation(source, tmp_path / "one", said.append, given, ["fp32", "int4"])
    assert said == ["tracing the graphs of fp32", "calibrating int4 with 2 texts", "tracing the graphs of int4"]
    assert isinstance(source.model, Gpt)
    rounded = replace(source, model=calibrate_blocks(source.model, [(torch.tensor([ids]),) for ids in given]))
    said.clear()
    write_generation(rounded, tmp_path / "two", said.append, given, ["fp32", "int4"])
    assert said == ["tracing the graphs of fp32, int4"]
    weights = [open_bundle(tmp_path / name).manifest.files["weights.int4.bin"] for name in ("one", "two")]
    assert weights[0] == weights[1]


@pytest.mark.skipif(native_kernels() is None, reason="only native kernels read int8 caches")
@pytest.mark.parametrize(("weights", "cached"), WITH_INT8_CACHES.items())
def test_int8_caches_take_the_same_weights_and_need_native_kernels(
    weights: str, cached: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder, samples = decoder_source("llama"), tmp_path / "one", [[3, 4, 5], [6, 7]]
    write_generation(source, folder, lambda line: None, samples, ["fp32", weights, cached])
    bundle = open_bundle(folder)
    files = needed_files(folder, bundle.manifest.precisions[cached])
    graphs = {f"{kind}.{cached}.onnx" for kind in ("step", "search", "score")}
    assert files == {*graphs, f"weights.{weights}.bin"}
    sizes = {}
    for precision in ("fp32", cached):
        with closing(Generator("llama", 1, bundle, DecodeModelOptions(precision))) as generator:
            assert len(generator.generate(GenerationRequest(prompts=("some words",), max_tokens=4))) == 1
            sizes[precision] = generator.engine.bytes
    assert sizes[cached] * 64 == sizes["fp32"] * 20  # heads are padded to 16 channels, of which each step is for 32
    monkeypatch.setenv(LEVEL, "off")
    assert not prefers_int8_caches(16)
    with pytest.raises(BundleError, match=f"{cached} of a decoder-only model needs the native kernels, which are not"):
        Generator("llama", 1, bundle, DecodeModelOptions(cached))


@pytest.mark.skipif(native_kernels() is None, reason="only native kernels read int8 caches")
@pytest.mark.parametrize(
    ("changes", "takes"),
    [
        ({"positions": "rotary"}, True),
        ({"positions": "slopes"}, False),
        ({"positions": "rotary", "convolution_layers": (0,)}, False),
        ({"positions": "learned", "model_dim": 32}, False),  # heads of 8 channels
    ],
)
def test_only_some_models_take_int8_caches(changes: dict[str, Any], takes: bool) -> None:
    shape: dict[str, Any] = {"model_dim": 64, "heads": 4, "layers": 1, "feedforward_dim": 64, "max_positions": 32}
    assert takes_int8_caches(Gpt(GptConfig(50, **{**shape, **changes}))) == takes
