"""Encoders whose weights become those of a BERT: Megatron-BERT, SqueezeBERT, RoFormer, BigBird and I-BERT checkpoints.

Shoeybi et al. 2019; Iandola et al. 2020; Su et al. 2021; Zaheer et al. 2020; Kim et al. 2021.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.bert import (
    BERT,
    BERT_INPUTS,
    BERT_NEUTRAL,
    BERT_PREDICTIONS,
    DENSE_CLASSIFIER,
    LAYERS,
    NEXT_SENTENCE,
    QUERY_KEY_VALUE,
    ROBERTA,
    bert_config,
    embedding_rules,
    usual_heads,
)
from triptych_export.huggingface.checkpoint.config import TEXT, activation, integer
from triptych_export.huggingface.checkpoint.mapping import Rule, block_rules
from triptych_export.huggingface.checkpoint.text import SpecialIds, TextMapping
from triptych_export.huggingface.folder import Folder, neutral
from triptych_export.huggingface.tokenizers.tokenizer import named_classes
from triptych_training.models.bert import BertConfig, EncoderConfig

# Shapes of weights say how many groups there are.
SQUEEZE_GROUPS = "q_groups k_groups v_groups post_attention_groups intermediate_groups output_groups"
SQUEEZE_EPSILON = 1e-12  # of the layers' norms, whatever config.json says
SPARSE, FULL = "block_sparse", "original_full"


def _megatron_config(folder: Folder, special: SpecialIds) -> BertConfig:
    return replace(bert_config(folder, special), norm="pre", embedding_norm=False)


def _megatron_rules(config: EncoderConfig) -> Sequence[Rule]:
    block = ("attention.output.dense", "attention.ln", "intermediate.dense", "output.dense", "ln")
    own = block_rules(LAYERS, "encoder.layer.{i}", BERT_INPUTS, *block)
    return Rule("bert.norm", "encoder.ln"), *own, *BERT.encoder_rules(config)


MEGATRON = replace(BERT, classes=("MegatronBert",), config=_megatron_config, encoder=_megatron_rules)


def _squeeze_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config = bert_config(folder, special)
    if config.norm_epsilon != SQUEEZE_EPSILON:
        raise ValueError(f"layer_norm_eps: {config.norm_epsilon} is not supported; supported: {SQUEEZE_EPSILON}")
    return config


def _squeeze_rules(config: EncoderConfig) -> Sequence[Rule]:
    layer, narrow = "encoder.layers.{i}", partial(_whole, config.model_dim)
    block = ("post_attention.conv1d", "post_attention.layernorm", "intermediate.conv1d", "output.conv1d", "output.layernorm")
    changes = {"attention.output": narrow, "feedforward.expand": narrow}
    changes["feedforward.contract"] = partial(_whole, config.feedforward_dim)
    rules = block_rules(LAYERS, layer, (), *block)
    return (
        *embedding_rules("cls.predictions.decoder.weight"),
        Rule(
            f"{LAYERS}.attention.query_key_value",
            *(f"{layer}.attention.{name}" for name in QUERY_KEY_VALUE),
            join=lambda parts: torch.cat([narrow(part) for part in parts]),
        ),
        *(rule.changed(changes.get(rule.ours.removeprefix(f"{LAYERS}."))) for rule in rules),
    )


def _whole(inputs: int, weight: Tensor) -> Tensor:
    """Make a matrix of the kernel `[outputs, inputs of a group, 1]` of a convolution in groups; biases stay."""
    if weight.dim() == 1:
        return weight
    whole: Tensor = torch.block_diag(*weight.squeeze(2).chunk(inputs // weight.shape[1]))  # type: ignore[no-untyped-call]
    return whole


SQUEEZE = replace(
    BERT,
    classes=("SqueezeBert",),
    config=_squeeze_config,
    encoder=_squeeze_rules,
    prefixes=("transformer.",),
    neutral={**BERT_NEUTRAL, **neutral(f"embedding_size {SQUEEZE_GROUPS}")},
)


def _roformer_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config = bert_config(folder, special)
    width = integer(folder, "embedding_size", config.model_dim)
    return replace(config, theta=10_000.0, embedding_dim=width, pooler_activation=config.activation)


def _roformer_rules(config: EncoderConfig) -> Sequence[Rule]:
    inputs = [f"encoder.layer.{{i}}.{name}" for name in BERT_INPUTS]
    change = partial(_neighbours_apart, config.heads)
    return (
        Rule("bert.embedding.projection", "embeddings_project"),
        Rule(f"{LAYERS}.attention.query_key_value", *inputs, change=change),
        *BERT.encoder_rules(config),
    )


def _neighbours_apart(heads: int, rows: Tensor) -> Tensor:
    """Move dimensions that are rotated together from beside each other to half a head apart, as ours are."""
    parts = torch.unflatten(rows, 0, (3, heads, -1, 2))
    return torch.cat((parts[:2].transpose(2, 3).flatten(0, 3), parts[2].flatten(0, 2)))


def _check_tokenizer(folder: Folder, mapping: TextMapping) -> TextMapping:
    """Refuse a RoFormer with RoFormer's own tokenizer."""
    if (named := [*named_classes(folder), "RoFormerTokenizer"][0]).startswith("RoFormer"):
        fault = f"tokenizer_class: {named!r} is not supported: it cuts texts into words with a dictionary (jieba)"
        raise SourceError(f"{folder.path}: {fault}, which is not in tokenizer.json; supported: BertTokenizer")
    return mapping


ROFORMER = TextMapping(
    classes=("RoFormer",),
    config=_roformer_config,
    encoder=_roformer_rules,
    heads=usual_heads(BERT_PREDICTIONS, DENSE_CLASSIFIER),
    prefixes=("roformer.",),
    ignored=("*embed_positions.weight", *BERT.ignored),
    neutral={**BERT_NEUTRAL, **neutral(rotary_value=(False,))},
    adapt=_check_tokenizer,
)


def _big_bird_config(folder: Folder, special: SpecialIds) -> BertConfig:
    """Read the shape; texts are only as long as those for which transformers compares all tokens with each other."""
    config, function = bert_config(folder, special), activation(folder, "hidden_act", "gelu_new")
    kind = folder.config.get("attention_type", SPARSE)
    if kind not in (SPARSE, FULL):
        raise ValueError(f"attention_type: {kind!r} is not supported; supported: {SPARSE!r}, {FULL!r}")
    longest = integer(folder, "block_size", 64) * (5 + 2 * integer(folder, "num_random_blocks", 3))
    return replace(
        config,
        activation=function,
        head_activation=function,
        pooler_activation=function if folder.architecture.endswith(TEXT) else "tanh",
        max_positions=config.max_positions if kind == FULL else min(longest, config.max_positions),
    )


def _big_bird_rules(config: EncoderConfig) -> Sequence[Rule]:
    own = embedding_rules("cls.predictions.decoder.weight", positions=lambda rows: rows[: config.max_positions])
    return *own, *BERT.encoder_rules(config)


BIG_BIRD = replace(
    BERT,
    classes=("BigBird",),
    config=_big_bird_config,
    encoder=_big_bird_rules,
    heads=usual_heads(BERT_PREDICTIONS, DENSE_CLASSIFIER, (Rule("pooler.dense", "pooler"), *NEXT_SENTENCE), span=()),
    neutral={**BERT_NEUTRAL, **neutral(rescale_embeddings=(False,), use_bias=(True,))},
)
IBERT = replace(
    ROBERTA,
    classes=("IBert",),
    prefixes=("ibert.",),
    ignored=(*ROBERTA.ignored, "*_integer", "*_scaling_factor", "*.x_min", "*.x_max", "*.shift"),
    neutral={**BERT_NEUTRAL, **neutral("force_dequant", quant_mode=(False,))},
)
