"""T5, T5 v1.1, Flan-T5, mT5 and umT5 checkpoints.

Raffel et al. 2020; Shazeer 2020; Chung et al. 2022; Xue et al. 2020; Chung et al. 2023.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tokenizers import Tokenizer

from triptych_export.huggingface.checkpoint.config import ACTIVATIONS, ENCODER_DECODER, check_architecture, integer
from triptych_export.huggingface.checkpoint.generation import GenerationSettings, read_generation
from triptych_export.huggingface.checkpoint.languages import CheckpointLanguages, is_known, offered_tokens, text_to_text
from triptych_export.huggingface.checkpoint.mapping import Rule, block_rules
from triptych_export.huggingface.checkpoint.seq2seq import Embeddings, cross_attention_rules, load_model, make_source
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import Folder, neutral
from triptych_export.huggingface.tokenizers.tokenizer import translation_tokenizers
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_text.languages import UNDETERMINED

LONGEST = 2_048  # tokens; relative positions have no limit, this one saves memory
TRAINED = 512  # tokens of the training texts
TRANSLATION = re.compile(r"translation_(?P<source>\w+)_to_(?P<target>\w+)")
TARGET_TOKEN = r"<2(.+)>"  # before a text: the target language of MADLAD-400 (Kudugunta et al. 2023)
PROJECTIONS = ("q", "k", "v", "o")
UMT5_NEUTRAL = {**ENCODER_DECODER, **neutral("scalable_attention")}  # in the published files, and transformers does not read it
DEFAULTS: Mapping[str, object] = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
# An unused weight in T5's first checkpoints.
IGNORED = ("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)


def load_t5(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a T5: a translation model for the prefixes of config.json or the vocabulary; without, or for "und", text to text."""
    kind = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}[folder.model_type]
    old = ("T5WithLMHeadModel",) if kind == "T5" else ()
    # mT5's checkpoints may have been saved by T5's classes.
    check_architecture(folder, f"{kind}ForConditionalGeneration", f"{kind}Model", "T5ForConditionalGeneration", *old)
    translates = UNDETERMINED not in (source_language, target_language)
    tasks = _translations(folder) if translates else {}
    first, *others = tasks.values() or [{}]
    agreed = {name: value for name, value in first.items() if name != "prefix" and all(o.get(name) == value for o in others)}
    wanted = {"max_length": integer(folder, "n_positions", TRAINED), **agreed}
    generation = read_generation(folder, LONGEST, DEFAULTS, wanted)
    tokenizers = translation_tokenizers(folder)
    before = tokenizers.before(folder, generation.ends[0])
    named = token_languages(tokenizers.source, before, generation) if translates and not tasks else None
    languages = (named or _task_languages(tasks, before, generation)).choose(source_language, target_language)
    weights = open_weights(folder.path)
    config = _members(folder)
    model = load_model(folder, weights, config, generation, Embeddings.of(folder, tied=True), _rules(config), IGNORED)
    return make_source(folder, model, tokenizers, languages, generation)


def _members(folder: Folder) -> dict[str, Any]:
    """Members of TransformerConfig."""
    gated, function = _feed_forward(folder)
    layers, width = integer(folder, "num_layers"), integer(folder, "d_model")
    # The first T5 ties its embeddings and scales outputs, T5 v1.1 and mT5 do neither; transformers scales all outputs of umT5.
    given = folder.config.get("scale_decoder_outputs", folder.config.get("tie_word_embeddings", True))
    scales = folder.model_type == "umt5" or (folder.model_type == "t5" and given is not False)
    return {
        "vocabulary_size": integer(folder, "vocab_size"),
        "model_dim": width,
        "heads": integer(folder, "num_heads"),
        "head_dim": integer(folder, "d_kv"),
        "feedforward_dim": integer(folder, "d_ff"),
        "encoder_layers": layers,
        "decoder_layers": integer(folder, "num_decoder_layers", layers),
        "norm": "pre",
        "norm_kind": "rms",
        "norm_epsilon": folder.config.get("layer_norm_epsilon", 1e-6),
        "bias": False,
        "activation": function,
        "gated": gated,
        "positions": "none",
        "max_positions": LONGEST,
        "scaled_attention": False,
        "scaled_embedding": False,
        "relative_buckets": integer(folder, "relative_attention_num_buckets", 32),
        "relative_distance": integer(folder, "relative_attention_max_distance", 128),
        "relative_by_layer": folder.model_type == "umt5",
        "projection_scale": max(width, 1) ** -0.5 if scales else 1.0,  # TransformerConfig names a width below 1
    }


def _feed_forward(folder: Folder) -> tuple[bool, str]:
    """Return whether the feed-forward is gated, and our name of its activation."""
    name = str(folder.config.get("feed_forward_proj", "relu" if folder.model_type == "t5" else "gated-gelu"))
    function = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")  # T5 v1.1 calls the approximation gelu
    if function not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise folder.config_error(f"feed_forward_proj: {name!r} is not supported; supported, also with gated-: {known}")
    gated = name.startswith("gated-")
    for member, meant in (("is_gated_act", gated), ("dense_act_fn", function)):  # derived ones, which could contradict it
        if (given := folder.config.get(member, meant)) != meant:
            raise folder.config_error(f"{member}: {given!r} contradicts feed_forward_proj, {name!r}")
    return gated, ACTIVATIONS[function]


def _rules(config: Mapping[str, Any]) -> Sequence[Rule]:
    cross, by_layer = "decoder.block.{i}.layer.1", config["relative_by_layer"]
    return (
        *_side_rules("encoder", 1, config["gated"], config["encoder_layers"] if by_layer else 1),
        *_side_rules("decoder", 2, config["gated"], config["decoder_layers"] if by_layer else 1),
        *cross_attention_rules(f"{cross}.EncDecAttention", PROJECTIONS, f"{cross}.layer_norm"),
    )


def _side_rules(side: str, last: int, gated: bool, tables: int) -> Sequence[Rule]:
    """Rules of the blocks of one side.

    `last` is the index of the feed-forward sub-layer; the first `tables` layers have a relative bias.
    """
    ours, theirs, inner = f"{side}.layers.{{i}}", f"{side}.block.{{i}}.layer", f"{last}.DenseReluDense"
    *query_key_value, output = (f"0.SelfAttention.{name}" for name in PROJECTIONS)
    expand = f"{inner}.wi_1" if gated else f"{inner}.wi"
    return (
        Rule(
            f"{side}.relative.table",
            *(f"{side}.block.{layer}.layer.0.SelfAttention.relative_attention_bias" for layer in range(tables)),
            join=partial(torch.cat, dim=1),
        ),
        Rule(f"{side}.norm", f"{side}.final_layer_norm"),
        Rule(f"{ours}.feedforward.gate", f"{theirs}.{inner}.wi_0"),
        *block_rules(ours, theirs, query_key_value, output, "0.layer_norm", expand, f"{inner}.wo", f"{last}.layer_norm"),
    )


def _translations(folder: Folder) -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """Tasks with a prefix in config.json, by source and target language; none if there are several source languages."""
    tasks = folder.config.get("task_specific_params") or {}
    found = {
        (pair["source"], pair["target"]): task
        for name, task in tasks.items()
        if (pair := TRANSLATION.fullmatch(name)) and isinstance(task.get("prefix"), str)
        if is_known(pair["source"]) and is_known(pair["target"])
    }
    return found if len({source for source, _ in found}) == 1 else {}


def _task_languages(
    tasks: Mapping[tuple[str, str], Mapping[str, Any]], before: Sequence[int], generation: GenerationSettings
) -> CheckpointLanguages:
    if not tasks:
        return text_to_text(before, generation.first_token)
    targets = {target: TargetFrame(task["prefix"], forced=generation.forced) for (_, target), task in tasks.items()}
    return CheckpointLanguages({source: SourceFrame(tuple(before)) for source, _ in tasks}, targets)


def token_languages(tokenizer: Tokenizer, before: Sequence[int], generation: GenerationSettings) -> CheckpointLanguages | None:
    """Read the languages of a vocabulary with tokens such as "<2de>", which select targets; None if there are none."""
    tokens, notes = offered_tokens(tokenizer, TARGET_TOKEN)
    if not tokens:
        return None
    special = {number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}  # not found in texts
    targets = {
        code: TargetFrame("" if number in special else f"<2{code}> ", (number,) if number in special else (), generation.forced)
        for code, number in tokens.items()
    }
    return CheckpointLanguages(dict.fromkeys(targets, SourceFrame(tuple(before))), targets, notes=notes)
