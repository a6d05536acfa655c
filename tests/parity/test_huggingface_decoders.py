"""Imported decoder-only models against transformers: the same logits, and the tokens of `generate()` for ragged prompts."""

import json
import math
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file

from triptych.decoding import DecodingOptions
from triptych_export.errors import SourceError
from triptych_export.families.generation import generation_manifest, write_generation
from triptych_export.families.image import ImageFamily
from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.architectures.decoder_config import LOCAL
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.gguf import open_gguf
from triptych_export.original import compare_with_original
from triptych_export.parity.generation import check_generation, draw_prompts, open_decoder, score
from triptych_serving.bundle.bundle import Bundle, open_bundle
from triptych_serving.bundle.manifest import FILE_NAME
from triptych_serving.decoding.engine import EngineOptions
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.decode_model import DecodeModelOptions
from triptych_serving.models.generation.image_generator import ImageGenerator
from triptych_serving.models.generation.options import GenerationRequest
from triptych_serving.models.image.image_model import ImageModel

from ..fixtures.decoders import END, VARIANTS, YARN, small_decoder, small_image_gpt
from ..fixtures.json_files import edit_json, write_json
from ..fixtures.toy import IMAGE_GENERATION_MODELS
from .test_huggingface_images import as_png, load_image

PROMPTS, NEW = 100, 16


def load_decoder(folder: Path) -> GenerationSource:
    loaded = load(Folder(folder))
    assert isinstance(loaded, GenerationSource)
    return loaded


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_logits_equal_those_of_transformers(variant: str, tmp_path: Path) -> None:
    model = small_decoder(variant, tmp_path)
    source = load_decoder(tmp_path)
    ids = torch.randint(0, 360, (2, 80))
    torch.testing.assert_close(source.model(ids), model(ids).logits, atol=5e-5, rtol=1e-4)


@torch.inference_mode()
def test_missing_limits_of_gemma_2_are_those_of_its_class(tmp_path: Path) -> None:
    small_decoder("gemma2", tmp_path)
    edit_json(tmp_path / "config.json", attn_logit_softcapping=None, final_logit_softcapping=None)  # removes them
    config = load_decoder(tmp_path).model.config
    assert (config.attention_cap, config.logit_cap) == (50.0, 30.0)


@pytest.mark.parametrize("variant", ["gpt2", "qwen2", "gemma3 tied"])
@torch.inference_mode()
def test_a_tied_matrix_may_be_stored_under_any_name_and_two_different_ones_are_not_tied(variant: str, tmp_path: Path) -> None:
    small_decoder(variant, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    [table] = (name for name in weights if name.endswith(("wte.weight", "embed_tokens.weight")))
    rows = weights.pop(table)
    for stored, tied in (({"lm_head.weight": rows}, True), ({table: rows, "lm_head.weight": 2 * rows}, False)):
        save_file({**weights, **stored}, tmp_path / "model.safetensors", metadata={"format": "pt"})
        model, ids = transformers.AutoModelForCausalLM.from_pretrained(tmp_path), torch.randint(0, 352, (2, 80))
        source = load_decoder(tmp_path)
        assert source.model.config.tied == tied
        torch.testing.assert_close(source.model(ids), model(ids).logits, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize(("variant", "shape"), [("lfm2", {"conv_bias": True}), ("bloom", {"n_head": 8})])
@torch.inference_mode()
def test_biases_of_convolutions_and_heads_of_an_odd_size(variant: str, shape: dict[str, Any], tmp_path: Path) -> None:
    """No published model has these biases; with them transformers' results of padded prompts differ from those of others."""
    model, ids = small_decoder(variant, tmp_path, **shape), torch.randint(0, 360, (2, 80))
    torch.testing.assert_close(load_decoder(tmp_path).model(ids), model(ids).logits, atol=5e-5, rtol=1e-4)


@pytest.mark.full  # test_served_decoders serves two
@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_graphs_give_the_tokens_of_generate(variant: str, tmp_path: Path) -> None:
    model = small_decoder(variant, tmp_path / "checkpoint")
    source = load_decoder(tmp_path / "checkpoint")
    write_generation(source, tmp_path / "bundle", lambda line: None, [], ("fp32",))
    bundle, prompts = open_bundle(tmp_path / "bundle"), draw_prompts(source, PROMPTS)
    with open_decoder(bundle, "fp32", 16, max(map(len, prompts)) + NEW) as decode:
        outputs = decode(prompts, NEW)
    longest = max(map(len, prompts))
    ids = torch.tensor([[source.pad] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    expected = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False)[:, longest:].tolist()
    assert outputs == [_until(row, source.ends) for row in expected]
    check_scores(model, bundle, [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)])


def test_suppressed_tokens_are_not_expected(tmp_path: Path) -> None:
    model = small_decoder("llama", tmp_path / "checkpoint")
    prompts = draw_prompts(load_decoder(tmp_path / "checkpoint"), 20)
    with torch.inference_mode():
        likeliest = {int(model(torch.tensor([prompt])).logits[0, -1].argmax()) for prompt in prompts} - {0, 2}
    settings = {"suppress_tokens": sorted(likeliest)[::2], "bad_words_ids": [[token] for token in sorted(likeliest)[1::2]]}
    edit_json(tmp_path / "checkpoint/generation_config.json", **settings)
    source = load_decoder(tmp_path / "checkpoint")
    write_generation(source, tmp_path / "bundle", lambda line: None, [], ("fp32",))
    report, texts = check_generation(source, open_bundle(tmp_path / "bundle"), prompts, 4)
    assert report["identical"]
    assert likeliest.isdisjoint(token for prompt, text in zip(prompts, texts, strict=True) for token in text[len(prompt) :])


def check_scores(model: Any, bundle: Bundle, texts: list[list[int]]) -> None:
    """Compare log-probabilities and likeliest tokens in the texts with those of transformers."""
    for text, (found, best) in zip(texts, score(bundle, "fp32", texts), strict=True):
        wanted = model(torch.tensor([text[:-1]])).logits[0].log_softmax(-1)
        np.testing.assert_allclose(found, wanted.gather(1, torch.tensor(text[1:])[:, None])[:, 0], atol=1e-4)
        assert best.tolist() == wanted.argmax(-1).tolist()


def _until(row: list[int], ends: Any) -> list[int]:
    stops = [place for place, token in enumerate(row) if token in ends]
    return [*row[: stops[0]], ends[0]] if stops else row


LONGROPE = {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0], "partial_rotary_factor": 0.75}
ORIGINAL = "original_max_position_embeddings"


@pytest.mark.parametrize(
    ("variant", "changes", "fault"),
    [
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type: 'dynamic' is not supported"),
        ("hunyuan", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "alpha: missing for rope_type 'ntk'"),
        ("hunyuan", {"use_cla": True}, "use_cla: True is not supported"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, f"{ORIGINAL}: missing for rope_type 'yarn'"),
        ("llama", {"rope_parameters": {**YARN, "factor": 0.5}}, "factor: 0.5 is below 1"),
        ("llama", {"rope_parameters": {**YARN, "truncate": False}}, "truncate: not supported with rope_type 'yarn'"),
        ("llama", {"rope_parameters": {**YARN, "beta_fast": 0.5}}, "low, high: 1.0 and 0.5 are not ascending"),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}, "high_freq_factor, low_freq_factor, original"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor: not supported"),
        ("llama", {"num_key_value_heads": 3}, "kv_heads: 3 does not divide heads 4"),
        ("llama", {"hidden_act": "mish"}, "hidden_act: 'mish' is not supported"),
        ("llama", {"router_bias": 1}, "router_bias: 1 is not supported, and may change the results"),
        ("llama", {"eos_token_id": 999}, "eos_token_id: 999 is outside the vocabulary"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: True is not supported"),
        ("gpt2", {"n_layer": 3}, "missing h.2."),
        ("qwen2 window", {"layer_types": ["chunked_attention"] * 2}, "do not fit 2 layers"),
        ("qwen3 window", {"use_sliding_window": False}, "do not fit 2 layers with a sliding_window of 0"),
        ("smollm3", {"no_rope_layers": [1]}, "no_rope_layers: [1] do not fit 2 layers"),
        ("gptneo", {"attention_layers": ["global"]}, "attention_layers: ['global'] are not 'global' or 'local' for each of 2"),
        ("codegen", {"n_head": 2}, "n_head: 2 is not a multiple of 4"),
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before: False is not supported"),
        ("opt", {"word_embed_proj_dim": 12}, "word_embed_proj_dim: 12 is not hidden_size, 24"),
        ("phi", {"qk_layernorm": True}, "qk_layernorm: True is not supported"),
        ("phi", {"rope_parameters": {"partial_rotary_factor": 0.25}}, "rotary_dim: 5 is odd"),
        ("phi", {"rope_parameters": {"partial_rotary_factor": "half"}}, "partial_rotary_factor: 'half' is not a number"),
        ("phi3", {"rope_parameters": LONGROPE}, "divisors: 1 of them, expected one for each of 3 frequencies"),
        ("cwm", {"rope_parameters": None}, "rope_parameters: missing, and their default is not supported"),
        ("apertus", {"rope_parameters": None}, "rope_parameters: missing, and their default is not supported"),
        ("llama", {"hidden_act": "xielu"}, "hidden_act: 'xielu' is not supported"),
        ("cohere", {"use_qk_norm": True}, "use_qk_norm: True is not supported"),
        ("cohere", {"logit_scale": 0}, "logit_scale: 0 is not a number above 0"),
        ("cohere2", {"sliding_window": None}, "do not fit 4 layers with a sliding_window of 0"),
        ("stablelm", {"use_parallel_residual": True}, "use_parallel_residual: True is not supported"),
        ("lfm2", {"layer_types": ["conv", "mamba"] * 2}, "are not 'full_attention' or 'conv' for each of 4 layers"),
        ("lfm2", {"block_use_swiglu": False}, "block_use_swiglu: False is not supported"),
        ("granite4", {"num_local_experts": 8}, "num_local_experts: 8 is not supported; supported: 0"),
        ("granite4", {"layer_types": ["attention", "mamba"]}, "2 times 'attention' is supported, but no state-space layers"),
        ("granite4", {"position_embedding_type": "alibi"}, "position_embedding_type: 'alibi' is not supported"),
        ("nanochat", {"tie_word_embeddings": True}, "tie_word_embeddings: True is not supported"),
        ("nanochat", {"final_logit_softcapping": "x"}, "final_logit_softcapping: 'x' is not a number above 0"),
        ("xglm", {"pad_token_id": 3}, "pad_token_id: 3 is not supported; supported: 0, 1"),
        (
            *("bloom", {"apply_residual_connection_post_layernorm": True}),
            "apply_residual_connection_post_layernorm: True is not supported",
        ),
        ("olmo", {"clip_qkv": 8.0}, "clip_qkv: 8.0 is not supported"),
        ("granite", {"residual_multiplier": 0}, "residual_multiplier: 0 is not a number above 0"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping: 30.0 is not supported"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: 50.0 is not supported"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention: True is not supported"),
        ("gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar: 0 is below 1"),
        ("gemma3", {"sliding_window": None}, "do not fit 2 layers with a sliding_window of 0"),
        ("gemma3", {"rope_parameters": 1}, "rope_parameters: 1, expected members by name"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": "x"}}, "factor: 'x' is not a number above 0"),
        ("llama", {"rope_parameters": {"rope_theta": 0}}, "rope_theta: 0 is not a number above 0"),
        ("llama", {"rms_norm_eps": "x"}, "rms_norm_eps: 'x' is not a number above 0"),
        ("llama", {"num_attention_heads": 0}, "num_attention_heads: 0 is below 1"),
        ("llama", {"max_position_embeddings": 10**12}, "max_position_embeddings: 1000000000000 is above 16,777,216"),
        ("llama", {"num_hidden_layers": 10**12}, "num_hidden_layers: 1000000000000 is above 1,000"),
        ("llama", {"tie_word_embeddings": "false"}, "tie_word_embeddings: 'false', expected true or false"),
        ("llama", {"hidden_act": ["silu"]}, "hidden_act: ['silu'] is not supported"),
        ("gpt2", {"layer_norm_epsilon": float("nan")}, "layer_norm_epsilon: nan is not a number above 0"),
        ("qwen3 window", {"layer_types": 2}, "layer_types: 2 do not fit 2 layers"),
        ("glm", {"num_key_value_heads": 4}, "(expected 144 rows)"),
        ("phi3", {"rope_parameters": {**LONGROPE, ORIGINAL: 1}}, f"{ORIGINAL}: 1 is not a whole number of at least 2"),
        ("gemma3", {"rope_parameters": {"rope_theta": 9.0}}, "rope_parameters: 'rope_theta' is no kind of layers"),
        ("gemma3", {"rope_parameters": {LOCAL: {"type": "linear", "factor": 2.0}}}, "sliding_attention: rope_type: 'linear'"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(variant: str, changes: dict[str, Any], fault: str, tmp_path: Path) -> None:
    small_decoder(variant, tmp_path)
    (tmp_path / "generation_config.json").unlink()
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(SourceError) as caught:
        load_decoder(tmp_path)
    assert fault in str(caught.value)


OLD_ROPE = {"rope_theta": 500.0, "rope_local_base_freq": 50.0, "rope_scaling": {"type": "linear", "factor": 2.0}}


@pytest.mark.parametrize(
    ("variant", "members"),
    [
        *(("qwen2 window", {}), ("qwen3 window", {}), ("smollm3", {})),
        *(("cohere2", {"sliding_window_pattern": 4}), ("exaone4", {}), ("cwm", {})),
        ("olmo3", {"rope_parameters": None, "rope_scaling": YARN, "rope_theta": 50.0}),
        ("gemma3 tied", {**OLD_ROPE, "rope_parameters": None, "cache_implementation": "hybrid"}),
    ],
)
def test_layers_that_older_files_do_not_list_are_known(variant: str, members: dict[str, Any], tmp_path: Path) -> None:
    small_decoder(variant, tmp_path)
    expected = load_decoder(tmp_path).model.config
    edit_json(tmp_path / "config.json", layer_types=None, no_rope_layers=None, tie_word_embeddings=None, **members)
    assert load_decoder(tmp_path).model.config == expected
    windows = {2: (0,) if variant == "gemma3 tied" else (1,), 4: (0, 1, 2)}
    assert expected.window_layers == ((1, 2, 3) if variant == "cwm" else windows[expected.layers])


FACTORS = {"short_factor": [1.0, 1.5, 3.0], "long_factor": [1.0, 5.0, 9.0]}


@pytest.mark.parametrize(
    ("variant", "members"),
    [
        ("neox in turn", {"rotary_emb_base": 300.0, "rotary_pct": 0.3, "rope_scaling": {"type": "linear", "factor": 2.0}}),
        ("phi3", {"rope_theta": 500.0, "partial_rotary_factor": 0.75, "rope_scaling": {"type": "su", **FACTORS}}),
    ],
)
def test_rotary_members_of_older_files_are_read(variant: str, members: dict[str, Any], tmp_path: Path) -> None:
    small_decoder(variant, tmp_path)
    expected = load_decoder(tmp_path).model.config
    edit_json(tmp_path / "config.json", rope_parameters=None, **members)
    assert load_decoder(tmp_path).model.config == expected
    assert expected.rotary_dim == 6


@pytest.mark.parametrize("variant", ["qwen3", "smollm3"])
def test_members_that_are_null_or_switched_off_change_nothing(variant: str, tmp_path: Path) -> None:
    small_decoder(variant, tmp_path, use_sliding_window=False, layer_types=None, tie_word_embeddings=variant == "smollm3")
    edit_json(tmp_path / "config.json", sliding_window=None, tie_word_embeddings=None)
    expected = load_decoder(tmp_path).model.config
    members = json.loads((tmp_path / "config.json").read_text())
    unused = {"sliding_window": 32_768, "use_mrope": False, "tie_word_embeddings": None}
    write_json(tmp_path / "config.json", {**members, **unused})
    assert load_decoder(tmp_path).model.config == expected
    assert (expected.window, expected.window_layers, expected.tied) == (0, (), variant == "smollm3")


@pytest.mark.parametrize(
    ("variant", "members"),
    [
        (
            "cohere2",  # Command R7B
            {
                **{"cache_implementation": "hybrid", "layer_switch": 4, "order_of_interleaved_layers": "local_attn_first"},
                **{"position_embedding_type": "rope_gptj", "rotary_pct": 1.0, "use_embedding_sharing": True},
                **{"use_gated_activation": True, "use_parallel_block": True, "use_parallel_embedding": True},
            },
        ),
        ("llama", {"unsloth_fixed": True, "unsloth_version": "2025.3.19", "_flash_attn_2_enabled": True}),
        ("llama", {"max_sequence_length": 2048}),  # the first Llama
        ("llama", {"use_sliding_window": False}),
        ("gemma2", {"sliding_window_size": 4096}),  # gemma-2-9b, beside sliding_window
        ("bloom", {"offset_alibi": 100, "skip_bias_add": True, "n_inner": None, "masked_softmax_fusion": True}),
        ("apertus", {"hidden_dropout": 0.0, "post_norm": False, "qk_norm": True}),
        ("nemotron", {"kv_channels": 128}),  # Nemotron-Mini
        ("exaone4", {"sliding_window_pattern": "LLLG"}),
        ("hunyuan", {"use_qk_norm": True, "norm_type": "hf_rms", "num_experts": 1, "moe_topk": 1, "use_cla": False}),
        ("llama", {"transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}}}),  # SmolLM2
        ("llama", {"resid_pdrop": 0.1, "hidden_dropout": 0.1, "init_std": 0.02}),  # which matter in training alone
        ("neox", {"attention_probs_dropout_prob": 0, "hidden_dropout_prob": 0, "custom_pipelines": {"text-generation": {}}}),
        ("opt", {"learned_embeddings": True, "scale_embeddings": False}),  # Galactica
        ("phi3", {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False, "mlp_bias": False}),  # Phi-4-mini
        ("starcoder2", {"activation_function": "gelu", "layer_norm_epsilon": 1e-5, "attention_softmax_in_fp32": True}),
    ],
)
def test_unused_members_of_published_files_are_known(variant: str, members: dict[str, Any], tmp_path: Path) -> None:
    small_decoder(variant, tmp_path)
    expected = load_decoder(tmp_path).model.config
    edit_json(tmp_path / "config.json", **members)
    assert load_decoder(tmp_path).model.config == expected


@pytest.mark.parametrize(("variant", "names"), [("codegen", ["causal_mask"]), ("gpt2", ["bias", "masked_bias"])])
def test_masks_of_older_files_are_ignored(variant: str, names: list[str], tmp_path: Path) -> None:
    small_decoder(variant, tmp_path)
    expected = load_decoder(tmp_path).model.config
    weights = load_file(tmp_path / "model.safetensors")
    masks = {f"transformer.h.0.attn.{name}": torch.ones(1, 1, 4, 4) for name in names}
    save_file({**weights, **masks}, tmp_path / "model.safetensors")
    assert load_decoder(tmp_path).model.config == expected


DEFAULTS = [
    *("apertus", "arcee", "cohere", "ernie", "gemma", "glm", "helium", "hunyuan"),
    *("jais2", "nanochat", "nemotron", "neox", "olmo2", "phi", "phi3", "starcoder2"),
]


@pytest.mark.parametrize("variant", DEFAULTS)
@pytest.mark.parametrize("edit", ["removed", "null"])
def test_missing_members_have_the_defaults_of_transformers(variant: str, edit: str, tmp_path: Path) -> None:
    model = small_decoder(variant, tmp_path)
    usual = type(model.config)()
    names = ("hidden_act", "hidden_activation", "rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon")
    members = json.loads((tmp_path / "config.json").read_text())
    own = {name: getattr(usual, name) for name in names if name in members}
    write_json(tmp_path / "config.json", {**members, **own})
    expected = load_decoder(tmp_path).model.config
    left = {name: value for name, value in members.items() if name not in own}
    write_json(tmp_path / "config.json", left if edit == "removed" else {**members, **dict.fromkeys(own)})
    assert own
    assert load_decoder(tmp_path).model.config == expected


def test_settings_come_from_the_files(tmp_path: Path) -> None:
    small_decoder("llama", tmp_path)
    sampling = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_new_tokens": 20, "repetition_penalty": 1.2}
    settings = {"eos_token_id": [0, 2], "bos_token_id": 1, **sampling}
    write_json(tmp_path / "generation_config.json", settings)
    tokens = {"eos_token": {"content": END}, "bos_token": "<|im_start|>", "chat_template": "{{ messages }}"}
    write_json(tmp_path / "tokenizer_config.json", tokens)
    source = load_decoder(tmp_path)
    assert (source.ends, source.start, source.pad) == ((0, 2), 1, 0)
    drawn = {"sampling_topk": 50, "sampling_temperature": 0.6, "sampling_topp": 0.9}
    assert source.generation == {"max_length": 20, "repetition_penalty": 1.2, **drawn}
    assert (source.template, source.variables) == ("{{ messages }}", {"eos_token": END, "bos_token": "<|im_start|>"})


PLAIN = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}, "max_position_embeddings": 512}
GGUF_CHANGES: dict[str, dict[str, Any]] = {
    **{"llama": PLAIN, "qwen3": PLAIN, "gemma": {}, "granite": {}, "olmo2": {}, "phi3": {}},
    "gemma2": {"query_pre_attn_scalar": 10},
    "lfm2": {"block_auto_adjust_ff_dim": False, **PLAIN},
    "gemma3": {"query_pre_attn_scalar": 10, "num_hidden_layers": 6, "sliding_window_pattern": 6},
}
UNREAD = ("gemma", "granite", "olmo2")  # GGUF files that transformers does not read


@pytest.mark.parametrize("family", GGUF_CHANGES)
@torch.inference_mode()
def test_a_gguf_file_is_read(family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = small_decoder(family, tmp_path / "checkpoint", tie_word_embeddings=True, **GGUF_CHANGES[family])
    folder = open_gguf(write_gguf(family, model, tmp_path))
    loaded = load(folder)
    assert isinstance(loaded, GenerationSource)
    capsys.readouterr()
    compared = "is not supported yet" if family in UNREAD else "8 outputs as in transformers"
    assert compared in compare_with_original(folder, loaded)
    assert capsys.readouterr().err == ""
    ids = torch.randint(0, 352, (1, 30))
    torch.testing.assert_close(loaded.model(ids), model(ids).logits[..., :352], atol=5e-5, rtol=1e-4)
    expected = load_decoder(tmp_path / "checkpoint").tokenizer
    assert loaded.tokenizer is not None
    assert expected is not None
    for text in ("A bicycle, isn't it?\n 12 naïve <|im_end|>", ""):
        assert loaded.tokenizer.encode(text).ids == expected.encode(text).ids
    assert (loaded.ends, loaded.start, loaded.template) == ((2,), 1, "{{ messages }}")
    assert generation_manifest(loaded)["generation"]["max_length"] == min(256, loaded.model.config.max_positions)


@pytest.mark.parametrize("kind", ["linear", "llama3"])
@torch.inference_mode()
def test_scaled_positions_of_a_gguf_file_are_as_in_transformers(kind: str, tmp_path: Path) -> None:
    """Its own reader leaves the scaling out."""
    limits = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8_192}
    rope = {"rope_type": kind, "factor": 8.0, "rope_theta": 500_000.0, **(limits if kind == "llama3" else {})}
    model = small_decoder("llama", tmp_path / "checkpoint", tie_word_embeddings=True, **{**PLAIN, "rope_parameters": rope})
    folder = open_gguf(write_gguf("llama", model, tmp_path))
    loaded, ids = load(folder), torch.randint(0, 352, (1, 30))
    assert isinstance(loaded, GenerationSource)
    torch.testing.assert_close(loaded.model(ids), model(ids).logits[..., :352], atol=5e-5, rtol=1e-4)
    assert " outputs as in transformers 5." in compare_with_original(folder, loaded)


def write_gguf(family: str, model: Any, folder: Path) -> Path:
    """Write a model in llama.cpp's form: float16 weights; of Llama and Granite, pairs of neighbours in queries and keys."""
    config, path = model.config, folder / "model.gguf"
    content = json.loads((folder / "checkpoint/tokenizer.json").read_text(encoding="utf-8"))
    tokens = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    shared, kinds = config.num_key_value_heads, getattr(config, "layer_types", None)
    writer.add_head_count_kv([shared * (kind != "conv") for kind in kinds] if family == "lfm2" else shared)
    writer.add_layer_norm_rms_eps(config.norm_eps if family == "lfm2" else config.rms_norm_eps)
    write_options(writer, family, config)
    if config.rope_parameters.get("rope_type") == "llama3":
        plain = config.rope_parameters["rope_theta"] ** -(torch.arange(0, config.head_dim, 2) / config.head_dim)
        writer.add_tensor("rope_freqs.weight", (plain / model.model.rotary_emb.inv_freq).numpy())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in content["model"]["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages }}")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[family.upper()], config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        stem, _, part = name.rpartition(".")
        values = tensor.half().float()
        tensor.copy_(values)
        if name == "lm_head.weight":
            continue  # tied
        if "embed_tokens" in name:
            values = values[: len(tokens)]
        if stem.endswith("norm") and family.startswith("gemma"):
            values = values + 1
        if stem.endswith(("q_proj", "k_proj")) and family in {"llama", "granite"}:
            heads = config.num_attention_heads if stem.endswith("q_proj") else config.num_key_value_heads
            values = torch.unflatten(values, 0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        values = values[:, 0] if stem.endswith("conv.conv") else values
        kind = np.float16 if values.dim() > 1 else np.float32
        writer.add_tensor(f"{names.get_name(stem)}.{part}", values.numpy().astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_options(writer: Any, family: str, config: Any) -> None:
    """Write what only some families have, as llama.cpp's converter does."""
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    if family not in {"granite", "lfm2", "olmo2", "phi3"}:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if family in {"gemma2", "gemma3", "phi3"}:
        writer.add_sliding_window(config.sliding_window)
    if family == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if family == "gemma3":
        writer.add_float32("gemma3.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])
    if family == "lfm2":
        writer.add_uint32("lfm2.shortconv.l_cache", config.conv_L_cache)
        writer.add_vocab_size(config.vocab_size)
    if family == "granite":
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if family == "phi3":
        original, size = config.original_max_position_embeddings, config.hidden_size // config.num_attention_heads
        factor = config.max_position_embeddings / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * size))
        writer.add_rope_scaling_attn_factors((1 + math.log(factor) / math.log(original)) ** 0.5)
        for name in ("short", "long"):
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(rope[f"{name}_factor"], np.float32))


@torch.inference_mode()
def test_an_image_gpt_classifies_as_in_transformers(tmp_path: Path) -> None:
    model = small_image_gpt("ImageClassification", tmp_path / "checkpoint", layers=1)
    family = ImageFamily(load_image(tmp_path / "checkpoint"), shipped=("fp32", "int8"))
    family.write(tmp_path / "bundle", lambda line: None)
    parity, _ = family.measure(tmp_path / "bundle", lambda line: None)  # graphs against our module
    assert parity["int8"]["near_agreement_percent"] > 60
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "checkpoint")
    pictures = [Image.fromarray(pixels) for pixels in family.images]
    with closing(ImageModel("model", 1, open_bundle(tmp_path / "bundle"), EncoderOptions("fp32"))) as served:
        results = served.classify(list(map(as_png, pictures)))
    for picture, result in zip(pictures, results, strict=True):
        expected = model(**processor(picture, return_tensors="pt")).logits.softmax(-1)[0]
        found = {label.index: label.score for label in result.labels}
        np.testing.assert_allclose([found[index] for index in range(5)], expected, atol=1e-4)


@torch.inference_mode()
def test_an_image_gpt_completes_images_as_in_transformers(tmp_path: Path) -> None:
    """The committed bundle is of this checkpoint: its graphs are traced like those of a GPT-2."""
    model = small_image_gpt("CausalImageModeling", tmp_path / "checkpoint")
    bundle = open_bundle(IMAGE_GENERATION_MODELS / "igpt" / "1")
    manifest = json.loads(json.dumps(generation_manifest(load_decoder(tmp_path / "checkpoint"), ("fp32",))))
    written = json.loads((bundle.folder / FILE_NAME).read_text())
    assert {name: written[name] for name in manifest} == manifest
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "checkpoint")
    chance, size, rows = np.random.default_rng(3), (6, 6), (None, 0, 1, 5)
    pictures = [Image.fromarray(chance.integers(0, 256, (*shape, 3), np.uint8)) for shape in ((6, 6), (48, 48), (7, 7))]
    engine = DecodeModelOptions(engine=EngineOptions(workers=1))
    with closing(ImageGenerator("model", 1, bundle, engine)) as generator:
        files, keep = list(map(as_png, pictures)), DecodingOptions(sampling_topk=1)
        found = {kept: generator.generate(GenerationRequest(images=files, rows=kept, options=keep)) for kept in rows}
    colours = np.rint((np.array(processor.clusters) + 1) * 127.5).astype(np.uint8)
    for index, picture in enumerate(pictures):
        pixels = processor(picture, return_tensors="pt").input_ids[0].tolist()
        for kept, generations in found.items():
            prompt = torch.tensor([[32, *pixels[: 6 * (3 if kept is None else kept)]]])
            wanted = model.generate(prompt, max_length=1 + 36, do_sample=False)[0, 1:].numpy()
            [choice] = generations[index].choices
            assert (np.asarray(Image.open(BytesIO(choice.image))) == colours[wanted].reshape(*size, 3)).all()
            assert generator.rows_of(generations[index]) == (3 if kept is None else kept)
    texts = [[32, *wanted.tolist()]]
    [(likely, _)] = score(bundle, "fp32", texts)
    logits = model(torch.tensor([texts[0][:-1]])).logits[0, :, :32].log_softmax(-1)
    np.testing.assert_allclose(likely, logits.gather(1, torch.tensor(texts[0][1:])[:, None])[:, 0], atol=1e-4)
