"""GPT-2 and its relatives: layer norm, and a feed-forward network without a gate (but for those of StableLM and Cohere).

GPT-2, Radford et al. 2019; GPT-Neo, Black et al. 2021; GPT-J, Wang and Komatsuzaki 2021; GPT-NeoX, Black et al. 2022 (Pythia,
Biderman et al. 2023); OPT, Zhang et al. 2022; CodeGen, Nijkamp et al. 2022; GPTBigCode, Ben Allal et al. 2023; Phi, Li et al.
2023; StarCoder2, Lozhkov et al. 2024; StableLM 2, Bellagente et al. 2024; Falcon, Almazrouei et al. 2023; Nemotron, Parmar et
al. 2024; Command R, Cohere 2024 and 2025; Jais 2, Inception 2025; XGLM, Lin et al. 2021; BLOOM, Scao et al. 2022.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from triptych_export.huggingface.architectures.decoder_config import (
    BIASES,
    CONSTANTS,
    DECODER,
    LAYERS,
    MOST_LAYERS,
    QUERY_KEY_VALUE,
    but_each,
    first_rotated,
    llama_members,
    neighbours_rotated,
    positive,
    positive_number,
    rotary,
    rotated_rows,
    rows_by_group,
    windows,
)
from triptych_export.huggingface.architectures.decoders import DecoderMapping
from triptych_export.huggingface.architectures.llama_decoders import GEMMA_RULES, LLAMA_RULES, mistral_members
from triptych_export.huggingface.checkpoint.config import activation, flag
from triptych_export.huggingface.checkpoint.mapping import Change, Rule, block_rules
from triptych_export.huggingface.folder import Folder, neutral
from triptych_training.models.gpt import GPT2, ROTARY, SLOPES, GptConfig
from triptych_training.models.positions import FAIRSEQ_FIRST, fairseq_sinusoid_table

GPT2_NEUTRAL = {
    **DECODER,
    **neutral(
        """
        n_ctx reorder_and_upcast_attn summary_activation summary_proj_to_labels summary_type summary_use_proj
        attention_softmax_in_fp32 scale_attention_softmax_in_fp32 num_key_value_heads
        inference_runner max_batch_size max_sequence_length pad_key_length pre_allocate_kv_cache validate_runner_input
        """,
        rotary=(True,),
        scale_attn_weights=(True,),
        scale_attn_by_inverse_layer_idx=(False,),
    ),
}
BLOOM_NEUTRAL = {
    **DECODER,
    **neutral(
        "pretraining_tp slow_but_exact offset_alibi attention_softmax_in_fp32 bias_dropout_fusion "
        "masked_softmax_fusion skip_bias_add skip_bias_add_qkv",
        apply_residual_connection_post_layernorm=(False,),
    ),
}
OPT_NEUTRAL = {
    **DECODER,
    **neutral(
        "prefix",
        learned_embeddings=(True,),
        scale_embeddings=(False,),
        do_layer_norm_before=(True,),
        layer_norm_elementwise_affine=(True,),
        _remove_final_layer_norm=(False,),
    ),
}
NEO_NEUTRAL = {**GPT2_NEUTRAL, **neutral("attention_types")}
PHI_NEUTRAL = {**DECODER, **neutral(qk_layernorm=(False,))}
STABLELM_NEUTRAL = {**DECODER, **neutral(qk_layernorm=(False,), use_parallel_residual=(False,))}
FALCON_NEUTRAL = {
    **DECODER,
    **neutral(
        "apply_residual_connection_post_layernorm num_kv_heads",  # of the new architecture alone
        alibi=(False,),
        new_decoder_architecture=(False,),
        parallel_attn=(True,),
        num_ln_in_parallel_attn=(1,),
    ),
}
NEMOTRON_NEUTRAL = {**DECODER, **neutral("kv_channels layer_norm_eps pretraining_tp")}
COHERE_NEUTRAL = {
    **DECODER,
    **neutral(
        "cache_implementation layer_switch model_max_length pretraining_tp use_parallel_embedding",
        order_of_interleaved_layers=("local_attn_first",),
        position_embedding_type=("rope_gptj",),
        rotary_pct=(1.0,),
        use_embedding_sharing=(True,),
        use_gated_activation=(True,),
        use_parallel_block=(True,),
        use_qk_norm=(False,),
    ),
}
STARCODER_NEUTRAL = {
    **DECODER,
    **neutral(
        # The last ones are of GPTBigCode, and not read here.
        "activation_function layer_norm_epsilon scale_attn_weights attention_softmax_in_fp32 scale_attention_softmax_in_fp32",
        norm_type=("layer_norm",),
        mlp_type=("default",),
    ),
}


def gpt2_members(folder: Folder, default_activation: str = "gelu_new") -> dict[str, Any]:
    """Members of GptConfig from those of GPT-2 and ImageGPT."""
    width = positive(folder, "n_embd")
    return {
        **GPT2,
        "model_dim": width,
        "heads": positive(folder, "n_head"),
        "feedforward_dim": positive(folder, "n_inner", 4 * width),
        "layers": positive(folder, "n_layer", most=MOST_LAYERS),
        "max_positions": positive(folder, "n_positions"),
        "activation": activation(folder, "activation_function", default_activation),
        "norm_epsilon": positive_number(folder, "layer_norm_epsilon", 1e-5),
    }


def _big_code_members(folder: Folder) -> dict[str, Any]:
    shared = flag(folder, "multi_query", True)
    return {**gpt2_members(folder, "gelu_pytorch_tanh"), "kv_heads": 1 if shared else positive(folder, "n_head")}


def _gptj_members(folder: Folder) -> dict[str, Any]:
    rotated = {"positions": ROTARY, "rotary_dim": positive(folder, "rotary_dim")}
    biases = {"input_bias": False, "output_bias": False, "projection_bias": True}
    return {**gpt2_members(folder), **rotated, **biases, "parallel": True}


def _falcon_members(folder: Folder) -> dict[str, Any]:
    width, heads = positive(folder, "hidden_size"), positive(folder, "num_attention_heads")
    shared, biased = flag(folder, "multi_query", True), flag(folder, "bias", False)
    theta, scaling = rotary(folder, 10_000.0)
    return {
        "model_dim": width,
        "heads": heads,
        "kv_heads": 1 if shared else heads,
        "feedforward_dim": positive(folder, "ffn_hidden_size", 4 * width),
        "layers": positive(folder, "num_hidden_layers", most=MOST_LAYERS),
        "max_positions": positive(folder, "max_position_embeddings", 2_048),
        "theta": theta,
        "scaling": scaling,
        "activation": activation(folder, "activation", "gelu"),
        **_layer_norm(folder, "layer_norm_epsilon"),
        **dict.fromkeys(BIASES, biased),
        "parallel": True,
    }


def _neo_members(folder: Folder) -> dict[str, Any]:
    width, layers = positive(folder, "hidden_size"), positive(folder, "num_layers", most=MOST_LAYERS)
    kinds = folder.config.get("attention_layers")
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in ("global", "local") for kind in kinds):
        raise ValueError(f"attention_layers: {kinds!r:.80} are not 'global' or 'local' for each of {layers} layers")
    return {
        **GPT2,
        "model_dim": width,
        "heads": positive(folder, "num_heads"),
        "feedforward_dim": positive(folder, "intermediate_size", 4 * width),
        "layers": layers,
        "max_positions": positive(folder, "max_position_embeddings"),
        "window": positive(folder, "window_size", 256),
        "window_layers": [layer for layer, kind in enumerate(kinds) if kind == "local"],
        "activation": activation(folder, "activation_function", "gelu_new"),
        "norm_epsilon": positive_number(folder, "layer_norm_epsilon", 1e-5),
        "input_bias": False,
        "attention_scale": 1.0,
    }


def _opt_members(folder: Folder) -> dict[str, Any]:
    width, biased = positive(folder, "hidden_size"), flag(folder, "enable_bias", True)
    if (embedding := positive(folder, "word_embed_proj_dim", width)) != width:
        raise ValueError(f"word_embed_proj_dim: {embedding} is not hidden_size, {width}; this is not supported")
    return {
        **GPT2,
        "model_dim": width,
        "heads": positive(folder, "num_attention_heads"),
        "feedforward_dim": positive(folder, "ffn_dim"),
        "layers": positive(folder, "num_hidden_layers", most=MOST_LAYERS),
        "max_positions": positive(folder, "max_position_embeddings"),
        "activation": activation(folder, "activation_function", "relu"),
        **dict.fromkeys(BIASES, biased),
    }


def _bloom_members(folder: Folder) -> dict[str, Any]:
    width = positive(folder, "n_embed", positive(folder, "hidden_size", 64))
    return {
        **GPT2,
        "positions": SLOPES,
        "model_dim": width,
        "heads": positive(folder, "n_head", positive(folder, "num_attention_heads", 8)),
        "feedforward_dim": 4 * width,
        "layers": positive(folder, "n_layer", positive(folder, "num_hidden_layers", 2), most=MOST_LAYERS),
        "max_positions": positive(folder, "seq_length", 2_048),
        "norm_epsilon": positive_number(folder, "layer_norm_epsilon", 1e-5),
        "embedding_norm": True,
    }


def _xglm_members(folder: Folder) -> dict[str, Any]:
    width, pad = positive(folder, "d_model"), positive(folder, "pad_token_id", 1, least=0)
    if pad >= FAIRSEQ_FIRST:  # the vector of a position of this number is zero
        raise ValueError(f"pad_token_id: {pad} is not supported; supported: 0, 1")
    return {
        **GPT2,
        "model_dim": width,
        "heads": positive(folder, "attention_heads"),
        "feedforward_dim": positive(folder, "ffn_dim"),
        "layers": positive(folder, "num_layers", most=MOST_LAYERS),
        "max_positions": positive(folder, "max_position_embeddings", 2_048),
        "activation": activation(folder, "activation_function", "gelu"),
        "embedding_scale": width**0.5 if flag(folder, "scale_embedding", True) else 1.0,
    }


def _xglm_changes(_: Folder, config: GptConfig) -> Mapping[str, Change]:
    table = fairseq_sinusoid_table(config.max_positions, config.model_dim)
    return {"positions": lambda tokens: table.to(tokens.device)}


def _neox_members(folder: Folder) -> dict[str, Any]:
    members = llama_members(folder, rotated=0.25, former=("rotary_emb_base", "rotary_pct"), function="gelu")
    biased, parallel = flag(folder, "attention_bias", True), flag(folder, "use_parallel_residual", True)
    biases = {"bias": True, "input_bias": biased, "output_bias": biased}
    return {**members, **_layer_norm(folder), **biases, "parallel": parallel}


def _phi_members(folder: Folder) -> dict[str, Any]:
    biases = dict.fromkeys((*BIASES, "projection_bias"), True)
    return {**llama_members(folder, rotated=0.5, function="gelu_new"), **_layer_norm(folder), **biases, "parallel": True}


def _starcoder2_members(folder: Folder) -> dict[str, Any]:
    biases = dict.fromkeys(BIASES, flag(folder, "use_bias", True))
    return {**mistral_members(folder, 0, function="gelu_pytorch_tanh"), **_layer_norm(folder, "norm_epsilon"), **biases}


def _stablelm_members(folder: Folder) -> dict[str, Any]:
    biases = {"input_bias": flag(folder, "use_qkv_bias", False), "output_bias": False}
    return {**llama_members(folder, rotated=0.25), **_layer_norm(folder), **biases, "gated": True}


def _nemotron_members(folder: Folder) -> dict[str, Any]:
    return {**llama_members(folder, rotated=0.5, function="relu2"), **_layer_norm(folder, "norm_eps")}


def _cohere_members(folder: Folder, theta: float = 500_000.0) -> dict[str, Any]:
    options = {"gated": True, "norm_bias": False, "parallel": True}
    return {**llama_members(folder, theta), **_layer_norm(folder), **options}


def _cohere2_members(folder: Folder) -> dict[str, Any]:
    members = _cohere_members(folder, 10_000.0)
    layers, interval = members["layers"], positive(folder, "sliding_window_pattern", 4)
    members |= windows(folder, layers, but_each(interval, layers), always=True)
    size = members["model_dim"] // members["heads"]  # whatever head_dim says
    return {**members, "head_dim": size, "unrotated_layers": sorted(set(range(layers)) - set(members["window_layers"]))}


def _cohere_changes(folder: Folder, config: GptConfig) -> Mapping[str, Change]:
    logits = positive_number(folder, "logit_scale", 0.0625)
    return {**neighbours_rotated(folder, config), "norm": lambda weight: weight * logits}


def _jais2_members(folder: Folder) -> dict[str, Any]:
    attention, bias = flag(folder, "attention_bias", True), flag(folder, "mlp_bias", True)
    biases = {"bias": bias, "input_bias": attention, "output_bias": attention}
    return {**llama_members(folder, function="relu2"), **_layer_norm(folder), **biases}


def _layer_norm(folder: Folder, epsilon: str = "layer_norm_eps") -> dict[str, Any]:
    return {"norm_kind": "layer", "norm_epsilon": positive_number(folder, epsilon, 1e-5), "gated": False}


def _grouped(_: Folder, config: GptConfig) -> Mapping[str, Change]:
    return rotated_rows(config, rows=rows_by_group)


def _codegen_changes(_: Folder, config: GptConfig) -> Mapping[str, Change]:
    return rotated_rows(config, neighbours=True, rows=_rows_by_core)


def _rows_by_core(heads: int, _: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of queries, keys and values of CodeGen, which are apart for each of the four cores that it was trained on."""
    if heads % CORES:
        raise ValueError(f"n_head: {heads} is not a multiple of {CORES}")
    cores = torch.arange(3 * heads * size).view(CORES, 3, -1, size)
    return cores[:, 0].flatten(0, 1), cores[:, 2].flatten(0, 1), cores[:, 1].flatten(0, 1)


def _transposed(weight: Tensor) -> Tensor:
    """Turn a weight `[inputs, outputs]` of a "Conv1D"; biases stay."""
    return weight.T if weight.dim() == 2 else weight


def _after_padding(weight: Tensor) -> Tensor:
    """Drop the first rows of OPT's positions, which padding would have."""
    return weight[2:]


CORES = 4  # of CodeGen
GPT2_RULES = (
    Rule(QUERY_KEY_VALUE, "h.{i}.attn.c_attn", change=_transposed),
    Rule(f"{LAYERS}.attention.output", "h.{i}.attn.c_proj", change=_transposed),
    Rule(f"{LAYERS}.feedforward.expand", "h.{i}.mlp.c_fc", change=_transposed),
    Rule(f"{LAYERS}.feedforward.contract", "h.{i}.mlp.c_proj", change=_transposed),
    Rule(f"{LAYERS}.attention_residual.norm", "h.{i}.ln_1"),
    Rule(f"{LAYERS}.feedforward_residual.norm", "h.{i}.ln_2"),
    Rule("tokens", "wte"),
    Rule("positions", "wpe"),
    Rule("norm", "ln_f"),
    Rule("projection", "lm_head"),
)
LINEAR_RULES = tuple(rule.changed(None) for rule in GPT2_RULES)  # without "Conv1D"
QKV = [f"{name}_proj" for name in "qkv"]
NEO_RULES = (
    Rule(QUERY_KEY_VALUE, *(f"h.{{i}}.attn.attention.{name}" for name in QKV)),
    Rule(f"{LAYERS}.attention.output", "h.{i}.attn.attention.out_proj"),
    *LINEAR_RULES,
)
GPTJ_RULES = (
    Rule(QUERY_KEY_VALUE, *(f"h.{{i}}.attn.{name}" for name in QKV)),
    Rule(f"{LAYERS}.attention.output", "h.{i}.attn.out_proj"),
    Rule(f"{LAYERS}.feedforward.expand", "h.{i}.mlp.fc_in"),
    Rule(f"{LAYERS}.feedforward.contract", "h.{i}.mlp.fc_out"),
    Rule(f"{LAYERS}.feedforward_residual.norm", "h.{i}.ln_1"),
    *LINEAR_RULES,
)
CODEGEN_RULES = (Rule(QUERY_KEY_VALUE, "h.{i}.attn.qkv_proj"), *GPTJ_RULES)
NEOX_BLOCK = ("attention.dense", "input_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "post_attention_layernorm")
NEOX_RULES = (
    *block_rules(LAYERS, LAYERS, ["attention.query_key_value"], *NEOX_BLOCK),
    Rule("tokens", "embed_in"),
    Rule("norm", "final_layer_norm"),
    Rule("projection", "embed_out", others=("lm_head",)),
)
FALCON_BLOCK = ("self_attention.dense", "input_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "input_layernorm")
FALCON_RULES = (
    *block_rules(LAYERS, "h.{i}", ["self_attention.query_key_value"], *FALCON_BLOCK),
    Rule("tokens", "word_embeddings"),
    Rule("norm", "ln_f"),
    Rule("projection", "lm_head"),
)
BLOOM_BLOCK = (*FALCON_BLOCK[:-1], "post_attention_layernorm")
BLOOM_RULES = (
    *block_rules(LAYERS, "h.{i}", ["self_attention.query_key_value"], *BLOOM_BLOCK),
    Rule("embedding_norm", "word_embeddings_layernorm"),
    *FALCON_RULES,
)
OPT_RULES = (
    *block_rules(
        *(LAYERS, LAYERS, [f"self_attn.{name}" for name in QKV], "self_attn.out_proj"),
        *("self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"),
    ),
    Rule("tokens", "embed_tokens"),
    Rule("positions", "embed_positions", change=_after_padding),
    Rule("norm", "final_layer_norm"),
    Rule("projection", "lm_head"),
)
XGLM_RULES = (
    Rule("positions", "embed_tokens"),  # for the type and place of the sinusoids
    Rule("norm", "layer_norm"),
    *OPT_RULES,
)
PHI_RULES = (
    Rule(f"{LAYERS}.attention.output", f"{LAYERS}.self_attn.dense"),
    Rule(f"{LAYERS}.feedforward.expand", f"{LAYERS}.mlp.fc1"),
    Rule(f"{LAYERS}.feedforward.contract", f"{LAYERS}.mlp.fc2"),
    Rule(f"{LAYERS}.feedforward_residual.norm", f"{LAYERS}.input_layernorm"),
    Rule("norm", "final_layernorm"),
    *LLAMA_RULES,
)
COHERE_RULES = (Rule(f"{LAYERS}.feedforward_residual.norm", f"{LAYERS}.input_layernorm"), *LLAMA_RULES)
STARCODER_RULES = (
    Rule(f"{LAYERS}.feedforward.expand", f"{LAYERS}.mlp.c_fc"),
    Rule(f"{LAYERS}.feedforward.contract", f"{LAYERS}.mlp.c_proj"),
    *LLAMA_RULES,
)
MASKS = ("*h.*.attn.bias", "*h.*.attn.masked_bias", "*h.*.attn.causal_mask")
_gpt = partial(DecoderMapping, prefixes=("transformer.",), neutral=GPT2_NEUTRAL, ignored=MASKS)
_modern = partial(DecoderMapping, prefixes=("model.",), ignored=CONSTANTS)
_cohere = partial(_modern, rules=COHERE_RULES, neutral=COHERE_NEUTRAL, changes=_cohere_changes, tied=True)
GPT2_MAPPING = _gpt("GPT2LMHeadModel", gpt2_members, GPT2_RULES, tied=True)
GPTS: Mapping[str, DecoderMapping] = {
    "bloom": _gpt(
        "BloomForCausalLM", _bloom_members, BLOOM_RULES, neutral=BLOOM_NEUTRAL, ignored=(), changes=_grouped, tied=True
    ),
    "codegen": _gpt("CodeGenForCausalLM", _gptj_members, CODEGEN_RULES, changes=_codegen_changes),
    "cohere": _cohere("CohereForCausalLM", _cohere_members),
    "cohere2": _cohere("Cohere2ForCausalLM", _cohere2_members),
    "falcon": _gpt(
        *("FalconForCausalLM", _falcon_members, FALCON_RULES),
        neutral=FALCON_NEUTRAL,
        ignored=CONSTANTS,
        changes=_grouped,
        tied=True,
    ),
    "gpt2": GPT2_MAPPING,
    "gpt_bigcode": _gpt("GPTBigCodeForCausalLM", _big_code_members, LINEAR_RULES, changes=_grouped, tied=True),
    "gpt_neo": _gpt(
        *("GPTNeoForCausalLM", _neo_members, NEO_RULES),
        neutral=NEO_NEUTRAL,
        ignored=("*.attn.attention.bias", "*.attn.attention.masked_bias"),
        tied=True,
    ),
    "gpt_neox": DecoderMapping(
        *("GPTNeoXForCausalLM", _neox_members, NEOX_RULES, ("gpt_neox.",), DECODER),
        ignored=(*CONSTANTS, "*.attention.bias", "*.attention.masked_bias"),
        changes=_grouped,
    ),
    "gptj": _gpt("GPTJForCausalLM", _gptj_members, GPTJ_RULES, changes=neighbours_rotated),
    "jais2": _modern("Jais2ForCausalLM", _jais2_members, LLAMA_RULES, neutral=DECODER),
    "nemotron": _modern("NemotronForCausalLM", _nemotron_members, GEMMA_RULES, neutral=NEMOTRON_NEUTRAL, changes=first_rotated),
    "opt": DecoderMapping("OPTForCausalLM", _opt_members, OPT_RULES, ("model.decoder.", "decoder."), OPT_NEUTRAL, tied=True),
    "phi": _modern("PhiForCausalLM", _phi_members, PHI_RULES, neutral=PHI_NEUTRAL, changes=first_rotated),
    "stablelm": _modern("StableLmForCausalLM", _stablelm_members, LLAMA_RULES, neutral=STABLELM_NEUTRAL, changes=first_rotated),
    "starcoder2": _modern("Starcoder2ForCausalLM", _starcoder2_members, STARCODER_RULES, neutral=STARCODER_NEUTRAL, tied=True),
    "xglm": _modern(
        *("XGLMForCausalLM", _xglm_members, XGLM_RULES),
        neutral=DECODER,
        ignored=("*embed_positions.weights",),  # old files also store the sinusoids
        changes=_xglm_changes,
        tied=True,
    ),
}
