"""Checkpoint folders of translation models."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint, save_checkpoint

from ..toy import PAIRS, TOKENIZER, make_model

CHECKPOINT = Checkpoint(make_model(vocabulary_size=290), TOKENIZER, "en", "de", {"epochs": 3}, PAIRS[:5])


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_loading_returns_what_was_saved(tmp_path: Path, tied: bool) -> None:
    model = make_model(vocabulary_size=290, tie_embeddings=tied, positions="learned")
    save_checkpoint(replace(CHECKPOINT, model=model), tmp_path)
    loaded = load_checkpoint(tmp_path)
    assert loaded.model.config == model.config
    for (name, expected), (_, tensor) in zip(model.state_dict().items(), loaded.model.state_dict().items(), strict=True):
        assert torch.equal(expected, tensor), name
    assert not loaded.model.training
    assert (loaded.source_language, loaded.target_language) == ("en", "de")
    assert (loaded.provenance, loaded.samples) == ({"epochs": 3}, PAIRS[:5])
    assert loaded.tokenizer.encode("one two.").ids == TOKENIZER.encode("one two.").ids
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["transformer"] == asdict(model.config)


def test_stored_weights_are_tied_and_load_as_float32(tmp_path: Path) -> None:
    save_checkpoint(CHECKPOINT, tmp_path)
    weights = load_file(path := str(tmp_path / "model.safetensors"))
    assert [n for n in weights if "tokens" in n or "projection.weight" in n] == ["encoder.embedding.tokens.weight"]
    save_file({name: tensor.half() for name, tensor in weights.items()}, path)
    assert {p.dtype for p in load_checkpoint(tmp_path).model.parameters()} == {torch.float32}


def test_samples_are_optional_and_lose_their_tabs(tmp_path: Path) -> None:
    save_checkpoint(replace(CHECKPOINT, samples=()), tmp_path / "none")
    assert list(load_checkpoint(tmp_path / "none").samples) == []
    save_checkpoint(replace(CHECKPOINT, samples=[("one\ttwo", "three")]), tmp_path / "tab")
    assert load_checkpoint(tmp_path / "tab").samples == [("one two", "three")]
