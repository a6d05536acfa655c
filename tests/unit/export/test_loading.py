"""Loading of checkpoints: settings beside our own ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from triptych_export.errors import SourceError
from triptych_export.families.generation import GenerationFamily
from triptych_export.families.translation import TranslationFamily
from triptych_export.loading import open_checkpoint
from triptych_export.options import ExportOptions
from triptych_training.checkpoints.gpt import GptCheckpoint, save_gpt_checkpoint
from triptych_training.checkpoints.translation import Checkpoint, save_checkpoint
from triptych_training.data.tokenizer import END
from triptych_training.models.gpt import Gpt, GptConfig
from triptych_training.models.transformer import Transformer, TransformerConfig


def save_gpt(folder: Path, **settings: Any) -> str:
    model = Gpt(GptConfig(2, 16, heads=2, feedforward_dim=16, layers=1, max_positions=16))
    tokenizer = Tokenizer(models.WordLevel({END: 0, "a": 1}, END))
    save_gpt_checkpoint(GptCheckpoint(model, tokenizer, {}, ()), folder)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return str(folder)


def test_decoding_options_beside_a_checkpoint_become_those_of_its_bundle(tmp_path: Path) -> None:
    family = open_checkpoint(
        save_gpt(tmp_path / "gpt", do_sample=True, temperature=0.5, top_k=20, min_p=0.1), ExportOptions(tmp_path), tmp_path
    ).family
    assert isinstance(family, GenerationFamily)
    assert family.source.generation == {"sampling_topk": 20, "sampling_temperature": 0.5, "sampling_minp": 0.1}


def test_decoding_options_beside_a_translation_checkpoint(tmp_path: Path) -> None:
    shape = TransformerConfig(4, 8, heads=1, feedforward_dim=8, encoder_layers=1, decoder_layers=1, max_positions=16)
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2, "a": 3}, "a"))
    checkpoint = Checkpoint(Transformer(shape), tokenizer, "en", "de", {}, [("a", "a")])
    save_checkpoint(checkpoint, tmp_path)
    (tmp_path / "generation_config.json").write_text('{"num_beams": 4, "length_penalty": 1.2}')
    family = open_checkpoint(str(tmp_path), ExportOptions(tmp_path), tmp_path).family
    assert isinstance(family, TranslationFamily)
    assert family.source.generation == {"beam_size": 4, "length_penalty": 1.2}
    (tmp_path / "generation_config.json").write_text('{"do_sample": true}')
    with pytest.raises(SourceError, match="do_sample: not supported as a default; leave it out"):
        open_checkpoint(str(tmp_path), ExportOptions(tmp_path), tmp_path)


def test_an_unknown_decoding_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"heat: 0\.5 is not supported, and may change the results; leave them out$"):
        open_checkpoint(save_gpt(tmp_path / "gpt", heat=0.5), ExportOptions(tmp_path), tmp_path)


def test_of_a_weights_file_the_folder_has_to_be_named(tmp_path: Path) -> None:
    (path := tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(SourceError, match=f"it is a file: name its folder, {tmp_path}$"):
        open_checkpoint(str(path), ExportOptions(tmp_path), tmp_path)
    with pytest.raises(SourceError, match=r"ONNX Runtime's own format, which cannot be checked: name the \.onnx file"):
        open_checkpoint(str(path.rename(tmp_path / "model.ort")), ExportOptions(tmp_path), tmp_path)
