"""Weights out of the files that Optimum writes are those of the model."""

import shutil
from pathlib import Path

import pytest
import torch

from triptych_export.exporter import ExportOptions, export
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_serving.bundle.manifest import read_manifest

from ....fixtures.huggingface import small_model

OPTIMUM = Path(__file__).parents[3] / "fixtures/optimum"


@pytest.mark.parametrize(("family", "variant"), [("marian", "tied"), ("t5", "gated")])
def test_all_weights_are_found_and_equal(family: str, variant: str, tmp_path: Path) -> None:
    """Marian's decoder is merged with the one with a past, T5's is not."""
    wanted, found = open_weights(small_model(family, variant, tmp_path / "model")), open_weights(OPTIMUM / family)
    assert not wanted.keys() - found.keys()
    assert not [name for name in wanted if not torch.equal(wanted.tensor(name), found.tensor(name))]


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
