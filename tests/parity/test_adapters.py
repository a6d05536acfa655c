"""PEFT adapters: merged with their base model, they compute what peft computes with the two side by side."""

import json
import re
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

from triptych_export.errors import ParityError, SourceError
from triptych_export.exporter import ExportOptions, export
from triptych_export.families.generation import GenerationFamily
from triptych_export.families.image import ImageFamily
from triptych_export.families.text import TextFamily
from triptych_export.families.translation import TranslationFamily
from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.adapters import merge_adapter
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import LFS, Folder
from triptych_export.loading import Opened, open_checkpoint
from triptych_export.parity.text import TextRow, answer_in_torch
from triptych_serving.bundle.manifest import FILE_NAME
from triptych_training.checkpoints.encoder import ImageCheckpoint, TextCheckpoint

from ..fixtures.decoders import CHAT, END, TEMPLATE, small_decoder
from ..fixtures.huggingface import small_model
from ..fixtures.json_files import edit_json, write_json, write_pooling
from .test_huggingface_images import QUICK, save
from .test_huggingface_images import build as build_images
from .test_huggingface_text import BERT, ROBERTA
from .test_huggingface_text import build as build_text
from .text_checkpoints import save_checkpoint

COMPARED = " outputs as in peft"
WEIGHTS = "adapter/adapter_model.safetensors"
LLAMA = ["q_proj", "v_proj", "down_proj"]


def adapt(model: Any, folder: Path, **settings: Any) -> Path:
    """Save an adapter of `model` whose weights are all random, also those that start as zeros."""
    torch.manual_seed(3)
    adapted = peft.get_peft_model(model, peft.LoraConfig(**{"r": 3, "lora_alpha": 7, **settings}))
    with torch.no_grad():
        for weight in (weight for weight in adapted.parameters() if weight.requires_grad):
            weight.add_(torch.randn_like(weight) * 0.3)
    adapted.save_pretrained(folder)
    return folder


def base_decoder(tmp_path: Path, variant: str = "llama", tokens: int = 0) -> Any:
    """Save a base model; return it as transformers has it, with vectors for so many tokens."""
    small_decoder(variant, tmp_path / "base")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    if tokens:
        model.resize_token_embeddings(tokens)
    return model


def decoder(tmp_path: Path, variant: str = "llama", tokens: int = 0, **settings: Any) -> Path:
    model = base_decoder(tmp_path, variant, tokens)
    return adapt(model, tmp_path / "adapter", **{"task_type": "CAUSAL_LM", "target_modules": LLAMA, **settings})


def base_bert(folder: Path, head: str = "Model") -> Path:
    save_checkpoint(build_text(BERT, head), BERT.tokenizer(), folder)
    return folder


def merged(folder: Path, tmp_path: Path, **options: Any) -> Opened:
    return open_checkpoint(str(folder), ExportOptions(tmp_path, **options), tmp_path / "scratch")


def merged_decoder(folder: Path, tmp_path: Path) -> GenerationSource:
    family = merged(folder, tmp_path).family
    assert isinstance(family, GenerationFamily)
    return family.source


def merged_text(folder: Path, tmp_path: Path) -> TextCheckpoint:
    opened = merged(folder, tmp_path)
    assert COMPARED in opened.origin["original"]
    assert isinstance(opened.family, TextFamily)
    return opened.family.checkpoint


@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        ("llama", {}),
        ("llama", {"use_dora": True, "use_rslora": True, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 1}}),
        ("llama", {"target_modules": [*LLAMA, "embed_tokens", "lm_head"]}),
        ("qwen2", {"modules_to_save": ["embed_tokens", "lm_head"]}),  # tied before
        ("llama", {"target_modules": ["embed_tokens"]}),
        ("llama", {"target_modules": ["q_proj", "lm_head"]}),
        ("gpt2", {"target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "all"}),
    ],
)
def test_decoders_compute_what_they_compute_with_peft(variant: str, settings: dict[str, Any], tmp_path: Path) -> None:
    adapter = decoder(tmp_path, variant, **settings)
    with warnings.catch_warnings(action="error", category=UserWarning):  # they would be among the lines of the export
        opened = merged(adapter, tmp_path)
    assert isinstance(opened.family, GenerationFamily)
    assert COMPARED in opened.origin["original"]
    assert opened.origin["base_model"] == "base"
    assert [path.name for path in opened.weights] == ["adapter_model.safetensors", "model.safetensors"]


@pytest.mark.parametrize(
    ("variant", "tokens", "settings"),
    [
        ("qwen2", 360, {"trainable_token_indices": [1, 2, 300]}),  # tied: peft saves their vectors once
        ("qwen2", 365, {"trainable_token_indices": [360, 362]}),
        ("llama odd", 365, {"trainable_token_indices": {"embed_tokens": [361], "lm_head": [361]}}),
        ("qwen2", 360, {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True}),
        ("qwen2", 371, {"target_modules": ["q_proj", "embed_tokens"]}),
        ("llama", 371, {"modules_to_save": ["embed_tokens", "lm_head"]}),
    ],
)
def test_vectors_of_tokens_are_adapted(variant: str, tokens: int, settings: dict[str, Any], tmp_path: Path) -> None:
    adapter = decoder(tmp_path, variant, tokens, **settings)
    ids = torch.tensor([[1, 2, 300, tokens - 3, tokens - 4, 9]])
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    base.resize_token_embeddings(tokens)
    with torch.inference_mode():
        wanted = peft.PeftModel.from_pretrained(base, str(adapter)).eval()(ids).logits
        found = merged_decoder(adapter, tmp_path).model(ids)
    torch.testing.assert_close(found, wanted[..., : found.shape[-1]], rtol=0, atol=1e-3)


def test_added_tokens_whose_embeddings_were_not_saved(tmp_path: Path) -> None:
    """peft saves them only where it can read the base model's size."""
    adapter = decoder(tmp_path, "qwen2", 363, trainable_token_indices=[360, 361, 362])
    weights = load_file(adapter / "adapter_model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "base_layer" not in name and "lm_head" not in name}
    assert kept.keys() < weights.keys()
    save_file(kept, adapter / "adapter_model.safetensors")
    assert merged_decoder(adapter, tmp_path).model.config.vocabulary_size == 363


@pytest.mark.parametrize(
    "settings",
    [
        peft.IA3Config(target_modules=LLAMA, feedforward_modules=["down_proj"], init_ia3_weights=False),
        peft.VeraConfig(target_modules=["q_proj"], r=4, init_weights=False),
        peft.AdaLoraConfig(target_modules=["q_proj"], init_r=4, total_step=9, init_lora_weights=False),
    ],
)
def test_other_kinds_of_adapters_are_merged(settings: Any, tmp_path: Path) -> None:
    settings.task_type = "CAUSAL_LM"
    peft.get_peft_model(base_decoder(tmp_path), settings).save_pretrained(tmp_path / "adapter")
    assert COMPARED in merged(tmp_path / "adapter", tmp_path).origin["original"]


def test_an_adapter_is_exported_with_its_own_tokenizer(tmp_path: Path) -> None:
    adapter = decoder(tmp_path)
    (tmp_path / "base/tokenizer.json").rename(adapter / "tokenizer.json")
    bundle = export(adapter, ExportOptions(tmp_path / "models", precisions=["fp32"], name="mine"), lambda line: None)
    provenance = json.loads((bundle / FILE_NAME).read_text(encoding="utf-8"))["provenance"]
    assert provenance["base_model"] == "base"
    assert len(provenance["checkpoint_sha256"].split(", ")) == 2
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["mine"]


def test_settings_of_the_adapter_precede_those_of_other_files_of_the_base_model(tmp_path: Path) -> None:
    """Some versions of transformers write files of their own for a template and special tokens, others one for all."""
    adapter = decoder(tmp_path)
    (tmp_path / "base/chat_template.jinja").write_text("of the base model", encoding="utf-8")
    write_json(tmp_path / "base/special_tokens_map.json", {"eos_token": END, "bos_token": END})
    write_json(tmp_path / "base/generation_config.json", {"eos_token_id": 0, "max_length": 30})
    source = merged_decoder(adapter, tmp_path)
    assert (source.template, source.variables["eos_token"], source.ends) == ("of the base model", END, (0,))
    shutil.rmtree(tmp_path / "scratch")
    write_json(adapter / "tokenizer_config.json", {"eos_token": CHAT[1], "chat_template": TEMPLATE})
    write_json(adapter / "generation_config.json", {"eos_token_id": 2, "max_length": 20})
    source = merged_decoder(adapter, tmp_path)
    assert (source.template, dict(source.variables), source.ends) == (TEMPLATE, {"eos_token": CHAT[1]}, (2,))
    assert source.generation["max_length"] == 20


@pytest.mark.parametrize(
    ("family", "own_config", "bias"), [(BERT, False, "none"), (BERT, False, "all"), (ROBERTA, True, "all")]
)
def test_the_head_of_a_classifier_comes_from_the_adapter(family: Any, own_config: bool, bias: str, tmp_path: Path) -> None:
    save_checkpoint(build_text(family, "Model"), family.tokenizer(), tmp_path / "base")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=5)
    model.config.id2label = {place: f"class {place}" for place in range(5)}
    adapter = adapt(model, tmp_path / "adapter", task_type="SEQ_CLS", target_modules=["query", "value"], bias=bias)
    if own_config:
        model.config.quantization_config = {"load_in_4bit": True}  # of the training
        write_json(adapter / "config.json", {**model.config.to_dict(), "architectures": ["RobertaForSequenceClassification"]})
    labels = [f"class {place}" if own_config else f"LABEL_{place}" for place in range(5)]
    assert merged_text(adapter, tmp_path).labels == tuple(labels)


def test_the_head_of_a_classifier_may_be_that_of_the_base_model(tmp_path: Path) -> None:
    """`add_adapter` of transformers, which a CrossEncoder of sentence-transformers has as well, saves no head."""
    model = AutoModelForSequenceClassification.from_pretrained(base_bert(tmp_path / "base", "ForSequenceClassification"))
    model.add_adapter(peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], init_lora_weights=False))
    model.save_pretrained(tmp_path / "adapter")
    checkpoint = merged_text(tmp_path / "adapter", tmp_path)
    ids = torch.tensor([[2, 8, 9, 3]])
    with torch.inference_mode():
        wanted, found = model.eval()(ids).logits[0], answer_in_torch(checkpoint.model, TextRow(ids[0].tolist(), [0] * 4))
    np.testing.assert_allclose(found["logits"], wanted, atol=1e-5)


def test_a_decoder_may_have_a_classifier(tmp_path: Path) -> None:
    small_decoder("llama", tmp_path / "base")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=3)
    adapter = adapt(model, tmp_path / "adapter", task_type="SEQ_CLS", target_modules=LLAMA)
    assert merged_text(adapter, tmp_path).labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_sentence_encoder_keeps_its_pooling(tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(base_bert(tmp_path / "base"))
    adapter = adapt(model, tmp_path / "adapter", task_type="FEATURE_EXTRACTION", target_modules=["key"])
    write_pooling(adapter, {"word_embedding_dimension": 24, "pooling_mode_cls_token": True})
    assert merged_text(adapter, tmp_path).pooling == "cls"


def test_a_sentence_encoder_with_a_classifier_is_a_classifier(tmp_path: Path) -> None:
    write_pooling(base_bert(tmp_path / "base"), {"pooling_mode": "mean"})
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base", num_labels=3)
    adapter = adapt(model, tmp_path / "adapter", task_type="SEQ_CLS", target_modules=["key"])
    assert len(merged_text(adapter, tmp_path).labels) == 3


def test_translation_models_and_image_classifiers_can_be_adapted(tmp_path: Path) -> None:
    small_model("t5", "tied", tmp_path / "t5")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "t5")
    opened = merged(adapt(model, tmp_path / "text", task_type="SEQ_2_SEQ_LM", target_modules=["q", "v"]), tmp_path)
    assert isinstance(opened.family, TranslationFamily)
    assert COMPARED in opened.origin["original"]
    save(build_images(QUICK["vit"]), QUICK["vit"], tmp_path / "vit")
    images = AutoModelForImageClassification.from_pretrained(tmp_path / "vit", num_labels=4, ignore_mismatched_sizes=True)
    adapter = adapt(images, tmp_path / "image", target_modules=["q_proj"], modules_to_save=["classifier"])  # without a task
    opened = open_checkpoint(str(adapter), ExportOptions(tmp_path), tmp_path / "other")
    assert isinstance(opened.family, ImageFamily)
    assert COMPARED in opened.origin["original"]


def test_positions_of_a_base_model_in_half_precision_are_not_rounded(tmp_path: Path) -> None:
    small_model("nllb", "tied", tmp_path / "base")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "base", dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "base")
    adapter = adapt(model, tmp_path / "adapter", task_type="SEQ_2_SEQ_LM", target_modules=["q_proj"])
    assert COMPARED in merged(adapter, tmp_path).origin["original"]


def test_adapters_of_image_classifiers_may_have_the_names_of_transformers_4(tmp_path: Path) -> None:
    save(build_images(QUICK["vit"]), QUICK["vit"], tmp_path / "vit")
    model = AutoModelForImageClassification.from_pretrained(tmp_path / "vit")
    adapter = adapt(model, tmp_path / "adapter", target_modules=["q_proj"], modules_to_save=["classifier"])
    wanted = load(merge_adapter(Folder(adapter), "", tmp_path / "new"))
    weights = load_file(adapter / "adapter_model.safetensors")
    modern, former = r"layers\.(\d)\.attention\.q_proj", r"encoder.layer.\1.attention.attention.query"
    old = {re.sub(modern, former, name): tensor for name, tensor in weights.items()}
    assert old.keys() != weights.keys()
    save_file(old, adapter / "adapter_model.safetensors")
    edit_json(adapter / "adapter_config.json", target_modules=["query"])
    found = load(merge_adapter(Folder(adapter), "", tmp_path / "old"))
    assert isinstance(wanted, ImageCheckpoint)
    assert isinstance(found, ImageCheckpoint)
    torch.testing.assert_close(found.model.state_dict(), wanted.model.state_dict(), rtol=0, atol=0)


def change(name: str, value: Any) -> Callable[[Path], None]:
    return lambda tmp_path: edit_json(tmp_path / "adapter/adapter_config.json", **{name: value})


def pickled(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).unlink()
    torch.save({"weight": partial(print, "code was run")}, tmp_path / "adapter/adapter_model.bin")


def whole(tmp_path: Path) -> None:
    shutil.copy(tmp_path / "base/model.safetensors", tmp_path / "adapter")


def other_base(tmp_path: Path) -> None:
    small_decoder("qwen2", tmp_path / "other")
    edit_json(tmp_path / "adapter/adapter_config.json", base_model_name_or_path=str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (change("base_model_name_or_path", None), "names no base model; name it with --base-model"),
        (change("base_model_name_or_path", "/gone/base"), "base model /gone/base: not a folder.*another with --base-model"),
        (change("peft_type", "MAGIC"), "peft cannot load it with base model"),
        (change("task_type", "MAGIC"), "peft cannot load it with base model"),
        (lambda tmp_path: (tmp_path / WEIGHTS).unlink(), "holds no adapter_model.safetensors.*; there are: README.md, "),
        (lambda tmp_path: (tmp_path / WEIGHTS).write_bytes(b"x"), r"adapter_model.safetensors: is damaged or cut short \("),
        (lambda tmp_path: (tmp_path / WEIGHTS).write_bytes(LFS + b"\n"), "only a pointer of git-lfs"),
        (pickled, r"adapter_model\.bin: holds more than weights, or is damaged"),
        (whole, "has weights of a PEFT adapter, adapter_model.safetensors, and of a whole model, model.safetensors; move"),
        (lambda tmp_path: (tmp_path / "base/config.json").unlink(), "^base model .*base: not a checkpoint folder, missing "),
        (
            lambda tmp_path: edit_json(tmp_path / "base/config.json", quantization_config={"quant_method": "gptq", "bits": 4}),
            "^base model .*base: config.json has a quantization_config: .* full precision with --base-model",
        ),
        (
            lambda tmp_path: edit_json(
                tmp_path / "adapter/adapter_config.json", task_type=None, auto_mapping={"base_model_class": "MyModel"}
            ),
            "transformers has no model class 'MyModel'; set task_type in adapter_config.json: CAUSAL_LM, ",
        ),
        (other_base, "peft cannot load it with base model .*other"),
        (change("init_lora_weights", "pissa_niter_4"), "'pissa_niter_4' is not supported: .* with path_initial"),
        (change("layer_replication", [[0, 2], [1, 2]]), r"replication: \[\[0, 2\], .* is not supported: its copies"),
    ],
)
def test_what_cannot_be_merged_is_refused(spoil: Callable[[Path], None], fault: str, tmp_path: Path) -> None:
    decoder(tmp_path)
    spoil(tmp_path)
    with pytest.raises(SourceError, match=fault):
        merged(tmp_path / "adapter", tmp_path)


def test_errors_name_the_folders_that_stay(tmp_path: Path) -> None:
    adapter = decoder(tmp_path)
    edit_json(tmp_path / "base/config.json", summary_activation="tanh")
    place = re.escape(f"{adapter} with {tmp_path / 'base'}")
    with pytest.raises(SourceError, match=f"^{place}/config.json: summary_activation: "):
        merged(adapter, tmp_path)


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = decoder(tmp_path)

    def fill(*arguments: object, **options: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", fill)
    with pytest.raises(SourceError, match=f"cannot be written to {tmp_path}: .*No space left.*another --out"):
        merged(adapter, tmp_path)


def test_weights_that_do_not_fit_the_base_model_are_refused(tmp_path: Path) -> None:
    adapter = decoder(tmp_path)
    edit_json(tmp_path / "base/config.json", num_hidden_layers=1)
    with pytest.raises(SourceError, match=r"\d+ weights of it, such as .*layers\.1\..*, do not fit .*base; .*--base-model"):
        merged(adapter, tmp_path)


def test_prompts_are_no_weights_to_merge(tmp_path: Path) -> None:
    settings = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    peft.get_peft_model(base_decoder(tmp_path), settings).save_pretrained(tmp_path / "adapter")
    with pytest.raises(SourceError, match="PROMPT_TUNING changes no weights, and cannot be merged into a model"):
        merged(tmp_path / "adapter", tmp_path)


def test_an_adapter_that_merging_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = decoder(tmp_path)
    monkeypatch.setattr(peft.LoraModel, "merge_and_unload", lambda self, **options: self.unload())
    with pytest.raises(ParityError, match="logits differ from those of peft with transformers"):
        merged(adapter, tmp_path)


def test_new_weights_that_were_not_saved_are_named(tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(base_bert(tmp_path / "base", "ForMaskedLM"))  # has no pooler
    adapter = adapt(model, tmp_path / "adapter", task_type="SEQ_CLS", target_modules=["query"])
    with pytest.raises(
        SourceError, match=r"2 weights are neither in it nor in .*base, such as bert\.pooler\.dense\.bias; .*modules_to_save"
    ):
        merged(adapter, tmp_path)


def test_only_adapters_have_a_base_model(tmp_path: Path) -> None:
    small_decoder("llama", tmp_path / "base")
    with pytest.raises(SourceError, match=r"base_model: only for PEFT adapters; .*base is none"):
        merged(tmp_path / "base", tmp_path, base_model="other")
