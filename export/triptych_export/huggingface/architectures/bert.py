"""BERT, ERNIE, RoBERTa, MPNet, DistilBERT, ELECTRA, ALBERT, ModernBERT and DeBERTa (v2, v3) checkpoints.

Devlin et al. 2018; Liu et al. 2019; Song et al. 2020; Sanh et al. 2019; Clark et al. 2020; Lan et al. 2020; Warner et al. 2024;
He et al. 2021.
RoBERTa's mapping also serves XLM-R (Conneau et al. 2019), CamemBERT (Martin et al. 2019) and data2vec's model of texts (Baevski
et al. 2022), and with changes RoBERTa-PreLayerNorm (Ott et al. 2019) and XLM-R XL (Goyal et al. 2021).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from triptych_export.huggingface.architectures.decoder_config import rope_parameters
from triptych_export.huggingface.checkpoint.config import (
    ANSWER,
    BARE,
    ENCODER,
    MASKED,
    PRETRAINING,
    TEXT,
    TOKENS,
    activation,
    flag,
    integer,
)
from triptych_export.huggingface.checkpoint.mapping import Change, Rule, block_rules, split_rules
from triptych_export.huggingface.checkpoint.text import SpecialIds, TextMapping, encoder_members
from triptych_export.huggingface.folder import Folder, neutral
from triptych_training.models.bert import BertConfig, EncoderConfig
from triptych_training.models.deberta import DebertaConfig
from triptych_training.models.modernbert import ModernBertConfig

BERT_NEUTRAL = {
    **ENCODER,
    **neutral(  # of Google's first checkpoints
        "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type",
        position_embedding_type=("absolute",),
    ),
}
# Files of the first ALBERTs name options of its authors' code.
ALBERT_NEUTRAL = {
    **ENCODER,
    **neutral(
        "down_scale_factor gap_size layers_to_keep net_structure_type num_memory_blocks",
        num_hidden_groups=(1,),
        inner_group_num=(1,),
        position_embedding_type=("absolute",),
    ),
}
CLASSIFIER, SPAN, POOLER = Rule("classifier", "classifier"), Rule("span", "qa_outputs"), Rule("pooler.dense", "pooler.dense")
DENSE_CLASSIFIER = (Rule("pooler.dense", "classifier.dense"), Rule("classifier", "classifier.out_proj"))


def usual_heads(
    masked: Sequence[Rule],
    text: Sequence[Rule] = (POOLER, CLASSIFIER),
    pretraining: Sequence[Rule] = (),
    span: Sequence[Rule] = (SPAN,),
) -> Mapping[str, Sequence[Rule]]:
    """Rules of the heads of most families: for masked tokens, also with next sentences, for labels of texts, and for answers.

    Without rules, a family lacks the head.
    """
    rules = {MASKED: masked, PRETRAINING: pretraining, TEXT: text, TOKENS: (CLASSIFIER,), ANSWER: span}
    return {BARE: (), **{head: own for head, own in rules.items() if own}}


def masked_rules(dense: str, norm: str, projection: str, bias: str = "") -> tuple[Rule, ...]:
    """Rules of the head for masked tokens; `bias` is another name of its projection's bias."""
    return (
        Rule("masked_token.transform", dense),
        Rule("masked_token.norm", norm),
        Rule("masked_token.projection.weight", f"{projection}.weight"),
        Rule("masked_token.projection.bias", f"{projection}.bias", others=[bias] if bias else ()),
    )


BERT_PREDICTIONS = masked_rules(
    *("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    *("cls.predictions.decoder", "cls.predictions.bias"),
)
# Their index 0 means "follows", ours "does not follow".
NEXT_SENTENCE = (*BERT_PREDICTIONS, Rule("next_sentence", "cls.seq_relationship", change=lambda rows: rows.flip(0)))


def bert_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config = folder.config
    return BertConfig(
        **encoder_members(folder, special),
        segments=config.get("type_vocab_size", 2),
        activation=activation(folder, "hidden_act"),
        norm_epsilon=config.get("layer_norm_eps", 1e-12),
        head_activation=activation(folder, "hidden_act"),
    )


def _roberta_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config = bert_config(folder, special)
    return replace(config, max_positions=config.max_positions - _unused_positions(config), head_activation="gelu")


def _unused_positions(config: EncoderConfig) -> int:
    """Count the rows before the first position in RoBERTa's table, which counts from the padding id."""
    return config.pad_id + 1


def _mpnet_config(folder: Folder, special: SpecialIds) -> BertConfig:
    if special.pad != 1:
        raise folder.config_error(f"pad_token_id: {special.pad} is not supported; supported: 1, from which positions count")
    return replace(_roberta_config(folder, special), segments=0, relative_buckets=32)


def _electra_config(folder: Folder, special: SpecialIds) -> BertConfig:
    config = replace(bert_config(folder, special), head_activation="gelu", pooler_activation="gelu")
    return replace(config, embedding_dim=folder.config["embedding_size"])


def _albert_config(folder: Folder, special: SpecialIds) -> BertConfig:
    function, width = activation(folder, "hidden_act", "gelu_new"), integer(folder, "embedding_size", 128)
    return replace(bert_config(folder, special), activation=function, head_activation=function, embedding_dim=width)


def _distilbert_config(folder: Folder, special: SpecialIds) -> BertConfig:
    return BertConfig(
        **encoder_members(folder, special, "dim", "n_heads", "hidden_dim", "n_layers"),
        segments=0,
        activation=activation(folder, "activation"),
        head_activation=activation(folder, "activation"),
        pooler_activation="relu",
    )


def embedding_rules(decoder: str, positions: Change | None = None) -> Sequence[Rule]:
    """Rules of the embeddings; `decoder` is the other name of a tied embedding."""
    return (
        Rule("bert.embedding.tokens.weight", "embeddings.word_embeddings.weight", others=[decoder]),
        Rule("bert.embedding.positions.weight", "embeddings.position_embeddings.weight", change=positions),
        Rule("bert.embedding.segments.weight", "embeddings.token_type_embeddings.weight"),
        Rule("bert.embedding.norm", "embeddings.LayerNorm"),
    )


LAYERS = "bert.layers.{i}"
BERT_BLOCK = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")
QUERY_KEY_VALUE = ("query", "key", "value")
BERT_INPUTS = [f"attention.self.{name}" for name in QUERY_KEY_VALUE]
BERT_LAYERS = block_rules(LAYERS, "encoder.layer.{i}", BERT_INPUTS, *BERT_BLOCK)
MPNET_BLOCK = ("attention.attn.o", "attention.LayerNorm", *BERT_BLOCK[2:])
MPNET_LAYERS = block_rules(LAYERS, "encoder.layer.{i}", [f"attention.attn.{name}" for name in "qkv"], *MPNET_BLOCK)
DISTILBERT_BLOCK = ("attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm")
DISTILBERT_INPUTS = [f"attention.{name}_lin" for name in "qkv"]
DISTILBERT_LAYERS = block_rules(LAYERS, "transformer.layer.{i}", DISTILBERT_INPUTS, *DISTILBERT_BLOCK)

BERT = TextMapping(
    classes=("Bert",),
    config=bert_config,
    encoder=(*embedding_rules("cls.predictions.decoder.weight"), *BERT_LAYERS),
    heads=usual_heads(BERT_PREDICTIONS, pretraining=(*NEXT_SENTENCE, POOLER)),
    prefixes=("bert.",),
    ignored=("*position_ids", "*token_type_ids", "*pooler.*", "cls.*", "classifier.*", "qa_outputs.*"),
    neutral=BERT_NEUTRAL,
)


def _with_tasks(folder: Folder, mapping: TextMapping) -> TextMapping:
    """Add the vector of a task to those of positions in an ERNIE that has tasks: without a number, all are of the first one."""
    if not flag(folder, "use_task_id", False):
        return mapping
    tasks, tables = integer(folder, "task_type_vocab_size", 3), ("position_embeddings", "task_type_embeddings")
    places, kinds = (f"embeddings.{name}.weight" for name in tables)
    rule = Rule("bert.embedding.positions.weight", places, kinds, change=lambda rows: rows[:-tasks] + rows[-tasks])
    return replace(mapping, encoder=lambda config: (rule, *mapping.encoder_rules(config)))


ERNIE = replace(  # Sun et al. 2019, 2021
    BERT,
    classes=("Ernie",),
    prefixes=("ernie.",),
    neutral={**BERT_NEUTRAL, **neutral("task_type_vocab_size enable_recompute")},
    adapt=_with_tasks,
)
ROBERTA = TextMapping(
    classes=("Roberta", "XLMRoberta", "Camembert", "Data2VecText"),
    config=_roberta_config,
    encoder=lambda config: (
        *embedding_rules("lm_head.decoder.weight", positions=lambda rows: rows[_unused_positions(config) :]),
        *BERT_LAYERS,
    ),
    heads=usual_heads(masked_rules("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"), DENSE_CLASSIFIER),
    prefixes=("roberta.", "data2vec_text."),
    ignored=("*position_ids", "*token_type_ids", "*pooler.*", "lm_head.*", "classifier.*", "qa_outputs.*"),
    neutral=BERT_NEUTRAL,
)


def _before_roberta(*own: Rule) -> Callable[[EncoderConfig], Sequence[Rule]]:
    """Make the rules of an encoder that differs from RoBERTa's in its `own` ones."""
    return lambda config: (*own, *ROBERTA.encoder_rules(config))


PRE_BLOCK = ("attention.output.dense", "attention.LayerNorm", "intermediate.dense", "output.dense", "intermediate.LayerNorm")
ROBERTA_PRELAYERNORM = replace(
    ROBERTA,
    classes=("RobertaPreLayerNorm",),
    config=lambda folder, special: replace(_roberta_config(folder, special), norm="pre"),
    encoder=_before_roberta(Rule("bert.norm", "LayerNorm"), *block_rules(LAYERS, "encoder.layer.{i}", BERT_INPUTS, *PRE_BLOCK)),
    prefixes=("roberta_prelayernorm.",),
)
XL_BLOCK = ("attention.output.dense", "attention.self_attn_layer_norm", "intermediate.dense", "output.dense", "LayerNorm")
XLM_ROBERTA_XL = replace(
    ROBERTA,
    classes=("XLMRobertaXL",),
    config=lambda folder, special: replace(_roberta_config(folder, special), norm="pre", embedding_norm=False),
    encoder=_before_roberta(
        Rule("bert.norm", "encoder.LayerNorm"), *block_rules(LAYERS, "encoder.layer.{i}", BERT_INPUTS, *XL_BLOCK)
    ),
)
MPNET = replace(
    ROBERTA,
    classes=("MPNet",),
    config=_mpnet_config,
    encoder=_before_roberta(Rule("bert.relative.table", "encoder.relative_attention_bias"), *MPNET_LAYERS),
    prefixes=("mpnet.",),
    # Transformers computes 32 buckets, whatever this says.
    neutral={**BERT_NEUTRAL, **neutral(relative_attention_num_buckets=(32,))},
)
ELECTRA = TextMapping(
    classes=("Electra",),
    config=_electra_config,
    encoder=(
        *embedding_rules("generator_lm_head.weight"),
        Rule("bert.embedding.projection", "embeddings_project"),
        *BERT_LAYERS,
    ),
    heads={
        **ROBERTA.heads,
        MASKED: masked_rules("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head"),
    },
    prefixes=("electra.",),
    ignored=("*position_ids", "*token_type_ids", "discriminator_*", "generator_*", "classifier.*", "qa_outputs.*"),
    neutral={**BERT_NEUTRAL, **neutral("summary_activation summary_type summary_use_proj")},
)
ALBERT_LAYER = "encoder.albert_layer_groups.0.albert_layers.0"  # whose weights all layers have
ALBERT_BLOCK = ("attention.dense", "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm")
ALBERT = TextMapping(
    classes=("Albert",),
    config=_albert_config,
    encoder=(
        *embedding_rules("predictions.decoder.weight"),
        Rule("bert.embedding.projection", "encoder.embedding_hidden_mapping_in"),
        *block_rules(LAYERS, ALBERT_LAYER, [f"attention.{part}" for part in QUERY_KEY_VALUE], *ALBERT_BLOCK),
    ),
    heads=usual_heads(
        masked_rules("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"),
        (Rule("pooler.dense", "pooler"), CLASSIFIER),
    ),
    prefixes=("albert.",),
    ignored=("*position_ids", "*token_type_ids", "*pooler.*", "predictions.*", "sop_*", "classifier.*", "qa_outputs.*"),
    neutral=ALBERT_NEUTRAL,
)
DISTILBERT = TextMapping(
    classes=("DistilBert",),
    config=_distilbert_config,
    encoder=(*embedding_rules("vocab_projector.weight"), *DISTILBERT_LAYERS),
    heads=usual_heads(
        masked_rules("vocab_transform", "vocab_layer_norm", "vocab_projector"),
        (Rule("pooler.dense", "pre_classifier"), CLASSIFIER),
    ),
    prefixes=("distilbert.",),
    ignored=("*position_ids", "vocab_*", "pre_classifier.*", "classifier.*", "qa_outputs.*"),
    neutral={**ENCODER, **neutral("sinusoidal_pos_embds tie_weights_")},
)

GLOBAL, LOCAL = "full_attention", "sliding_attention"
THETAS = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
# The first checkpoints name other families' members too; newer ones replace the bases and the period by an object and a list.
MODERNBERT_NEUTRAL = {
    **ENCODER,
    **neutral(
        """
        deterministic_flash_attn reference_compile
        repad_logits_with_grad sparse_prediction sparse_pred_ignore_index layer_norm_eps global_attn_every_n_layers
        global_rope_theta local_rope_theta
        """,
        position_embedding_type=("absolute",),
    ),
}


def _modernbert_config(folder: Folder, special: SpecialIds) -> ModernBertConfig:
    config = folder.config
    every = config.get("global_attn_every_n_layers", 3)
    usual = [LOCAL if index % every else GLOBAL for index in range(config["num_hidden_layers"])]
    kinds = config.get("layer_types") or usual
    if len(kinds) != config["num_hidden_layers"] or set(kinds) - {GLOBAL, LOCAL}:
        raise ValueError(f"layer_types: {kinds} is not {GLOBAL} or {LOCAL} for each of {config['num_hidden_layers']} layers")
    return ModernBertConfig(
        **encoder_members(folder, special),
        global_layers=tuple(index for index, kind in enumerate(kinds) if kind == GLOBAL),
        window=config.get("local_attention", 128) // 2,
        global_theta=_modernbert_theta(folder, GLOBAL),
        local_theta=_modernbert_theta(folder, LOCAL),
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


def _modernbert_theta(folder: Folder, kind: str) -> float:
    """Read the rotary base: newer files have an object per kind of layer, older ones a member."""
    member, default = THETAS[kind]
    parameters = rope_parameters(folder, kind)
    if (scaling := parameters.get("rope_type", "default")) != "default":
        raise folder.config_error(f"rope_type: {scaling!r} is not supported; supported: 'default'")
    named = parameters.get("rope_theta", folder.config.get(member))
    return float(default if named is None else named)


MODERNBERT_RULES = (
    Rule("bert.embedding.tokens.weight", "embeddings.tok_embeddings.weight", others=["decoder.weight"]),
    Rule("bert.embedding.norm", "embeddings.norm"),
    *split_rules("layers.{i}.mlp.Wi", f"{LAYERS}.feedforward.gate", f"{LAYERS}.feedforward.expand"),
    *block_rules(LAYERS, "layers.{i}", ["attn.Wqkv"], "attn.Wo", "attn_norm", "mlp.Wi", "mlp.Wo", "mlp_norm"),
    Rule("bert.norm", "final_norm"),
)


def _modernbert_dense(ours: str) -> tuple[Rule, Rule]:
    return Rule(f"{ours}.dense", "head.dense"), Rule(f"{ours}.norm", "head.norm")


MODERNBERT = TextMapping(
    classes=("ModernBert",),
    config=_modernbert_config,
    encoder=MODERNBERT_RULES,
    heads={
        BARE: (),
        MASKED: masked_rules("head.dense", "head.norm", "decoder"),
        TEXT: (*_modernbert_dense("pooler"), CLASSIFIER),
        TOKENS: (*_modernbert_dense("head"), CLASSIFIER),
        ANSWER: (*_modernbert_dense("head"), Rule("span", "classifier")),
    },
    prefixes=("model.",),
    ignored=("*position_ids", "head.*", "decoder.*", "classifier.*"),
    neutral=MODERNBERT_NEUTRAL,
)

# Members of config.json that must be there, or not: their default, and the supported values.
DEBERTA_NEEDS: Mapping[str, tuple[object, Sequence[object]]] = {
    "relative_attention": (False, [True]),
    "pos_att_type": (None, ["p2c|c2p", "c2p|p2c", ["p2c", "c2p"], ["c2p", "p2c"]]),
    "share_att_key": (False, [True]),
    "norm_rel_ebd": ("none", ["layer_norm"]),
    "position_biased_input": (True, [False]),
}


def _deberta_config(folder: Folder, special: SpecialIds) -> DebertaConfig:
    config = folder.config
    for name, (default, supported) in DEBERTA_NEEDS.items():
        if (value := config.get(name, default)) not in supported:
            raise folder.config_error(f"{name}: {value!r} is not supported; supported: {' or '.join(map(repr, supported))}")
    members = encoder_members(folder, special)
    distance = config.get("max_relative_positions", -1)
    return DebertaConfig(
        **{**members, "tied": members["tied"] or not config.get("legacy", True)},
        position_buckets=config.get("position_buckets", -1),
        max_distance=distance if distance > 0 else members["max_positions"],
        embedding_dim=config.get("embedding_size", 0),
        activation=activation(folder, "hidden_act"),
        norm_epsilon=config.get("layer_norm_eps", 1e-7),
        head_activation=activation(folder, "hidden_act"),
        pooler_activation=activation(folder, "pooler_hidden_act"),
    )


def _with_predictions(folder: Folder, mapping: TextMapping) -> TextMapping:
    """Choose the weights of the masked-token head, of which `legacy` of config.json tells the kind."""
    newer = masked_rules(*(f"lm_predictions.lm_head{name}" for name in (".dense", ".LayerNorm", "")))
    return mapping if folder.config.get("legacy", True) else replace(mapping, heads={**mapping.heads, MASKED: newer})


DEBERTA = TextMapping(
    classes=("DebertaV2",),
    config=_deberta_config,
    encoder=(
        Rule("bert.embedding.tokens.weight", "embeddings.word_embeddings.weight", others=["cls.predictions.decoder.weight"]),
        Rule("bert.embedding.projection", "embeddings.embed_proj"),
        Rule("bert.embedding.norm", "embeddings.LayerNorm"),
        Rule("bert.distances", "encoder.rel_embeddings"),
        Rule("bert.distance_norm", "encoder.LayerNorm"),
        *block_rules(LAYERS, "encoder.layer.{i}", [f"{name}_proj" for name in BERT_INPUTS], *BERT_BLOCK),
    ),
    heads=usual_heads(BERT_PREDICTIONS),
    prefixes=("deberta.",),
    ignored=("*embeddings.position_*", "*pooler.*", "*_predictions.*", "cls.*", "classifier.*", "qa_outputs.*"),
    neutral={**ENCODER, **neutral("pooler_hidden_size", type_vocab_size=(0,), conv_kernel_size=(0,))},
    adapt=_with_predictions,
)
