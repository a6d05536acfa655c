"""BERT checkpoints (Devlin et al. 2018)."""

from collections.abc import Sequence

from triptych_export.huggingface.checkpoint.activations import activation
from triptych_export.huggingface.checkpoint.mapping import Change, Rule
from triptych_export.huggingface.checkpoint.special_ids import SpecialIds
from triptych_export.huggingface.checkpoint.text_heads import (
    ANSWER,
    BARE,
    MASKED,
    PRETRAINING,
    TEXT,
    TOKENS,
    TextMapping,
    load_text,
    refuse,
)
from triptych_export.huggingface.folder import Folder
from triptych_training.checkpoints.encoder import BertCheckpoint
from triptych_training.models.bert import BertConfig, EncoderConfig

PREDICTIONS = (
    Rule("masked_token.transform", "cls.predictions.transform.dense"),
    Rule("masked_token.norm", "cls.predictions.transform.LayerNorm"),
    Rule("masked_token.projection.weight", "cls.predictions.decoder.weight"),
    Rule("masked_token.projection.bias", "cls.predictions.decoder.bias", others=["cls.predictions.bias"]),
)
POOLER = Rule("pooler.dense", "pooler.dense")
CLASSIFIER = Rule("classifier", "classifier")
SPAN = Rule("span", "qa_outputs")


def load_bert(folder: Folder) -> BertCheckpoint:
    """Load the checkpoint; see `load_text`."""
    return load_text(folder, MAPPING)


def bert_config(folder: Folder, special: SpecialIds) -> BertConfig:
    """Read the config members that BERT and RoBERTa share."""
    refuse(folder, {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"})
    config = folder.config
    return BertConfig(
        vocabulary_size=config["vocab_size"],
        model_dim=config["hidden_size"],
        heads=config["num_attention_heads"],
        feedforward_dim=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        max_positions=config["max_position_embeddings"],
        segments=config.get("type_vocab_size", 2),
        activation=activation(folder, "hidden_act"),
        norm_epsilon=config.get("layer_norm_eps", 1e-12),
        pad_id=special.pad,
        cls_id=special.cls,
        sep_id=special.sep,
        mask_id=special.mask,
        head_activation=activation(folder, "hidden_act"),
        tied=config.get("tie_word_embeddings", True),
    )


def encoder_rules(decoder: str, positions: Change | None = None) -> Sequence[Rule]:
    """Rules of the encoder that BERT and RoBERTa share; `decoder` is the other name of a tied embedding."""
    layer = "encoder.layer.{i}"
    return (
        Rule("bert.embedding.tokens.weight", "embeddings.word_embeddings.weight", others=[decoder]),
        Rule("bert.embedding.positions.weight", "embeddings.position_embeddings.weight", change=positions),
        Rule("bert.embedding.segments.weight", "embeddings.token_type_embeddings.weight"),
        Rule("bert.embedding.norm", "embeddings.LayerNorm"),
        Rule(
            "bert.layers.{i}.attention.query_key_value",
            *(f"{layer}.attention.self.{name}" for name in ("query", "key", "value")),
        ),
        Rule("bert.layers.{i}.attention.output", f"{layer}.attention.output.dense"),
        Rule("bert.layers.{i}.attention_residual.norm", f"{layer}.attention.output.LayerNorm"),
        Rule("bert.layers.{i}.feedforward.expand", f"{layer}.intermediate.dense"),
        Rule("bert.layers.{i}.feedforward.contract", f"{layer}.output.dense"),
        Rule("bert.layers.{i}.feedforward_residual.norm", f"{layer}.output.LayerNorm"),
    )


def _rules(_config: EncoderConfig) -> Sequence[Rule]:
    return encoder_rules("cls.predictions.decoder.weight")


MAPPING = TextMapping(
    classes=("Bert",),
    config=bert_config,
    encoder=_rules,
    heads={
        BARE: (),
        MASKED: PREDICTIONS,
        PRETRAINING: (
            *PREDICTIONS,
            POOLER,
            # Theirs counts from "it follows", ours from "it does not".
            Rule("next_sentence", "cls.seq_relationship", change=lambda rows: rows.flip(0)),
        ),
        TEXT: (POOLER, CLASSIFIER),
        TOKENS: (CLASSIFIER,),
        ANSWER: (SPAN,),
    },
    prefixes=("bert.",),
    ignored=("*position_ids", "*token_type_ids", "*pooler.*", "cls.*", "classifier.*", "qa_outputs.*"),
)
