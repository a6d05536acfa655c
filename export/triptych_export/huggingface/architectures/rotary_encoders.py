"""Encoders with rotary positions: NomicBERT, GTE and Jina embeddings v3, else like BERT, and EuroBERT, else like Llama.

Nussbaum et al. 2024; Zhang et al. 2024; Sturua et al. 2024; Boizard et al. 2025. The config.json of the first two has other
members in files of their authors' code than in those of transformers. The weights have the same names in both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from triptych_export.huggingface.architectures.bert import (
    CLASSIFIER,
    LAYERS,
    ROBERTA,
    embedding_rules,
    masked_rules,
    usual_heads,
)
from triptych_export.huggingface.architectures.decoder_config import check_number, llama_members, rotary
from triptych_export.huggingface.architectures.decoders import HEAD_NEUTRAL
from triptych_export.huggingface.architectures.llama_decoders import LLAMAS
from triptych_export.huggingface.checkpoint.config import BARE, ENCODER, MASKED, TEXT, TOKENS, activation, integer
from triptych_export.huggingface.checkpoint.mapping import Rule, block_rules, split_rules
from triptych_export.huggingface.checkpoint.text import SpecialIds, TextMapping, encoder_members
from triptych_export.huggingface.folder import Folder, neutral
from triptych_training.models.bert import BertConfig, EncoderConfig

# Names of sizes in its authors' files.
NOMIC_SIZES = {"model_dim": "n_embd", "heads": "n_head", "feedforward_dim": "n_inner", "layers": "n_layer"}
# `rotary_scaling_factor` only matters in texts longer than those of the training; here texts are not.
NOMIC_NEUTRAL = {
    **ENCODER,
    **neutral(
        """
        activation_function dense_seq_output fused_bias_fc fused_dropout_add_ln
        max_trained_positions n_positions pad_vocab_size_multiple parallel_block_tied_norm reorder_and_upcast_attn
        rotary_scaling_factor summary_activation summary_proj_to_labels summary_type summary_use_proj
        use_flash_attn use_xentropy
        """,
        causal=(False,),
        mlp_fc1_bias=(False,),
        mlp_fc2_bias=(False,),
        parallel_block=(False,),
        prenorm=(False,),
        qkv_proj_bias=(False,),
        rotary_emb_fraction=(1.0,),
        rotary_emb_interleaved=(False,),
        scale_attn_by_inverse_layer_idx=(False,),
        scale_attn_weights=(True,),
        use_rms_norm=(False,),
    ),
}
GTE_NEUTRAL = {
    **ENCODER,
    **neutral(
        "logn_attention_clip1 unpad_inputs use_memory_efficient_attention",
        layer_norm_type=("layer_norm",),
        logn_attention_scale=(False,),
        pack_qkv=(True,),
        position_embedding_type=("rope",),
    ),
}


def _nomic_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config, old = folder.config, "n_embd" in folder.config
    if (function := config.get("activation_function", "swiglu")) != "swiglu":
        raise ValueError(f"activation_function: {function!r} is not supported; supported: 'swiglu'")
    members = encoder_members(folder, special, **(NOMIC_SIZES if old else {}), positions=2_048)
    if (head_dim := config.get("head_dim")) is not None and head_dim * members["heads"] != members["model_dim"]:
        raise ValueError(f"head_dim: {head_dim} is not supported; supported: the width divided by the number of heads")
    return BertConfig(
        **members,
        **_rotary_members(folder, 1_000.0, "rotary_emb_base"),
        segments=integer(folder, "type_vocab_size", 2),
        activation=activation(folder, "hidden_act", "silu"),
        norm_epsilon=config.get("layer_norm_epsilon" if old else "layer_norm_eps", 1e-12),
        head_activation=activation(folder, "hidden_act", "silu"),
        gated=True,
        bias=False,
    )


def _gte_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config, scaling = folder.config, folder.config.get("rope_scaling")
    made = BertConfig(
        **encoder_members(folder, special),
        segments=integer(folder, "type_vocab_size", 1),
        activation=activation(folder, "hidden_act"),
        norm_epsilon=config.get("layer_norm_eps", 1e-12),
        gated=True,
    )
    if isinstance(scaling, dict) and scaling.keys() == {"type", "factor"} and scaling["type"] == "ntk":
        # Of the authors' code: transformers calls the same frequencies linearly scaled ones of another base.
        factor = check_number("rope_scaling: factor", scaling["factor"])
        base = check_number("rope_theta", config.get("rope_theta", 10_000.0))
        return replace(made, theta=base * factor, rotary_divisor=factor ** (2 / made.block.attention.head_dim))
    default = 10_000.0 if folder.model_type == "new" else 160_000.0
    return replace(made, **_rotary_members(folder, default, "rope_theta"))


def _jina_config(folder: Folder, special: SpecialIds) -> BertConfig:
    return BertConfig(
        **encoder_members(folder, special, positions=8_194),
        **_rotary_members(folder, 20_000.0, "rope_theta"),
        segments=integer(folder, "type_vocab_size", 1),
        activation=activation(folder, "hidden_act", "gelu"),
        norm_epsilon=folder.config.get("layer_norm_eps", 1e-5),
    )


def _rotary_members(folder: Folder, default: float, base: str) -> dict[str, Any]:
    """Read the rotary positions; raises ValueError if their scaling is not linear."""
    theta, scaling = rotary(folder, default, base=base)
    if scaling is not None and scaling.kind != "linear":
        raise ValueError(f"rope_type: {scaling.kind!r} is not supported; supported: 'default', 'linear'")
    return {"theta": theta, "rotary_divisor": scaling.factor if scaling else 1.0}


def _gte_rules(config: EncoderConfig) -> Sequence[Rule]:
    layer, inner = "encoder.layer.{i}", f"{LAYERS}.feedforward"
    block = ("attention.o_proj", "attn_ln", "mlp.up_gate_proj", "mlp.down_proj", "mlp_ln")
    # Only the last of the three projections has a bias.
    zeros = [
        Rule(f"{inner}.{name}.bias", f"{layer}.mlp.down_proj.bias", change=lambda bias: bias.new_zeros(config.feedforward_dim))
        for name in ("expand", "gate")
    ]
    return (
        *embedding_rules("lm_head.decoder.weight"),
        *zeros,
        *split_rules(f"{layer}.mlp.up_gate_proj", f"{inner}.expand", f"{inner}.gate"),
        *block_rules(LAYERS, layer, ["attention.qkv_proj"], *block),
    )


NOMIC_LAYER, NOMIC_BLOCK = "encoder.layers.{i}", ("attn.out_proj", "norm1", "mlp.fc11", "mlp.fc2", "norm2")
NOMIC_BERT = TextMapping(
    classes=("NomicBert",),
    config=_nomic_config,
    encoder=(
        Rule("bert.embedding.norm", "emb_ln"),
        *embedding_rules("cls.predictions.decoder.weight"),
        Rule(f"{LAYERS}.feedforward.gate", f"{NOMIC_LAYER}.mlp.fc12"),
        *block_rules(LAYERS, NOMIC_LAYER, ["attn.Wqkv"], *NOMIC_BLOCK),
    ),
    heads=usual_heads(
        masked_rules(*(f"cls.predictions.{name}" for name in ("transform.dense", "transform.layer_norm", "decoder", "bias"))),
        span=(),
    ),
    prefixes=("nomic_bert.",),
    ignored=("*inv_freq", "*pooler.*", "cls.*", "classifier.*"),
    neutral=NOMIC_NEUTRAL,
)
GTE = TextMapping(
    classes=("Gte", "New"),
    config=_gte_config,
    encoder=_gte_rules,
    heads=usual_heads(masked_rules("lm_head.dense", "lm_head.norm", "lm_head.decoder"), span=()),
    prefixes=("gte.", "new."),
    ignored=("*inv_freq", "*position_ids", "*pooler.*", "lm_head.*", "classifier.*"),
    neutral=GTE_NEUTRAL,
)
JINA_BLOCK = ("mixer.out_proj", "norm1", "mlp.fc1", "mlp.fc2", "norm2")
JINA = replace(
    ROBERTA,
    classes=("JinaEmbeddingsV3",),
    config=_jina_config,
    encoder=(
        Rule("bert.embedding.norm", "emb_ln"),
        *embedding_rules("lm_head.decoder.weight"),
        *block_rules(LAYERS, "encoder.layers.{i}", ["mixer.Wqkv"], *JINA_BLOCK),
    ),
    prefixes=("roberta.",),
)


def _eurobert_members(folder: Folder) -> Mapping[str, Any]:
    members = {**llama_members(folder, epsilon=1e-5), "bidirectional": True}
    members["projection_bias"] = members["bias"]
    if not folder.architecture.endswith(TEXT):
        return members
    # The second name is that of its authors' files.
    pooling = next((folder.config[name] for name in ("classifier_pooling", "clf_pooling") if name in folder.config), "late")
    if pooling not in EUROBERT_POOLINGS:
        raise ValueError(f"classifier_pooling: {pooling!r} is none of {', '.join(EUROBERT_POOLINGS)}")
    return {**members, "pooling": EUROBERT_POOLINGS[pooling], "dense": True, "classifier_bias": True}


EUROBERT_POOLINGS = {"bos": "cls", "mean": "mean", "late": "late"}
EUROBERT = replace(  # a Llama that attends in both directions
    LLAMAS["llama"],
    architecture="EuroBertModel",
    members=_eurobert_members,
    heads={
        BARE: (),
        MASKED: (Rule("masked_token.projection", "lm_head"),),
        TEXT: (Rule("pooler.dense", "dense"), CLASSIFIER),
        TOKENS: (CLASSIFIER,),
    },
    neutral={**LLAMAS["llama"].neutral, **HEAD_NEUTRAL, **neutral("classifier_pooling mask_token_id clf_pooling")},
)
