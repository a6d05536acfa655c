"""Llama and its relatives: RMS norm (but for OLMo 1), rotary positions, gated feed-forward networks (but for AFM, Apertus and
nanochat).

Llama, Touvron et al. 2023; Mistral and Ministral, Jiang et al. 2023; Qwen2, Yang et al. 2024; Qwen3, Yang et al. 2025;
SmolLM3, Bakouch et al. 2025; Gemma 1 to 3 and VaultGemma, Gemma Team 2024 and 2025; Phi-3, Abdin et al. 2024; Granite, also 4
(attention only), Granite Team 2024 and 2025; GLM, GLM Team 2024; Helium, Kyutai 2025; ERNIE 4.5, Baidu 2025; OLMo 1 to 3,
Groeneveld et al. 2024 and OLMo Team 2025; EXAONE 4, LG AI Research 2025; Seed-OSS, ByteDance 2025; AFM, Arcee 2025; HunYuan,
Tencent 2025; Apertus, Swiss AI 2025; LFM2, Liquid AI 2025; nanochat, Karpathy 2025; CWM, Meta 2025.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.functional import rms_norm, softplus

from triptych_export.huggingface.architectures.decoder_config import (
    BIASES,
    CONSTANTS,
    DECODER,
    GLOBAL,
    HUNYUAN,
    LAYERS,
    LOCAL,
    QUERY_KEY_VALUE,
    but_each,
    check_number,
    first_rotated,
    llama_members,
    neighbours_rotated,
    positive,
    positive_number,
    rope_parameters,
    rotary,
    rotated_rows,
    rows_apart,
    windows,
)
from triptych_export.huggingface.architectures.decoders import DecoderMapping
from triptych_export.huggingface.checkpoint.config import activation, flag
from triptych_export.huggingface.checkpoint.mapping import Change, Rule, block_rules, split_rules
from triptych_export.huggingface.folder import Folder, neutral
from triptych_training.models.blocks import XIELU
from triptych_training.models.gpt import GptConfig

CONVOLUTION = "conv"  # kind of layers
NEUTRAL = {
    **DECODER,
    **neutral(
        "pretraining_tp rope_interleaved is_llama_config max_window_layers max_sequence_length",
        use_mrope=(False,),
        use_sliding_window=(False,),
    ),
}
GEMMA_NEUTRAL = {
    **DECODER,
    **neutral(  # soft caps are null
        "_sliding_window_pattern sliding_window_size cache_implementation", use_bidirectional_attention=(False,)
    ),
}
APERTUS_NEUTRAL = {**NEUTRAL, **neutral(post_norm=(False,), qk_norm=(True,))}
HUNYUAN_NEUTRAL = {
    **NEUTRAL,
    **neutral(
        # The first ones are of images and experts, which the class does not have.
        "eod_token_id org_vocab_size attention_head_dim cla_share_factor class_num dense_list mask_init_id num_media_embeds "
        "add_classification_head pool_type skip_cls_token text_start_id text_end_id im_start_id im_end_id im_newline_id "
        "image_token_id video_start_id video_end_id norm_topk_prob routed_scaling_factor moe_topk moe_layer_num_skipped "
        "num_shared_expert moe_drop_tokens moe_random_routing_dropped_token use_mixed_mlp_moe group_limited_greedy pad_id "
        "anyres_pooling_size anyres_vit_max_image_size anyres_vit_two_views vit_add_patchemb_bias vit_input_resolution "
        "vit_mapping_type vit_norm_type vit_patch vit_remove_prenorm vit_token vit_type vit_used_rms_norm",
        norm_type=("rms", "hf_rms", "fused"),
        num_experts=(1,),
        position_embedding_xdrope=(False,),
        use_cla=(False,),
        use_mla=(False,),
        use_qk_norm=(True,),
        use_rotary_pos_emb=(True,),
    ),
}
GRANITE4_NEUTRAL = {
    **NEUTRAL,
    **neutral(  # of state-space layers and experts, which dense models do not have
        "mamba_chunk_size mamba_conv_bias mamba_d_conv mamba_d_head mamba_d_state mamba_expand mamba_n_groups "
        "mamba_n_heads mamba_proj_bias time_step_limit num_experts_per_tok output_router_logits router_aux_loss_coef "
        "intermediate_size",
        normalization_function=("rmsnorm",),
        num_local_experts=(0,),
    ),
}
LFM2_NEUTRAL = {  # other names of members, and how weights were drawn
    **NEUTRAL,
    **neutral(
        "block_dim block_mlp_init_scale block_norm_eps block_out_init_scale block_use_xavier_init conv_dim conv_dim_out "
        "conv_use_xavier_init full_attn_idxs num_heads theta",
        block_use_swiglu=(True,),
        use_pos_enc=(True,),
    ),
}
PHI3_NEUTRAL = {
    **NEUTRAL,
    **neutral("original_max_position_embeddings full_attn_mod interpolate_factor", lm_head_bias=(False,)),
}


def mistral_members(folder: Folder, default_window: int = 4_096, **defaults: Any) -> dict[str, Any]:
    members = llama_members(folder, **defaults)
    default_window = 0 if "sliding_window" in folder.config else default_window  # null: none
    window = positive(folder, "sliding_window", default_window, least=0)
    return {**members, "window": window, "window_layers": range(members["layers"] if window else 0)}


def _ministral_members(folder: Folder) -> dict[str, Any]:
    members = llama_members(folder)
    return {**members, **windows(folder, members["layers"], range(members["layers"]), always=True)}


def _cwm_members(folder: Folder) -> dict[str, Any]:
    _check_rotary(folder)
    members = llama_members(folder, 1_000_000.0, epsilon=1e-5, head_dim=128)
    layers = range(members["layers"])
    return {**members, **windows(folder, len(layers), [layer for layer in layers if layer % 4], always=True)}


def _check_rotary(folder: Folder) -> None:
    """Raise ValueError if a file does not have the rotary positions whose default is not supported."""
    if not rope_parameters(folder) and not folder.config.get("rope_scaling"):
        raise ValueError("rope_parameters: missing, and their default is not supported")


def _qwen_members(folder: Folder, head_dim: int | None = None) -> dict[str, Any]:
    members = llama_members(folder, head_dim=head_dim)
    layers = range(members["layers"])
    return {**members, **windows(folder, len(layers), layers[positive(folder, "max_window_layers", 28, least=0) :])}


def _smollm3_members(folder: Folder) -> dict[str, Any]:
    members = llama_members(folder, 2_000_000.0)
    layers, rotated = members["layers"], folder.config.get("no_rope_layers")
    interval = positive(folder, "no_rope_layer_interval", 4)
    rotated = [(layer + 1) % interval for layer in range(layers)] if rotated is None else rotated
    if not isinstance(rotated, list) or len(rotated) < layers:
        raise ValueError(f"no_rope_layers: {rotated!r:.80} do not fit {layers} layers")
    unrotated = [layer for layer in range(layers) if not rotated[layer]]
    return {**members, **windows(folder, layers, unrotated), "unrotated_layers": unrotated}


def _local_theta(folder: Folder, default: float, former: str = "rope_theta") -> float:
    """Read the base of the rotary frequencies in layers with a window, where these have their own."""
    if wrong := sorted(set(rope_parameters(folder)) - {GLOBAL, LOCAL}):
        raise ValueError(f"rope_parameters: {wrong[0]!r} is no kind of layers; expected {GLOBAL!r} and {LOCAL!r}")
    theta, scaling = rotary(folder, default, LOCAL, former)
    if scaling is not None:
        raise ValueError(f"rope_parameters: {LOCAL}: rope_type: {scaling.kind!r} is not supported")
    return theta


def _gemma3_members(folder: Folder) -> dict[str, Any]:
    local_theta = _local_theta(folder, 10_000.0, "rope_local_base_freq")
    members = llama_members(folder, 1_000_000.0, GLOBAL, head_dim=256)
    layers, interval = members["layers"], positive(folder, "sliding_window_pattern", 6)
    nearby = windows(folder, layers, but_each(interval, layers), always=True)
    if both := flag(folder, "use_bidirectional_attention", False):
        nearby["window"] = nearby["window"] // 2 + 1  # the member counts both sides
    return {
        **members,
        **nearby,
        **_gemma_attention(folder),
        "bidirectional": both,
        "local_theta": local_theta,
        "embedding_scale": members["model_dim"] ** 0.5,
    }


def _gemma2_members(folder: Folder) -> dict[str, Any]:
    members = llama_members(folder, head_dim=256)
    layers = members["layers"]
    return {
        **members,
        **windows(folder, layers, range(0, layers, 2), always=True),
        "attention_cap": _cap(folder, "attn_logit_softcapping", 50.0),
        "logit_cap": _cap(folder, "final_logit_softcapping", 30.0),
        **_gemma_attention(folder),
        "embedding_scale": members["model_dim"] ** 0.5,
    }


def _cap(folder: Folder, name: str, default: float) -> float:
    """Read a soft limit; 0, for none, if the file has null."""
    value = folder.config.get(name, default)
    return 0.0 if value is None else check_number(name, value)


def _gemma_attention(folder: Folder) -> dict[str, Any]:
    return {
        "activation": activation(folder, "hidden_activation", "gelu_pytorch_tanh"),
        "attention_scale": positive(folder, "query_pre_attn_scalar", 256) ** -0.5,
    }


def _gemma_members(folder: Folder) -> dict[str, Any]:
    members = llama_members(folder, head_dim=256)
    given = activation(folder, "hidden_activation", "gelu_pytorch_tanh")
    if folder.config.get("hidden_act") not in (None, "gelu"):  # "gelu" means its approximation here
        given = activation(folder, "hidden_act")
    return {**members, "activation": given, "embedding_scale": members["model_dim"] ** 0.5}


def _granite_members(folder: Folder) -> dict[str, Any]:
    scales = {"attention_scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}
    return {**llama_members(folder), **{ours: _factor(folder, theirs) for ours, theirs in scales.items()}}


def _granite_changes(folder: Folder, _: GptConfig) -> Mapping[str, Change]:
    branches, logits = _factor(folder, "residual_multiplier"), 1 / _factor(folder, "logits_scaling")
    outputs = (f"{LAYERS}.attention.output", f"{LAYERS}.feedforward.contract")
    return {**dict.fromkeys(outputs, lambda weight: weight * branches), "norm": lambda weight: weight * logits}


def _granite4_members(folder: Folder) -> dict[str, Any]:
    members, config = _granite_members(folder), folder.config
    layers = range(members["layers"])
    if config.get("num_local_experts", 8) != 0:
        raise ValueError(f"num_local_experts: {config.get('num_local_experts', 8)!r:.60} is not supported; supported: 0")
    kinds = config.get("layers_block_type") or config.get("layer_types")
    if not isinstance(kinds, list) or len(kinds) != len(layers) or not set(kinds) <= {"attention", GLOBAL}:
        raise ValueError(f"layer_types: {kinds!r:.80}; {len(layers)} times 'attention' is supported, but no state-space layers")
    if (positions := config.get("position_embedding_type")) not in (None, "nope", "rope"):
        raise ValueError(f"position_embedding_type: {positions!r:.60} is not supported; supported: 'rope', 'nope'")
    width = positive(folder, "shared_intermediate_size", 1_024)
    return {**members, "feedforward_dim": width, "unrotated_layers": () if positions == "rope" else layers}


def _lfm2_members(folder: Folder) -> dict[str, Any]:
    members = {**llama_members(folder, 1_000_000.0), "norm_epsilon": positive_number(folder, "norm_eps", 1e-5)}
    layers, kinds = members["layers"], folder.config.get("layer_types")
    attending = folder.config.get("full_attn_idxs")
    if kinds is None:
        kinds = [GLOBAL if attending is None or layer in attending else CONVOLUTION for layer in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or not set(kinds) <= {GLOBAL, CONVOLUTION}:
        raise ValueError(f"layer_types: {kinds!r:.80} are not {GLOBAL!r} or {CONVOLUTION!r} for each of {layers} layers")
    return {
        **members,
        "feedforward_dim": _lfm2_width(folder),
        "convolution_layers": [layer for layer, kind in enumerate(kinds) if kind == CONVOLUTION],
        "convolution_reach": positive(folder, "conv_L_cache", 3),
        "convolution_bias": flag(folder, "conv_bias", False),
    }


def _lfm2_width(folder: Folder) -> int:
    """Read the width of the feed-forward networks, which is adjusted unless the file says otherwise."""
    width = positive(folder, "block_ff_dim", positive(folder, "intermediate_size", 12_288))
    factor, multiple = folder.config.get("block_ffn_dim_multiplier", 1.0), positive(folder, "block_multiple_of", 256)
    if not flag(folder, "block_auto_adjust_ff_dim", True):
        return width
    width = 2 * width // 3
    return width if factor is None else -(-int(check_number("block_ffn_dim_multiplier", factor) * width) // multiple) * multiple


def _factor(folder: Folder, name: str) -> float:
    return positive_number(folder, name, 1.0)


def _ernie_members(folder: Folder) -> dict[str, Any]:
    return {**llama_members(folder, 500_000.0, epsilon=1e-5), **dict.fromkeys(BIASES, flag(folder, "use_bias", False))}


def _olmo3_members(folder: Folder) -> dict[str, Any]:
    local_theta = _local_theta(folder, 500_000.0)
    members = llama_members(folder, 500_000.0, GLOBAL, epsilon=1e-5)
    nearby = windows(folder, members["layers"], but_each(4, members["layers"]), always=True)
    return {**members, **nearby, "local_theta": local_theta}


def _exaone4_members(folder: Folder) -> dict[str, Any]:
    members = llama_members(folder, epsilon=1e-5)
    layers, mixed = members["layers"], folder.config.get("sliding_window", 0) is not None
    listed = not mixed or folder.config.get("layer_types") is not None
    interval = 1 if listed else positive(folder, "sliding_window_pattern", 4)
    members |= windows(folder, layers, but_each(interval, layers), always=mixed)
    unrotated = sorted(set(range(layers)) - set(members["window_layers"])) if mixed else []
    return {**members, "unrotated_layers": unrotated}


def _seed_oss_members(folder: Folder) -> dict[str, Any]:
    biases = {"input_bias": flag(folder, "attention_bias", True), "output_bias": flag(folder, "attention_out_bias", False)}
    return {**llama_members(folder, head_dim=128), **biases}


def _nanochat_members(folder: Folder) -> dict[str, Any]:
    if flag(folder, "tie_word_embeddings", False):
        raise ValueError("tie_word_embeddings: True is not supported: embeddings are normalised, and the output matrix is not")
    return {**llama_members(folder, function="relu2"), "logit_cap": _cap(folder, "final_logit_softcapping", 15.0)}


def _nanochat_changes(_: Folder, config: GptConfig) -> Mapping[str, Change]:
    """Rotate backwards, and normalise the embeddings, which nothing is added to."""
    size = config.attention.head_dim

    def backwards(heads: int, shared: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = rows_apart(heads, shared, size)
        return query.roll(size // 2, 1), key.roll(size // 2, 1), value

    return {
        **rotated_rows(config, rows=backwards),
        **{f"{LAYERS}.attention.{name}_norm.weight": lambda weight: weight.new_ones(size) for name in ("query", "key")},
        "tokens": lambda rows: rms_norm(rows, rows.shape[1:], eps=config.norm_epsilon),
    }


def _apertus_members(folder: Folder) -> dict[str, Any]:
    _check_rotary(folder)
    return llama_members(folder, 12_000_000.0, epsilon=1e-5, function=XIELU)


def _below(weight: Tensor) -> Tensor:
    """Turn a parameter of xIELU below 0 into the factor, which is at least that of the linear part."""
    return 0.5 + softplus(weight)


def _plus_one_rules(rules: Sequence[Rule]) -> Sequence[Rule]:
    """Rules of a family from whose norms' stored weights 1 was subtracted; biases, if there are any, are as in others."""
    norms = [(rule.ours, rule.theirs[0]) for rule in rules if rule.ours.endswith("norm")]
    return [*(Rule(f"{ours}.weight", f"{theirs}.weight", change=lambda weight: weight + 1) for ours, theirs in norms), *rules]


def _ones(weight: Tensor) -> Tensor:
    """Return the weight of a norm that has none, given a matrix whose rows are as wide."""
    return weight.new_ones(weight.shape[1])


OUTPUT_NORMS = {"qk_norm": True, "input_norm": False, "output_norm": True}
LLAMA_BLOCK = ("self_attn.o_proj", "input_layernorm", "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm")
LLAMA_RULES = (
    *block_rules(LAYERS, LAYERS, [f"self_attn.{name}_proj" for name in "qkv"], *LLAMA_BLOCK),
    Rule(f"{LAYERS}.attention.query_norm", f"{LAYERS}.self_attn.q_norm"),
    Rule(f"{LAYERS}.attention.key_norm", f"{LAYERS}.self_attn.k_norm"),
    Rule(f"{LAYERS}.feedforward.gate", f"{LAYERS}.mlp.gate_proj"),
    Rule("tokens", "embed_tokens"),
    Rule("norm", "norm"),
    Rule("projection", "lm_head"),
)
UNWEIGHTED_RULES = (
    Rule(f"{LAYERS}.attention_residual.norm.weight", f"{LAYERS}.self_attn.q_proj.weight", change=_ones),
    Rule(f"{LAYERS}.feedforward_residual.norm.weight", f"{LAYERS}.self_attn.q_proj.weight", change=_ones),
    Rule("norm.weight", "embed_tokens.weight", change=_ones),
    *LLAMA_RULES,
)
HUNYUAN_RULES = (
    Rule(f"{LAYERS}.attention.query_norm", f"{LAYERS}.self_attn.query_layernorm"),
    Rule(f"{LAYERS}.attention.key_norm", f"{LAYERS}.self_attn.key_layernorm"),
    *LLAMA_RULES,
)
APERTUS_RULES = (
    Rule(f"{LAYERS}.attention_residual.norm", f"{LAYERS}.attention_layernorm"),
    Rule(f"{LAYERS}.feedforward_residual.norm", f"{LAYERS}.feedforward_layernorm"),
    Rule(f"{LAYERS}.feedforward.activation.above", f"{LAYERS}.mlp.act_fn.alpha_p", change=softplus),
    Rule(f"{LAYERS}.feedforward.activation.below", f"{LAYERS}.mlp.act_fn.alpha_n", change=_below),
    *LLAMA_RULES,
)
NANOCHAT_RULES = (
    *(Rule(f"{LAYERS}.attention.{name}_norm.weight", f"{LAYERS}.self_attn.k_proj.weight") for name in ("query", "key")),
    Rule(f"{LAYERS}.feedforward.expand", f"{LAYERS}.mlp.fc1"),
    Rule(f"{LAYERS}.feedforward.contract", f"{LAYERS}.mlp.fc2"),
    *UNWEIGHTED_RULES,
)
GLM_RULES = (
    *split_rules(f"{LAYERS}.mlp.gate_up_proj", f"{LAYERS}.feedforward.gate", f"{LAYERS}.feedforward.expand"),
    *LLAMA_RULES,
)
GLM4_RULES = (
    Rule(f"{LAYERS}.attention_residual.output_norm", f"{LAYERS}.post_self_attn_layernorm"),
    Rule(f"{LAYERS}.feedforward_residual.output_norm", f"{LAYERS}.post_mlp_layernorm"),
    *GLM_RULES,
)
OLMO2_RULES = (
    Rule(f"{LAYERS}.attention_residual.output_norm", f"{LAYERS}.post_attention_layernorm"),
    Rule(f"{LAYERS}.feedforward_residual.output_norm", f"{LAYERS}.post_feedforward_layernorm"),
    *LLAMA_RULES,
)
GEMMA_RULES = _plus_one_rules(LLAMA_RULES)
GEMMA3_RULES = _plus_one_rules(
    (Rule(f"{LAYERS}.feedforward_residual.norm", f"{LAYERS}.pre_feedforward_layernorm"), *OLMO2_RULES)
)
GRANITE4_RULES = (
    *split_rules(f"{LAYERS}.shared_mlp.input_linear", f"{LAYERS}.feedforward.gate", f"{LAYERS}.feedforward.expand"),
    Rule(f"{LAYERS}.feedforward.contract", f"{LAYERS}.shared_mlp.output_linear"),
    *LLAMA_RULES,
)
LFM2_BLOCK = ("self_attn.out_proj", "operator_norm", "feed_forward.w3", "feed_forward.w2", "ffn_norm")
LFM2_RULES = (
    Rule(f"{LAYERS}.convolution.weight", f"{LAYERS}.conv.conv.weight", change=lambda weight: weight.flatten(1)),
    Rule(f"{LAYERS}.convolution.bias", f"{LAYERS}.conv.conv.bias"),
    Rule(f"{LAYERS}.convolution.project", f"{LAYERS}.conv.in_proj"),
    Rule(f"{LAYERS}.convolution.output", f"{LAYERS}.conv.out_proj"),
    *block_rules(LAYERS, LAYERS, [f"self_attn.{name}_proj" for name in "qkv"], *LFM2_BLOCK),
    Rule(f"{LAYERS}.attention.query_norm", f"{LAYERS}.self_attn.q_layernorm"),
    Rule(f"{LAYERS}.attention.key_norm", f"{LAYERS}.self_attn.k_layernorm"),
    Rule(f"{LAYERS}.feedforward.gate", f"{LAYERS}.feed_forward.w1"),
    Rule("tokens", "embed_tokens"),
    Rule("norm", "embedding_norm"),
    Rule("projection", "lm_head"),
)
PHI3_RULES = (Rule(QUERY_KEY_VALUE, f"{LAYERS}.self_attn.qkv_proj"), *GLM_RULES)
_llama = partial(DecoderMapping, rules=LLAMA_RULES, prefixes=("model.",), neutral=NEUTRAL, ignored=CONSTANTS)
_gemma = partial(_llama, neutral=GEMMA_NEUTRAL, tied=True)
_glm = partial(_llama, members=partial(llama_members, rotated=0.5, epsilon=1.5625e-7), changes=neighbours_rotated)
_olmo2 = partial(_llama, rules=OLMO2_RULES, fixed={**OUTPUT_NORMS, "whole_norm": True})
LLAMAS: Mapping[str, DecoderMapping] = {
    "apertus": _llama(
        *("ApertusForCausalLM", _apertus_members),
        fixed={"gated": False, "qk_norm": True},
        rules=APERTUS_RULES,
        neutral=APERTUS_NEUTRAL,
        ignored=(*CONSTANTS, "*.act_fn.beta", "*.act_fn.bias", "*.act_fn.eps"),  # transformers writes the first as the second
    ),
    "arcee": _llama("ArceeForCausalLM", partial(llama_members, epsilon=1e-5, function="relu2"), fixed={"gated": False}),
    "cwm": _llama("CwmForCausalLM", _cwm_members),
    "ernie4_5": _llama("Ernie4_5ForCausalLM", _ernie_members, changes=neighbours_rotated, tied=True),
    "exaone4": _llama(
        *("Exaone4ForCausalLM", _exaone4_members),
        rules=OLMO2_RULES,
        fixed=OUTPUT_NORMS,
        neutral={**NEUTRAL, **neutral("sliding_window_pattern")},
    ),
    "gemma": _gemma("GemmaForCausalLM", _gemma_members, rules=GEMMA_RULES),
    "gemma2": _gemma("Gemma2ForCausalLM", _gemma2_members, rules=GEMMA3_RULES, fixed={"output_norm": True}),
    "gemma3_text": _gemma(
        "Gemma3ForCausalLM", _gemma3_members, rules=GEMMA3_RULES, fixed={"qk_norm": True, "output_norm": True}
    ),
    "glm": _glm("GlmForCausalLM", rules=GLM_RULES, fixed={"output_bias": False}),
    "glm4": _glm("Glm4ForCausalLM", rules=GLM4_RULES, fixed={"output_bias": False, "output_norm": True}),
    "granite": _llama("GraniteForCausalLM", _granite_members, changes=_granite_changes),
    "granitemoehybrid": _llama(
        *("GraniteMoeHybridForCausalLM", _granite4_members),
        rules=GRANITE4_RULES,
        changes=_granite_changes,
        neutral=GRANITE4_NEUTRAL,
    ),
    "helium": _llama(
        *("HeliumForCausalLM", partial(llama_members, default_theta=100_000.0, epsilon=1e-8)),
        fixed={"output_bias": False},
        changes=neighbours_rotated,
    ),
    HUNYUAN: _llama(
        *("HunYuanDenseV1ForCausalLM", partial(llama_members, epsilon=1e-5)),
        rules=HUNYUAN_RULES,
        fixed={"bias": False, "qk_norm": True, "late_norm": True},
        neutral=HUNYUAN_NEUTRAL,
    ),
    "lfm2": _llama(
        *("Lfm2ForCausalLM", _lfm2_members), rules=LFM2_RULES, fixed={"qk_norm": True}, neutral=LFM2_NEUTRAL, tied=True
    ),
    "llama": _llama("LlamaForCausalLM", llama_members),
    "ministral": _llama("MinistralForCausalLM", _ministral_members),
    "mistral": _llama("MistralForCausalLM", mistral_members),
    "nanochat": _llama(
        *("NanoChatForCausalLM", _nanochat_members),
        rules=NANOCHAT_RULES,
        fixed={"bias": False, "gated": False, "qk_norm": True, "late_norm": True},
        changes=_nanochat_changes,
    ),
    "olmo": _llama(
        *("OlmoForCausalLM", llama_members),
        rules=UNWEIGHTED_RULES,
        fixed={"norm_kind": "layer", "norm_epsilon": 1e-5, "norm_bias": False},
    ),
    "olmo2": _olmo2("Olmo2ForCausalLM", partial(llama_members, epsilon=1e-5)),
    "olmo3": _olmo2("Olmo3ForCausalLM", _olmo3_members),
    "phi3": _llama(
        *("Phi3ForCausalLM", partial(mistral_members, default_window=0, rotated=1.0, epsilon=1e-5)),
        rules=PHI3_RULES,
        changes=first_rotated,
        neutral=PHI3_NEUTRAL,
    ),
    "qwen2": _llama("Qwen2ForCausalLM", _qwen_members, fixed={"input_bias": True, "output_bias": False}),
    "qwen3": _llama("Qwen3ForCausalLM", partial(_qwen_members, head_dim=128), fixed={"qk_norm": True}),
    "seed_oss": _llama("SeedOssForCausalLM", _seed_oss_members),
    "smollm3": _llama("SmolLM3ForCausalLM", _smollm3_members, tied=True),
    "vaultgemma": _gemma("VaultGemmaForCausalLM", _gemma2_members, rules=GEMMA3_RULES),
}
