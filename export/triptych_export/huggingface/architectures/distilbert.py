"""DistilBERT checkpoints (Sanh et al. 2019): BERT without segments, whose classifier has another dense layer."""

from collections.abc import Sequence

from triptych_export.huggingface.architectures.bert import CLASSIFIER, SPAN
from triptych_export.huggingface.checkpoint.activations import activation
from triptych_export.huggingface.checkpoint.mapping import Rule
from triptych_export.huggingface.checkpoint.special_ids import SpecialIds
from triptych_export.huggingface.checkpoint.text_heads import ANSWER, BARE, MASKED, TEXT, TOKENS, TextMapping, load_text
from triptych_export.huggingface.folder import Folder
from triptych_training.checkpoints.encoder import BertCheckpoint
from triptych_training.models.bert import BertConfig, EncoderConfig


def load_distilbert(folder: Folder) -> BertCheckpoint:
    """Load the checkpoint; see `load_text`."""
    return load_text(folder, MAPPING)


def _config(folder: Folder, special: SpecialIds) -> BertConfig:
    config = folder.config
    return BertConfig(
        vocabulary_size=config["vocab_size"],
        model_dim=config["dim"],
        heads=config["n_heads"],
        feedforward_dim=config["hidden_dim"],
        layers=config["n_layers"],
        max_positions=config["max_position_embeddings"],
        segments=0,
        activation=activation(folder, "activation"),
        pad_id=special.pad,
        cls_id=special.cls,
        sep_id=special.sep,
        mask_id=special.mask,
        head_activation=activation(folder, "activation"),
        pooler_activation="relu",
        tied=config.get("tie_word_embeddings", True),
    )


def _rules(_config: EncoderConfig) -> Sequence[Rule]:
    layer = "transformer.layer.{i}"
    return (
        Rule("bert.embedding.tokens.weight", "embeddings.word_embeddings.weight", others=["vocab_projector.weight"]),
        Rule("bert.embedding.positions.weight", "embeddings.position_embeddings.weight"),
        Rule("bert.embedding.norm", "embeddings.LayerNorm"),
        Rule(
            "bert.layers.{i}.attention.query_key_value",
            *(f"{layer}.attention.{name}" for name in ("q_lin", "k_lin", "v_lin")),
        ),
        Rule("bert.layers.{i}.attention.output", f"{layer}.attention.out_lin"),
        Rule("bert.layers.{i}.attention_residual.norm", f"{layer}.sa_layer_norm"),
        Rule("bert.layers.{i}.feedforward.expand", f"{layer}.ffn.lin1"),
        Rule("bert.layers.{i}.feedforward.contract", f"{layer}.ffn.lin2"),
        Rule("bert.layers.{i}.feedforward_residual.norm", f"{layer}.output_layer_norm"),
    )


MAPPING = TextMapping(
    classes=("DistilBert",),
    config=_config,
    encoder=_rules,
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
