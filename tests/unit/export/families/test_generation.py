"""Texts that calibrate int8 of decoder-only models."""

from dataclasses import replace
from pathlib import Path

from triptych_export.families.generation import count_samples, write_generation
from triptych_serving.bundle.bundle import open_bundle

from ....fixtures.decoders import decoder_source


def test_without_texts_the_model_writes_some(tmp_path: Path) -> None:
    source, said = decoder_source("llama"), list[str]()
    texts = write_generation(source, tmp_path / "one", said.append, [], ["fp32", "int8"])
    assert "sampling texts from the model, since none were given" in said
    assert len(texts) == count_samples(source)
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
