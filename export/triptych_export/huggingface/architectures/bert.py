"""BERT, RoBERTa and DistilBERT checkpoints (Devlin et al. 2018; Liu et al. 2019; Sanh et al. 2019).

RoBERTa's mapping also serves XLM-R (Conneau et al. 2019) and CamemBERT (Martin et al. 2019).
"""

from collections.abc import Sequence
from dataclasses import replace

from triptych_export.huggingface.checkpoint.config import ENCODER, activation
from triptych_export.huggingface.checkpoint.mapping import Change, Rule, block_rules
from triptych_export.huggingface.checkpoint.text import (
    ANSWER,
    BARE,
    MASKED,
    PRETRAINING,
    TEXT,
    TOKENS,
    SpecialIds,
    TextMapping,
    encoder_members,
)
from triptych_export.huggingface.folder import Folder, neutral
from triptych_training.models.bert import BertConfig, EncoderConfig

# The pooler's members are those of Google's first checkpoints.
POOLER_MEMBERS = (
    "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type"
)
BERT_NEUTRAL = {**ENCODER, **neutral(POOLER_MEMBERS, position_embedding_type=("absolute",))}
DISTILBERT_NEUTRAL = {
    **ENCODER,
    **neutral("dropout attention_dropout qa_dropout seq_classif_dropout sinusoidal_pos_embds tie_weights_"),
}
CLASSIFIER, SPAN, POOLER = Rule("classifier", "classifier"), Rule("span", "qa_outputs"), Rule("pooler.dense", "pooler.dense")
BERT_PREDICTIONS = (
    Rule("masked_token.transform", "cls.predictions.transform.dense"),
    Rule("masked_token.norm", "cls.predictions.transform.LayerNorm"),
    Rule("masked_token.projection.weight", "cls.predictions.decoder.weight"),
    Rule("masked_token.projection.bias", "cls.predictions.decoder.bias", others=["cls.predictions.bias"]),
)


def _bert_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config = folder.config
    return BertConfig(
        **encoder_members(folder, special),
        segments=config.get("type_vocab_size", 2),
        activation=activation(folder, "hidden_act"),
        norm_epsilon=config.get("layer_norm_eps", 1e-12),
        head_activation=activation(folder, "hidden_act"),
    )


def _roberta_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config = _bert_config(folder, special)
    return replace(config, max_positions=config.max_positions - _unused_positions(config), head_activation="gelu")


def _unused_positions(config: EncoderConfig) -> int:
    """Count the rows before the first position in RoBERTa's table, which counts from the padding id."""
    return config.pad_id + 1


def _distilbert_config(folder: Folder, special: SpecialIds) -> BertConfig:
    return BertConfig(
        **encoder_members(folder, special, "dim", "n_heads", "hidden_dim", "n_layers"),
        segments=0,
        activation=activation(folder, "activation"),
        head_activation=activation(folder, "activation"),
        pooler_activation="relu",
    )


def _embedding_rules(decoder: str, positions: Change | None = None) -> Sequence[Rule]:
    """Rules of the embeddings; `decoder` is the other name of a tied embedding."""
    return (
        Rule("bert.embedding.tokens.weight", "embeddings.word_embeddings.weight", others=[decoder]),
        Rule("bert.embedding.positions.weight", "embeddings.position_embeddings.weight", change=positions),
        Rule("bert.embedding.segments.weight", "embeddings.token_type_embeddings.weight"),
        Rule("bert.embedding.norm", "embeddings.LayerNorm"),
    )


BERT_LAYERS = block_rules(
    "bert.layers.{i}",
    "encoder.layer.{i}",
    [f"attention.self.{name}" for name in ("query", "key", "value")],
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
DISTILBERT_LAYERS = block_rules(
    "bert.layers.{i}",
    "transformer.layer.{i}",
    [f"attention.{name}" for name in ("q_lin", "k_lin", "v_lin")],
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
)

BERT = TextMapping(
    classes=("Bert",),
    config=_bert_config,
    encoder=lambda _config: (*_embedding_rules("cls.predictions.decoder.weight"), *BERT_LAYERS),
    heads={
        BARE: (),
        MASKED: BERT_PREDICTIONS,
        PRETRAINING: (
            *BERT_PREDICTIONS,
            POOLER,
            # Their index 0 means "follows", ours "does not follow".
            Rule("next_sentence", "cls.seq_relationship", change=lambda rows: rows.flip(0)),
        ),
        TEXT: (POOLER, CLASSIFIER),
        TOKENS: (CLASSIFIER,),
        ANSWER: (SPAN,),
    },
    prefixes=("bert.",),
    ignored=("*position_ids", "*token_type_ids", "*pooler.*", "cls.*", "classifier.*", "qa_outputs.*"),
)
ROBERTA = TextMapping(
    classes=("Roberta", "XLMRoberta", "Camembert"),
    config=_roberta_config,
    encoder=lambda config: (
        *_embedding_rules("lm_head.decoder.weight", positions=lambda rows: rows[_unused_positions(config) :]),
        *BERT_LAYERS,
    ),
    heads={
        BARE: (),
        MASKED: (
            Rule("masked_token.transform", "lm_head.dense"),
            Rule("masked_token.norm", "lm_head.layer_norm"),
            Rule("masked_token.projection.weight", "lm_head.decoder.weight"),
            Rule("masked_token.projection.bias", "lm_head.decoder.bias", others=["lm_head.bias"]),
        ),
        TEXT: (Rule("pooler.dense", "classifier.dense"), Rule("classifier", "classifier.out_proj")),
        TOKENS: (CLASSIFIER,),
        ANSWER: (SPAN,),
    },
    prefixes=("roberta.",),
    ignored=("*position_ids", "*token_type_ids", "*pooler.*", "lm_head.*", "classifier.*", "qa_outputs.*"),
)
DISTILBERT = TextMapping(
    classes=("DistilBert",),
    config=_distilbert_config,
    encoder=lambda _config: (*_embedding_rules("vocab_projector.weight"), *DISTILBERT_LAYERS),
    heads={
        BARE: (),
        MASKED: (
            Rule("masked_token.transform", "vocab_transform"),
            Rule("masked_token.norm", "vocab_layer_norm"),
            Rule("masked_token.projection", "vocab_projector"),
        ),
        TEXT: (Rule("pooler.dense", "pre_classifier"), CLASSIFIER),
        TOKENS: (CLASSIFIER,),
        ANSWER: (SPAN,),
    },
    prefixes=("distilbert.",),
    ignored=("*position_ids", "vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"),
)
