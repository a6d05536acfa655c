"""ModernBERT checkpoints (Warner et al. 2024)."""

from collections.abc import Sequence
from typing import Any

from triptych_export.huggingface.architectures.bert import CLASSIFIER
from triptych_export.huggingface.checkpoint.config import ENCODER, activation
from triptych_export.huggingface.checkpoint.mapping import Rule
from triptych_export.huggingface.checkpoint.text import (
    ANSWER,
    BARE,
    MASKED,
    TEXT,
    TOKENS,
    SpecialIds,
    TextMapping,
    encoder_members,
)
from triptych_export.huggingface.folder import Folder, neutral
from triptych_training.models.bert import EncoderConfig
from triptych_training.models.modernbert import ModernBertConfig

GLOBAL, LOCAL = "full_attention", "sliding_attention"
THETAS = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
# The first checkpoints name other families' members too; newer ones replace the bases and the period by an object and a list.
NEUTRAL = {
    **ENCODER,
    **neutral(
        """
        attention_dropout embedding_dropout mlp_dropout initializer_cutoff_factor deterministic_flash_attn reference_compile
        repad_logits_with_grad sparse_prediction sparse_pred_ignore_index layer_norm_eps global_attn_every_n_layers
        global_rope_theta local_rope_theta
        """,
        position_embedding_type=("absolute",),
    ),
}


def _config(folder: Folder, special: SpecialIds) -> ModernBertConfig:
    config = folder.config
    kinds = config.get("layer_types") or _alternate(config["num_hidden_layers"], config.get("global_attn_every_n_layers", 3))
    if len(kinds) != config["num_hidden_layers"] or set(kinds) - {GLOBAL, LOCAL}:
        raise ValueError(f"layer_types: {kinds} is not {GLOBAL} or {LOCAL} for each of {config['num_hidden_layers']} layers")
    return ModernBertConfig(
        **encoder_members(folder, special),
        global_layers=tuple(index for index, kind in enumerate(kinds) if kind == GLOBAL),
        window=config.get("local_attention", 128) // 2,
        global_theta=_theta(folder, GLOBAL),
        local_theta=_theta(folder, LOCAL),
        activation=activation(folder, "hidden_activation"),
        attention_bias=config.get("attention_bias", False),
        feedforward_bias=config.get("mlp_bias", False),
        norm_bias=config.get("norm_bias", False),
        norm_epsilon=config.get("norm_eps", 1e-5),
        head_activation=activation(folder, "classifier_activation"),
        head_bias=config.get("classifier_bias", False),
        projection_bias=config.get("decoder_bias", True),
        pooling=config.get("classifier_pooling", "cls"),
    )


def _alternate(layers: int, every: int) -> list[str]:
    return [LOCAL if index % every else GLOBAL for index in range(layers)]


def _theta(folder: Folder, kind: str) -> float:
    """Read the rotary base: newer files have an object per kind of layer, older ones a member."""
    member, default = THETAS[kind]
    parameters: dict[str, Any] = (folder.config.get("rope_parameters") or {}).get(kind) or {}
    if (scaling := parameters.get("rope_type", "default")) != "default":
        raise folder.config_error(f"rope_type: {scaling!r} is not supported; supported: 'default'")
    named = parameters.get("rope_theta", folder.config.get(member))
    return float(default if named is None else named)


def _rules(_config: EncoderConfig) -> Sequence[Rule]:
    layer = "layers.{i}"
    return (
        Rule("bert.embedding.tokens.weight", "embeddings.tok_embeddings.weight", others=["decoder.weight"]),
        Rule("bert.embedding.norm", "embeddings.norm"),
        Rule("bert.layers.{i}.attention.query_key_value", f"{layer}.attn.Wqkv"),
        Rule("bert.layers.{i}.attention.output", f"{layer}.attn.Wo"),
        Rule("bert.layers.{i}.attention_residual.norm", f"{layer}.attn_norm"),
        Rule("bert.layers.{i}.feedforward.gate", f"{layer}.mlp.Wi", change=lambda rows: rows.chunk(2)[0]),
        Rule("bert.layers.{i}.feedforward.expand", f"{layer}.mlp.Wi", change=lambda rows: rows.chunk(2)[1]),
        Rule("bert.layers.{i}.feedforward.contract", f"{layer}.mlp.Wo"),
        Rule("bert.layers.{i}.feedforward_residual.norm", f"{layer}.mlp_norm"),
        Rule("bert.norm", "final_norm"),
    )


def _dense(ours: str) -> tuple[Rule, Rule]:
    return Rule(f"{ours}.dense", "head.dense"), Rule(f"{ours}.norm", "head.norm")


MODERNBERT = TextMapping(
    classes=("ModernBert",),
    config=_config,
    encoder=_rules,
    heads={
        BARE: (),
        MASKED: (
            Rule("masked_token.transform", "head.dense"),
            Rule("masked_token.norm", "head.norm"),
            Rule("masked_token.projection", "decoder"),
        ),
        TEXT: (*_dense("pooler"), CLASSIFIER),
        TOKENS: (*_dense("head"), CLASSIFIER),
        ANSWER: (*_dense("head"), Rule("span", "classifier")),
    },
    prefixes=("model.",),
    ignored=("*position_ids", "head.*", "decoder.*", "classifier.*"),
)
