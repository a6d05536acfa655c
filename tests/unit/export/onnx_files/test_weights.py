"""Weights out of the files that Optimum writes are those of the model."""

import shutil
from functools import partial
from pathlib import Path

import onnx
import pytest
import torch

from triptych_export.errors import SourceError
from triptych_export.exporter import ExportOptions
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.loading import open_checkpoint

from ....fixtures.decoders import small_decoder
from ....fixtures.huggingface import small_model
from ....fixtures.json_files import edit_json
from ....fixtures.optimum import optimum
from ....fixtures.quick_trials import quick_trials  # noqa: F401


@pytest.mark.parametrize(("family", "variant"), [("marian", "tied"), ("t5", "gated"), ("gpt2", "gpt2")])
def test_all_weights_are_found_and_equal(family: str, variant: str, tmp_path: Path) -> None:
    """Marian's decoder is merged with the one with a past, T5's is not; GPT-2 is one file."""
    make = small_decoder if family == "gpt2" else partial(small_model, family)
    make(variant, tmp_path)
    wanted, found = open_weights(tmp_path), open_weights(optimum(family))
    assert not wanted.keys() - found.keys()
    assert not [name for name in wanted if not torch.equal(wanted.tensor(name), found.tensor(name))]


def test_a_decoder_only_file_becomes_a_model_of_our_own(tmp_path: Path) -> None:
    small_decoder("gpt2", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    shutil.copy(optimum("gpt2") / "model.onnx", tmp_path)
    opened = open_checkpoint(str(tmp_path), ExportOptions(tmp_path), tmp_path)
    assert opened.family.default_name == "gpt2"
    assert opened.origin["original"].startswith("8 outputs as in the ONNX files")


def test_a_decoder_that_can_be_neither_rebuilt_nor_served_is_refused(tmp_path: Path) -> None:
    small_decoder("gpt2", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    edit_json(tmp_path / "config.json", model_type="gpt_new")
    model = onnx.load(optimum("gpt2") / "model.onnx")
    model.graph.input[1].name = "past"
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(SourceError, match=r"'gpt_new'.*nor can the file be served as it is: .*input 'past' has no"):
        open_checkpoint(str(tmp_path), ExportOptions(tmp_path), tmp_path)


def test_an_encoder_decoder_that_can_be_neither_rebuilt_nor_served_is_refused(tmp_path: Path) -> None:
    """tests/parity serves one that can be."""
    folder = small_model("pegasus", "tied", tmp_path)
    (folder / "model.safetensors").unlink()
    edit_json(folder / "config.json", model_type="pegasus_new")
    for file in optimum("pegasus").glob("*.onnx"):
        shutil.copy(file, folder)
    with pytest.raises(SourceError, match=r"precision int8: .* has fp32, and is served as it is"):
        open_checkpoint(str(folder), ExportOptions(tmp_path, precisions=["int8"]), tmp_path)
    (folder / "encoder_model.onnx").write_bytes((folder / "decoder_model_merged.onnx").read_bytes())
    with pytest.raises(SourceError, match=r"'pegasus_new'.*nor can the file be served as it is: "):
        open_checkpoint(str(folder), ExportOptions(tmp_path), tmp_path)


def test_a_folder_of_optimum_becomes_a_model_of_our_own(tmp_path: Path) -> None:
    folder = small_model("marian", "tied", tmp_path / "model")
    (folder / "model.safetensors").unlink()
    for file in optimum("marian").glob("*.onnx"):
        (folder / "onnx").mkdir(exist_ok=True)
        shutil.copy(file, folder / "onnx")
    opened = open_checkpoint(str(folder), ExportOptions(tmp_path, precisions=["fp32"]), tmp_path)
    assert opened.family.default_name == "eng-deu"
    assert opened.origin["original"].startswith("8 outputs as in the ONNX files")
