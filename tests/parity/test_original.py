"""Comparison of imported checkpoints with the models of transformers."""

import sys
from pathlib import Path

import pytest
import torch

from triptych_export.errors import ParityError
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_export.original import compare_with_original

from ..fixtures.huggingface import small_model
from .test_huggingface_images import QUICK, save
from .test_huggingface_images import build as build_images
from .test_huggingface_text import BERT, build
from .text_checkpoints import save_checkpoint, word_pieces


@pytest.mark.parametrize("kind", ["translation", "text", "images"])
def test_other_weights_are_found(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "translation":
        small_model("bart", "tied", tmp_path)
    elif kind == "text":
        save_checkpoint(build(BERT, "ForTokenClassification"), word_pieces(), tmp_path)
    else:
        save(build_images(QUICK["vit"]), QUICK["vit"], tmp_path)
    folder = Folder(tmp_path)
    loaded = load(folder)
    assert " outputs as in transformers 5." in compare_with_original(folder, loaded)
    with torch.no_grad():
        next(parameter for name, parameter in loaded.model.named_parameters() if name.endswith("expand.bias")).add_(1)
    with pytest.raises(ParityError, match=r"differ from those of transformers .* --allow-different; the card records it"):
        compare_with_original(folder, loaded)
    assert " differ from transformers 5." in compare_with_original(folder, loaded, allowed=True)
    (tmp_path / "model.safetensors").unlink()
    assert "cannot load the checkpoint: " in compare_with_original(folder, loaded)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert compare_with_original(folder, loaded) == "not compared, transformers is not installed"
