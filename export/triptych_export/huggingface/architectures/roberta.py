"""RoBERTa checkpoints (Liu et al. 2019), with XLM-R (Conneau et al. 2019) and CamemBERT (Martin et al. 2019)."""

from collections.abc import Sequence
from dataclasses import replace

from triptych_export.huggingface.architectures.bert import CLASSIFIER, SPAN, bert_config, encoder_rules
from triptych_export.huggingface.checkpoint.mapping import Rule
from triptych_export.huggingface.checkpoint.special_ids import SpecialIds
from triptych_export.huggingface.checkpoint.text_heads import ANSWER, BARE, MASKED, TEXT, TOKENS, TextMapping, load_text
from triptych_export.huggingface.folder import Folder
from triptych_training.checkpoints.encoder import BertCheckpoint
from triptych_training.models.bert import BertConfig, EncoderConfig


def load_roberta(folder: Folder) -> BertCheckpoint:
    """Load the checkpoint; see `load_text`."""
    return load_text(folder, MAPPING)


def _config(folder: Folder, special: SpecialIds) -> BertConfig:
    """Read the config: positions are counted from the padding id, and the rows before it are unused."""
    config = bert_config(folder, special)
    return replace(config, max_positions=config.max_positions - _unused(config), head_activation="gelu")


def _unused(config: EncoderConfig) -> int:
    return config.pad_id + 1


def _rules(config: EncoderConfig) -> Sequence[Rule]:
    return encoder_rules("lm_head.decoder.weight", positions=lambda rows: rows[_unused(config) :])


MAPPING = TextMapping(
    classes=("Roberta", "XLMRoberta", "Camembert"),
    config=_config,
    encoder=_rules,
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
