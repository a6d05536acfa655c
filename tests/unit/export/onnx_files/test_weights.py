"""Weights out of the files that Optimum writes are those of the model."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import torch

from triptych_export.exporter import ExportOptions, export
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.loading import open_checkpoint
from triptych_serving.bundle.manifest import read_manifest

from ....fixtures.decoders import small_decoder
from ....fixtures.huggingface import small_model

OPTIMUM = Path(__file__).parents[3] / "fixtures/optimum"


@pytest.mark.parametrize(("family", "variant"), [("marian", "tied"), ("t5", "gated"), ("gpt2", "gpt2")])
def test_all_weights_are_found_and_equal(family: str, variant: str, tmp_path: Path) -> None:
    """Marian's decoder is merged with the one with a past, T5's is not; GPT-2 is one file."""
    make = small_decoder if family == "gpt2" else partial(small_model, family)
    make(variant, tmp_path)
    wanted, found = open_weights(tmp_path), open_weights(OPTIMUM / family)
    assert not wanted.keys() - found.keys()
    assert not [name for name in wanted if not torch.equal(wanted.tensor(name), found.tensor(name))]


def test_a_decoder_only_file_becomes_a_model_of_our_own(tmp_path: Path) -> None:
    small_decoder("gpt2", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    shutil.copy(OPTIMUM / "gpt2/model.onnx", tmp_path)
    opened = open_checkpoint(str(tmp_path), ExportOptions(tmp_path))
    assert opened.family.default_name == "gpt2"
    assert opened.origin["original"].startswith("8 outputs as in the ONNX files")


def test_a_folder_of_optimum_becomes_a_bundle_of_our_own_graphs(tmp_path: Path) -> None:
    folder = small_model("marian", "tied", tmp_path / "model")
    (folder / "model.safetensors").unlink()
    for file in (OPTIMUM / "marian").glob("*.onnx"):
        (folder / "onnx").mkdir(exist_ok=True)
        shutil.copy(file, folder / "onnx")
    bundle = export(folder, ExportOptions(tmp_path / "models", precisions=["fp32"]), lambda _: None)
    manifest = read_manifest(bundle)
    assert (manifest.task, manifest.family) == ("translation", "marian")
    assert manifest.provenance["original"].startswith("8 outputs as in the ONNX files")
