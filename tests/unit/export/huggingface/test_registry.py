"""Errors of checkpoints that cannot be loaded."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.registry import DECODERS, LOADERS, TRANSLATION_LOADERS, load
from triptych_export.huggingface.checkpoint.config import check_members
from triptych_export.huggingface.checkpoint.generation import read_generation
from triptych_export.huggingface.checkpoint.image import read_image_processor
from triptych_export.huggingface.folder import Folder
from triptych_export.loading import open_checkpoint
from triptych_export.options import ExportOptions

from ....fixtures.huggingface import small_model
from ....fixtures.json_files import edit_json, write_json
from ....fixtures.toy import HERE

SUPPORTED = "supported are " + "; ".join(
    f"{kind}: {', '.join(sorted(loaders))}"
    for kind, loaders in (("encoder-decoders", TRANSLATION_LOADERS), ("decoders", DECODERS), ("encoders", LOADERS))
)


def fault(folder: Path, config: dict[str, Any] | None = None, **languages: str) -> str:
    """Write `config` as config.json, and return the error of loading."""
    if config is not None:
        write_json(folder / "config.json", config)
    with pytest.raises(SourceError) as caught:
        load(Folder(folder), **languages)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"model_type": "whisper", "architectures": ["Whisper"]}, "model_type 'whisper' (Whisper)"),
        ({"model_type": "mamba"}, "model_type 'mamba' (no architecture)"),
        ({"architectures": ["Mystery"]}, "no model_type (Mystery)"),
        ({}, "no model_type (no architecture)"),
    ],
)
def test_unknown_types_are_rejected_with_the_supported_ones(config: dict[str, Any], found: str, tmp_path: Path) -> None:
    message = fault(tmp_path, config)
    assert message == f"{tmp_path / 'config.json'}: {found} is not supported; {SUPPORTED}"


@pytest.mark.parametrize("kind", ["bart", "mbart", "marian", "m2m_100", "t5", "mt5", "gpt2", "llama"])
def test_other_heads_are_rejected(kind: str, tmp_path: Path) -> None:
    message = fault(tmp_path, {"model_type": kind, "architectures": ["SomethingForQuestionAnswering"]})
    assert re.search(rf"SomethingForQuestionAnswering is not supported; supported of {kind}: \w+(ForCond|MT|LM)", message)
    names = message.rpartition(": ")[2].split(", ")
    assert len(names) == len(set(names))


def test_encoders_take_no_languages(tmp_path: Path) -> None:
    message = fault(tmp_path, {"model_type": next(iter(LOADERS))}, source_language="en")
    assert message.endswith("does not translate; remove source_language and target_language")


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        ("bart", {"activation_function": "mish"}, "activation_function: 'mish' is not supported; supported: relu, gelu"),
        ("bart", {"d_model": None}, "d_model: None, expected a whole number"),
        ("bart", {"encoder_attention_heads": 5}, "heads: 5 does not divide model_dim 24"),
        ("bart", {"eos_token_id": 1, "forced_eos_token_id": 1}, "pad_id, eos_id: both are 1; padding would end every sentence"),
        ("bart", {"encoder_layers": 3}, "missing encoder.layers.2.self_attn.q_proj.weight"),
        (
            "bart",
            {"max_position_embeddings": 100},
            "misshapen model.encoder.embed_positions.weight [130, 24], together [128, 24]",
        ),
        ("bart", {"tie_word_embeddings": False}, "missing lm_head.weight"),
        ("m2m100", {"pad_token_id": 0}, "pad_token_id: 0 is not supported; supported: 1"),
        (
            "t5",
            {"feed_forward_proj": "gated-mish"},
            "feed_forward_proj: 'gated-mish' is not supported; supported, also with gated-",
        ),
        ("t5", {"relative_attention_num_buckets": 2}, "relative_buckets: 2 is below 4"),
        ("t5", {"d_model": 0}, "model_dim: 0 is below 1"),
        ("t5", {"feed_forward_proj": "gated-gelu"}, "is_gated_act: False contradicts feed_forward_proj, 'gated-gelu'"),
        (
            "t5",
            {"feed_forward_proj": "gated-relu", "is_gated_act": True},
            "missing encoder.block.0.layer.1.DenseReluDense.wi_0.weight",
        ),
        ("bart", {"rope_theta": 1e4}, "rope_theta: 10000.0 is not supported, and may change the results"),
        ("mvp", {"use_prompt": True}, "use_prompt: True is not supported; supported: False"),
        ("bart", {"is_decoder": True}, "is_decoder: True is not supported; supported: False"),
        (
            "t5",
            {"quantization_config": {"bits": 4}, "alibi": 1},
            "is not supported, and may change the results; alibi: 1 is not",
        ),
    ],
)
def test_unsupported_members_are_named(model: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = small_model(model, "tied", tmp_path / "model")
    edit_json(folder / "config.json", **changes)
    (folder / "generation_config.json").unlink()
    found = fault(folder)
    assert message in found
    assert found.startswith(str(folder))


def test_an_encoder_decoder_that_is_a_sentence_encoder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]", encoding="utf-8")
    message = fault(tmp_path, {"model_type": "t5", "architectures": ["T5EncoderModel"]})
    assert (
        "model_type 't5' (T5EncoderModel) is not supported as a sentence encoder (modules.json); supported: albert" in message
    )


def test_a_folder_of_an_old_sentence_encoder_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]", encoding="utf-8")
    message = fault(tmp_path, {"__version__": "1.0.0"})
    assert "not supported, as sentence-transformers wrote it before version 2.0: load and save it with a newer" in message


def test_a_folder_with_a_model_for_queries_and_one_for_documents_names_the_remedy(tmp_path: Path) -> None:
    for name in ("modules.json", "router_config.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert "router_config.json: one model for queries and another for documents is not supported; save" in fault(tmp_path)


def test_an_unsupported_member_explains_weights_that_do_not_fit(tmp_path: Path) -> None:
    folder = small_model("bart", "tied", tmp_path / "model")
    edit_json(folder / "config.json", quantization_config={"bits": 4}, encoder_layers=3)
    found = fault(folder)
    assert "config.json: quantization_config: {'bits': 4} is not supported" in found
    assert found.endswith("the weights seem to be quantized; export the model in full precision that they were made of")


@pytest.mark.parametrize(("given", "window"), [({}, 4_096), ({"sliding_window": None}, 0), ({"sliding_window": 16}, 16)])
def test_mistral_has_a_window_unless_it_is_null(given: dict[str, Any], window: int, tmp_path: Path) -> None:
    shape = {"num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = {**shape, "max_position_embeddings": 9_000, **given}
    write_json(tmp_path / "config.json", config)
    members = DECODERS["mistral"].members(Folder(tmp_path))
    assert (members["window"], list(members["window_layers"])) == (window, [0] if window else [])


def test_neutral_members_may_have_their_neutral_values_and_null(tmp_path: Path) -> None:
    folder = small_model("bart", "tied", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    neutral = {
        "normalize_before": False,
        "classif_dropout": 0.3,
        "rope_theta": None,
        "num_beams": 4,
        "add_cross_attention": False,
    }
    write_json(folder / "config.json", config | neutral)
    assert load(Folder(folder)).family == "bart"


def test_members_of_other_files_are_closed_as_well(tmp_path: Path) -> None:
    """Fields that transformers writes are accepted; others are refused by name, or ignored on request."""
    processors = ("ViT", "DeiT", "Beit", "Siglip", "Pvt", "CLIP", "Bit", "ConvNext")
    written = [getattr(transformers, f"{name}ImageProcessor")().to_dict() for name in processors]
    generation = {**transformers.GenerationConfig().to_dict(), "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0}
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")

    def check(processor: dict[str, Any], **strays: int) -> None:
        folder = Folder(tmp_path, ignored=["other"] if strays else [])
        write_json(tmp_path / "preprocessor_config.json", processor | strays)
        write_json(tmp_path / "generation_config.json", generation | strays)
        read_image_processor(folder)
        read_generation(folder, 64, {})
        check_members(folder, {})

    for members in written:
        check(members)
    with pytest.raises(SourceError) as caught:
        check(written[0], stray=1, other=2)
    faults = [
        f"{tmp_path / f'{name}_config.json'}: stray: 1 is not supported, and may change the results; "
        for name in ("preprocessor", "generation")
    ]
    assert str(caught.value) == f"{''.join(faults)}to export all the same: --ignore-config stray"


def test_members_are_ignored_on_request(tmp_path: Path) -> None:
    folder = small_model("bart", "tied", tmp_path / "model")
    edit_json(folder / "config.json", rope_theta=1e4, alibi=1)
    options = ExportOptions(tmp_path, ignore_config=["rope_theta", "alibi"])
    opened = open_checkpoint(str(folder), options, tmp_path)
    assert opened.family.default_name
    assert opened.origin["ignored_config"] == "rope_theta, alibi"
    assert opened.origin["original"].startswith("8 outputs as in transformers")
    for ignored, message in {
        ("alibi",): "rope_theta: 10000.0 .* to export all the same: --ignore-config rope_theta$",
        ("d_model",): r"ignore_config: 'd_model' is not an unsupported member; there are: \['rope_theta', 'alibi'\]$",
    }.items():
        with pytest.raises(SourceError, match=message):
            open_checkpoint(str(folder), replace(options, ignore_config=ignored), tmp_path)
    with pytest.raises(SourceError, match="ignore_config: only for checkpoints of Hugging Face"):
        open_checkpoint(str(HERE / "checkpoint"), options, tmp_path)
