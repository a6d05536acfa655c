"""Decoder-only checkpoints: GPT-2, Llama, Mistral, Qwen2, Qwen3, SmolLM3, Gemma 3.

Radford et al. 2019; Touvron et al. 2023; Jiang et al. 2023; Yang et al. 2024; Yang et al. 2025; Bakouch et al. 2025;
Gemma Team 2025.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor

from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.chat import read_chat
from triptych_export.huggingface.checkpoint.config import COMMON, activation, check_architecture, integer
from triptych_export.huggingface.checkpoint.generation import read_decoder_generation
from triptych_export.huggingface.checkpoint.languages import model_name
from triptych_export.huggingface.checkpoint.mapping import Rule, block_rules, load_rules, make_model
from triptych_export.huggingface.checkpoint.weights import StoredWeights, open_weights
from triptych_export.huggingface.folder import Folder, Neutral, neutral
from triptych_export.huggingface.gguf import GgufFolder
from triptych_export.huggingface.tokenizers.tokenizer import decoder_tokenizer, limit_tokens
from triptych_export.onnx_files.decoder import OnnxGpt
from triptych_training.models.gpt import GPT2, Gpt, GptConfig
from triptych_training.models.rotary import RotaryScaling

LOCAL, GLOBAL = "sliding_attention", "full_attention"
DECODER = {**COMMON, **neutral("attention_dropout", is_encoder_decoder=(False,))}
GPT2_NEUTRAL = {
    **DECODER,
    **neutral(
        """
        n_ctx embd_pdrop resid_pdrop attn_pdrop reorder_and_upcast_attn
        summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
        """,
        scale_attn_weights=(True,),
        scale_attn_by_inverse_layer_idx=(False,),
    ),
}
LLAMA_NEUTRAL = {
    **DECODER,
    **neutral("pretraining_tp rope_interleaved is_llama_config max_window_layers", use_mrope=(False,)),
}
GEMMA3_NEUTRAL = {
    **DECODER,
    **neutral("_sliding_window_pattern cache_implementation", use_bidirectional_attention=(False,)),  # soft caps are null
}


@dataclass(frozen=True)
class DecoderMapping:
    """Description of a family: class names, config members and weight rules."""

    architecture: str  # class of its language models, by which folders are recognised
    # Reads members of GptConfig from config.json, besides those that all families have.
    members: Callable[[Folder], Mapping[str, Any]]
    rules: Sequence[Rule]
    prefix: str  # optional leading part of the weights' names
    ignored: Sequence[str]  # patterns of weights that are constants
    tied: bool = False  # embedding and output share one matrix if config.json does not say it


def load_decoder(folder: Folder, mapping: DecoderMapping) -> GenerationSource:
    """Load the model and the tokenizer of a folder."""
    check_architecture(folder, mapping.architecture)
    if isinstance(folder, GgufFolder):
        weights, made, chat = folder.weights(), folder.tokenizer(), folder.chat()
    else:
        weights, made, chat = open_weights(folder.path), decoder_tokenizer(folder), read_chat(folder)
    model = load_gpt(folder, mapping, weights)
    return make_source(folder, model, limit_tokens(made, model.config.vocabulary_size), *chat)


def load_gpt(folder: Folder, mapping: DecoderMapping, weights: StoredWeights) -> Gpt:
    """Make the network of a folder."""
    tied = folder.config.get("tie_word_embeddings")
    common = {"vocabulary_size": integer(folder, "vocab_size"), "tied": mapping.tied if tied is None else bool(tied)}
    model = make_model(folder, lambda: Gpt(GptConfig(**{**common, **mapping.members(folder)})))
    ignored = (*mapping.ignored, *(["lm_head.weight"] if model.config.tied else []))
    load_rules(model, weights, mapping.rules, ignored, (mapping.prefix,))
    return model


def make_source(
    folder: Folder,
    model: Gpt | OnnxGpt,
    tokenizer: Tokenizer | None,
    template: str = "",
    variables: Mapping[str, str] | None = None,
    missing_chat: str = "",
) -> GenerationSource:
    """Assemble the source of a model with its folder's settings."""
    settings = read_decoder_generation(folder, model.config.max_positions)
    if wrong := [id for id in settings.ends if id >= model.config.vocabulary_size]:
        raise folder.config_error(f"eos_token_id: {wrong[0]} is outside the vocabulary of {model.config.vocabulary_size:,}")
    settings.check_suppressed(folder, model.config.vocabulary_size)
    provenance = {"checkpoint": model_name(folder), "architecture": folder.architecture}
    if settings.unsupported:
        provenance["generation_not_carried_over"] = settings.unsupported
    if missing_chat:
        provenance["chat_not_carried_over"] = missing_chat
    return GenerationSource(
        model,
        tokenizer,
        settings.pad,
        settings.ends,
        settings.start,
        settings.members,
        template,
        variables or {},
        folder.model_type,
        provenance,
    )


def gpt2_members(folder: Folder, default_activation: str = "gelu_new") -> dict[str, Any]:
    """Members of GptConfig from those of GPT-2 and ImageGPT."""
    width = integer(folder, "n_embd")
    return {
        **GPT2,
        "model_dim": width,
        "heads": integer(folder, "n_head"),
        "feedforward_dim": integer(folder, "n_inner", 4 * width),
        "layers": integer(folder, "n_layer"),
        "max_positions": integer(folder, "n_positions"),
        "activation": activation(folder, "activation_function", default_activation),
        "norm_epsilon": folder.config.get("layer_norm_epsilon", 1e-5),
    }


def _llama_members(folder: Folder, default_theta: float = 10_000.0, layers: str = "") -> dict[str, Any]:
    heads, width = integer(folder, "num_attention_heads"), integer(folder, "hidden_size")
    theta, scaling = _rotary(folder, default_theta, layers)
    biased = bool(folder.config.get("attention_bias", False))
    return {
        "model_dim": width,
        "heads": heads,
        "kv_heads": integer(folder, "num_key_value_heads", heads),
        "head_dim": integer(folder, "head_dim", width // heads),
        "feedforward_dim": integer(folder, "intermediate_size"),
        "layers": integer(folder, "num_hidden_layers"),
        "max_positions": integer(folder, "max_position_embeddings"),
        "activation": activation(folder, "hidden_act", "silu"),
        "norm_epsilon": folder.config.get("rms_norm_eps", 1e-6),
        "theta": theta,
        "scaling": scaling,
        "bias": bool(folder.config.get("mlp_bias", False)),
        "input_bias": biased,
        "output_bias": biased,
    }


def _mistral_members(folder: Folder) -> dict[str, Any]:
    members = _llama_members(folder)
    window = integer(folder, "sliding_window", 0 if "sliding_window" in folder.config else 4_096)  # null: none
    return {**members, "window": window, "window_layers": range(members["layers"] if window else 0)}


def _qwen2_members(folder: Folder) -> dict[str, Any]:
    return {**_qwen_members(folder), "input_bias": True, "output_bias": False}


def _qwen3_members(folder: Folder) -> dict[str, Any]:
    return {**_qwen_members(folder), "head_dim": integer(folder, "head_dim", 128), "qk_norm": True}


def _qwen_members(folder: Folder) -> dict[str, Any]:
    members = _llama_members(folder)
    layers = range(members["layers"])
    return {**members, **_windows(folder, len(layers), layers[integer(folder, "max_window_layers", 28) :])}


def _smollm3_members(folder: Folder) -> dict[str, Any]:
    members = _llama_members(folder, 2_000_000.0)
    layers, interval = members["layers"], integer(folder, "no_rope_layer_interval", 4)
    rotated = folder.config.get("no_rope_layers")
    if rotated is None and interval < 1:
        raise ValueError(f"no_rope_layer_interval: {interval} is below 1")
    rotated = [(layer + 1) % interval for layer in range(layers)] if rotated is None else rotated
    if len(rotated) < layers:
        raise ValueError(f"no_rope_layers: {rotated} do not fit {layers} layers")
    unrotated = [layer for layer in range(layers) if not rotated[layer]]
    return {**members, **_windows(folder, layers, unrotated), "unrotated_layers": unrotated}


def _gemma3_members(folder: Folder) -> dict[str, Any]:
    if wrong := sorted(set(folder.config.get("rope_parameters") or ()) - {GLOBAL, LOCAL}):
        raise ValueError(f"rope_parameters: {wrong[0]!r} is no kind of layers; expected {GLOBAL!r} and {LOCAL!r}")
    members = _llama_members(folder, 1_000_000.0, GLOBAL)
    local_theta, scaling = _rotary(folder, 10_000.0, LOCAL, "rope_local_base_freq")
    if scaling is not None:
        raise ValueError(f"rope_parameters: {LOCAL}: rope_type: {scaling.kind!r} is not supported")
    layers, interval = members["layers"], _positive(folder, "sliding_window_pattern", 6)
    return {
        **members,
        **_windows(folder, layers, [layer for layer in range(layers) if (layer + 1) % interval], always=True),
        "head_dim": integer(folder, "head_dim", 256),
        "activation": activation(folder, "hidden_activation", "gelu_pytorch_tanh"),
        "local_theta": local_theta,
        "attention_scale": _positive(folder, "query_pre_attn_scalar", 256) ** -0.5,
        "qk_norm": True,
        "output_norm": True,
        "embedding_scale": members["model_dim"] ** 0.5,
    }


def _positive(folder: Folder, name: str, default: int) -> int:
    if (value := integer(folder, name, default)) < 1:
        raise ValueError(f"{name}: {value} is below 1")
    return value


def _windows(folder: Folder, layers: int, default: Sequence[int], always: bool = False) -> dict[str, Any]:
    """Read the sliding window and its layers; older files do not list them: then they are those of `default`."""
    window = integer(folder, "sliding_window", 0)  # Qwen's files have one that they do not use
    window = window if always or folder.config.get("use_sliding_window", False) else 0
    kinds = folder.config.get("layer_types")
    if kinds is None:
        kinds = [LOCAL if (always or window) and layer in default else GLOBAL for layer in range(layers)]
    if len(kinds) != layers or set(kinds) - {GLOBAL, LOCAL} or (LOCAL in kinds and not window):
        raise ValueError(f"layer_types: {kinds} do not fit {layers} layers with a sliding_window of {window}")
    return {"window": window, "window_layers": [layer for layer, kind in enumerate(kinds) if kind == LOCAL]}


# Members of rope_parameters (formerly rope_scaling) by kind: their name in RotaryScaling.
SCALINGS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low_freq_factor": "low",
        "high_freq_factor": "high",
        "original_max_position_embeddings": "original",
    },
}


def _rotary(folder: Folder, default: float, layers: str = "", base: str = "rope_theta") -> tuple[float, RotaryScaling | None]:
    """Read the base of the rotary frequencies and their scaling; if kinds of layers have their own, those of `layers`."""
    given = folder.config.get("rope_parameters") or {}
    given = given.get(layers) if layers else given
    given = dict(given or (layers != LOCAL and folder.config.get("rope_scaling")) or {})
    old, kind = given.pop("type", "default"), given.pop("rope_type", None)
    kind = old if kind is None else kind
    theta = given.pop("rope_theta", None)
    theta = folder.config.get(base, default) if theta is None else theta
    if kind not in SCALINGS:
        raise folder.config_error(f"rope_type: {kind!r} is not supported; supported: {', '.join(SCALINGS)}")
    if given.get("partial_rotary_factor") == 1.0:
        del given["partial_rotary_factor"]
    if unknown := sorted(name for name in given.keys() - SCALINGS[kind].keys() if given[name] is not None):
        raise folder.config_error(f"rope_parameters: {', '.join(unknown)}: not supported with rope_type {kind!r}")
    if missing := sorted(SCALINGS[kind].keys() - given.keys()):
        raise folder.config_error(f"rope_parameters: {', '.join(missing)}: missing for rope_type {kind!r}")
    members: dict[str, Any] = {ours: given[theirs] for theirs, ours in SCALINGS[kind].items()}
    return float(theta), RotaryScaling(kind, **members) if members else None


def _transposed(weight: Tensor) -> Tensor:
    """Turn a weight `[inputs, outputs]` of a "Conv1D"; biases stay."""
    return weight.T if weight.dim() == 2 else weight


def _plus_one(weight: Tensor) -> Tensor:
    """Turn a norm's weight, of which 1 was subtracted, into its factor."""
    return weight + 1


LAYERS = "layers.{i}"
GPT2_RULES = (
    Rule(f"{LAYERS}.attention.query_key_value", "h.{i}.attn.c_attn", change=_transposed),
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
GEMMA3_NORMS = {
    f"{LAYERS}.attention_residual.norm": f"{LAYERS}.input_layernorm",
    f"{LAYERS}.attention_residual.output_norm": f"{LAYERS}.post_attention_layernorm",
    f"{LAYERS}.attention.query_norm": f"{LAYERS}.self_attn.q_norm",
    f"{LAYERS}.attention.key_norm": f"{LAYERS}.self_attn.k_norm",
    f"{LAYERS}.feedforward_residual.norm": f"{LAYERS}.pre_feedforward_layernorm",
    f"{LAYERS}.feedforward_residual.output_norm": f"{LAYERS}.post_feedforward_layernorm",
    "norm": "norm",
}
GEMMA3_RULES = (*(Rule(ours, theirs, change=_plus_one) for ours, theirs in GEMMA3_NORMS.items()), *LLAMA_RULES)
GPT2_MAPPING = DecoderMapping(
    "GPT2LMHeadModel", gpt2_members, GPT2_RULES, "transformer.", ("*h.*.attn.bias", "*h.*.attn.masked_bias"), tied=True
)
CONSTANTS = ("*.rotary_emb.inv_freq",)
DECODERS: Mapping[str, tuple[DecoderMapping, Neutral]] = {
    "gemma3_text": (
        DecoderMapping("Gemma3ForCausalLM", _gemma3_members, GEMMA3_RULES, "model.", CONSTANTS, tied=True),
        GEMMA3_NEUTRAL,
    ),
    "gpt2": (GPT2_MAPPING, GPT2_NEUTRAL),
    "llama": (DecoderMapping("LlamaForCausalLM", _llama_members, LLAMA_RULES, "model.", CONSTANTS), LLAMA_NEUTRAL),
    "mistral": (DecoderMapping("MistralForCausalLM", _mistral_members, LLAMA_RULES, "model.", CONSTANTS), LLAMA_NEUTRAL),
    "qwen2": (DecoderMapping("Qwen2ForCausalLM", _qwen2_members, LLAMA_RULES, "model.", CONSTANTS), LLAMA_NEUTRAL),
    "qwen3": (DecoderMapping("Qwen3ForCausalLM", _qwen3_members, LLAMA_RULES, "model.", CONSTANTS), LLAMA_NEUTRAL),
    "smollm3": (
        DecoderMapping("SmolLM3ForCausalLM", _smollm3_members, LLAMA_RULES, "model.", CONSTANTS, tied=True),
        LLAMA_NEUTRAL,
    ),
}
