"""Loading of decoder-only checkpoints: the description of a family, the model and its settings.

As generative models, and as models that embed or label texts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tokenizers import Tokenizer

from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.architectures.decoder_config import positive
from triptych_export.huggingface.chat import has_template, read_chat
from triptych_export.huggingface.checkpoint.chat_inputs import Scored, read_scored_tokens, read_template, score_rows
from triptych_export.huggingface.checkpoint.config import BARE, ENCODER, MASKED, TEXT, TOKENS, check_architecture, flag
from triptych_export.huggingface.checkpoint.generation import read_decoder_generation
from triptych_export.huggingface.checkpoint.languages import model_name
from triptych_export.huggingface.checkpoint.mapping import Change, Rule, is_one_matrix, load_rules, make_model
from triptych_export.huggingface.checkpoint.sentence_transformers import (
    POOLINGS_OF_DECODERS,
    classifier_settings,
    read_sentence_settings,
)
from triptych_export.huggingface.checkpoint.text import (
    HEADS,
    RELEVANCE,
    assemble,
    find_head,
    is_independent,
    read_labels,
    special_ids,
)
from triptych_export.huggingface.checkpoint.weights import StoredWeights, open_weights
from triptych_export.huggingface.folder import Folder, Neutral, neutral
from triptych_export.huggingface.gguf import GgufFolder
from triptych_export.huggingface.tokenizers.tokenizer import decoder_tokenizer, limit_tokens
from triptych_export.onnx_files.decoder import OnnxGpt
from triptych_training.checkpoints.encoder import TextCheckpoint, make_bert
from triptych_training.models.bert import EncoderModel
from triptych_training.models.gpt import Gpt, GptConfig
from triptych_training.models.gpt_encoder import LAST, GptEncoderConfig

TABLES = ("tokens", "projection")  # our names of embedding and output
PLAIN_TEXTS = "texts are classified as they are, and special tokens in them are text"
OUTPUT = "lm_head.weight"  # of the checkpoint, where it is the embedding's matrix

LONGEST_TEXT = 8_192  # tokens of a text to embed or to label
LANGUAGE_MODEL = re.compile("ForCausalLM$|LMHeadModel$|Model$")  # suffixes of classes
SCORE = (Rule("classifier", "score", others=["classifier"]),)
# Members of config.json that change no result of a head.
HEAD_NEUTRAL = {**ENCODER, **neutral("tie_word_embeddings", token_classification_bias=(True,))}
# Padding ids of folders that name none.
PADS = {
    **{"smollm3": 128_004, "gemma": 0, "gemma2": 0, "gemma3_text": 0, "phi3": 32_000, "glm": 151_329, "glm4": 151_329},
    **{"helium": 3, "olmo2": 1, "olmo3": 1, "seed_oss": 1, "hunyuan_v1_dense": 0, "apertus": 3, "opt": 1},
    **{"vaultgemma": 0, "olmo": 1, "nanochat": 1, "xglm": 1},
}


@dataclass(frozen=True)
class DecoderMapping:
    """Description of a family: class names, config members and weight rules."""

    architecture: str  # class of its language models, by which folders are recognised
    # Reads members of GptConfig from config.json, besides those that all families have and those that are `fixed`.
    members: Callable[[Folder], Mapping[str, Any]]
    rules: Sequence[Rule]
    prefixes: tuple[str, ...]  # optional leading parts of the weights' names
    neutral: Neutral  # members of config.json that change no result
    fixed: Mapping[str, Any] = field(default_factory=dict)  # members of GptConfig that all models of the family have
    ignored: Sequence[str] = ()  # patterns of weights that are constants
    tied: bool = False  # embedding and output share one matrix if config.json does not say it
    changes: Callable[[Folder, GptConfig], Mapping[str, Change]] | None = None  # of weights by a config, by a rule's name
    heads: Mapping[str, Sequence[Rule]] = field(default_factory=lambda: {TEXT: SCORE, TOKENS: SCORE})


def load_decoder(folder: Folder, mapping: DecoderMapping) -> GenerationSource:
    """Load the model and the tokenizer of a folder."""
    check_architecture(folder, mapping.architecture)
    if isinstance(folder, GgufFolder):
        weights, made, chat = folder.weights(), folder.tokenizer(), folder.chat()
    else:
        weights, made, chat = open_weights(folder.path), decoder_tokenizer(folder), read_chat(folder)
    model = load_gpt(folder, mapping, weights)
    if model.config.bidirectional:
        raise folder.config_error("use_bidirectional_attention: True is not supported of a model that generates texts")
    return make_source(folder, model, limit_tokens(made, model.config.vocabulary_size), *chat)


def load_gpt(folder: Folder, mapping: DecoderMapping, weights: StoredWeights) -> Gpt:
    """Make the network of a folder."""
    tied = _is_tied(folder, mapping, weights)
    model = make_model(folder, lambda: Gpt(GptConfig(**_members(folder, mapping, tied))))
    load_rules(model, weights, _rules(folder, mapping, model.config), mapping.ignored, mapping.prefixes)
    return model


def load_states(folder: Folder, mapping: DecoderMapping) -> TextCheckpoint:
    """Load a decoder-only model of a folder of sentence-transformers, or with another head than the output matrix."""
    sentences, scored = read_sentence_settings(folder, POOLINGS_OF_DECODERS, chats=True), read_scored_tokens(folder)
    name = LANGUAGE_MODEL.sub("", mapping.architecture)
    named = (name, f"{name}Text")  # the second one is Gemma 3's
    head = BARE if sentences else TEXT if scored else find_head(folder, named, list(mapping.heads))
    settings = sentences or classifier_settings(folder)
    tokenizer = decoder_tokenizer(folder)
    special = special_ids(folder, tokenizer, masks=head == MASKED, bare=True)
    labels = (RELEVANCE,) if scored else read_labels(folder) if head in (TEXT, TOKENS) else ()
    template = read_template(folder, tokenizer, vectors=sentences is not None and not sentences.scores)
    special = replace(special, cls=None, sep=None) if template else special
    ids: dict[str, Any] = {"pad_id": special.pad, "cls_id": special.cls, "sep_id": special.sep, "mask_id": special.mask}
    padding = folder.config.get("pad_token_id", PADS.get(folder.model_type))
    ids |= {"skipped_id": padding} if head == TEXT and not scored else {"pooling": LAST}

    weights = open_weights(folder.path)

    def make() -> EncoderModel:
        tied = head != MASKED or _is_tied(folder, mapping, weights)
        config = GptEncoderConfig(**{**_members(folder, mapping, tied), **ids})
        return make_bert(HEADS[head], config, len(labels), head == TEXT and is_independent(folder, len(labels)))

    model = make_model(folder, make)
    assert isinstance(model.config, GptEncoderConfig)
    rules = [rule.under("bert.gpt") for rule in _rules(folder, mapping, model.config, output=scored is not None)]
    heads = [_score_rule(folder, mapping, model.config, scored, weights)] if scored else mapping.heads.get(head, ())
    ignored = (*mapping.ignored, OUTPUT, *(() if head in (TEXT, TOKENS) else ("score.*", "classifier.*", "dense.*")))
    load_rules(model, weights, [*heads, *rules], ignored, mapping.prefixes)
    longest = min(settings.max_tokens or model.config.max_positions, LONGEST_TEXT)
    loaded = assemble(folder, model, tokenizer, replace(settings, max_tokens=longest), labels)
    if template:
        provenance = {**loaded.provenance, "template": ", ".join(map(repr, template))}
        return replace(loaded, singles=False, template=template, provenance=provenance)
    if head == TEXT and has_template(folder):
        return replace(loaded, provenance={**loaded.provenance, "chat_not_carried_over": PLAIN_TEXTS})
    return loaded


def _score_rule(folder: Folder, mapping: DecoderMapping, config: GptConfig, scored: Scored, weights: StoredWeights) -> Rule:
    """Return the rule of a classifier whose label has the score of tokens that could follow."""
    if config.logit_cap:
        raise folder.config_error(f"final_logit_softcapping: {config.logit_cap} is not supported of a model that ranks texts")
    matrix = "tokens" if _is_tied(folder, mapping, weights) else "projection"
    [output] = (rule for rule in mapping.rules if rule.ours == matrix)
    return Rule("classifier", *output.theirs, change=score_rows(scored), others=output.others)


def _is_tied(folder: Folder, mapping: DecoderMapping, weights: StoredWeights) -> bool:
    """Tell whether embedding and output share one matrix."""
    tables = [rule for rule in mapping.rules if rule.ours in TABLES]
    return flag(folder, "tie_word_embeddings", mapping.tied) and is_one_matrix(weights, tables)


def _members(folder: Folder, mapping: DecoderMapping, tied: bool) -> dict[str, Any]:
    return {"vocabulary_size": positive(folder, "vocab_size"), "tied": tied, **mapping.members(folder), **mapping.fixed}


def _rules(folder: Folder, mapping: DecoderMapping, config: GptConfig, output: bool = True) -> Sequence[Rule]:
    """Return the family's rules with what depends on a folder; raises SourceError if a member does not fit.

    Without `output`, the last norm has no factors of the logits.
    """
    try:
        changes = dict(mapping.changes(folder, config)) if mapping.changes else {}
    except ValueError as error:
        raise folder.config_error(str(error)) from error
    if not output:
        changes.pop("norm", None)
    rules = [rule.changed(changes[rule.ours]) if rule.ours in changes else rule for rule in mapping.rules]
    if not config.tied:
        return rules
    tokens, projection = (next(rule for rule in rules if rule.ours == name) for name in TABLES)
    others = (*tokens.others, *projection.theirs, *projection.others)  # the one matrix may be stored under any name
    return [Rule("tokens", *tokens.theirs, change=tokens.change, others=others), *rules]


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
