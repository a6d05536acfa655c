"""BART, mBART and mBART-50 checkpoints (Lewis et al. 2019; Liu et al. 2020; Tang et al. 2020)."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

from triptych_export.huggingface.checkpoint.activations import activation
from triptych_export.huggingface.checkpoint.generation import GenerationSettings, read_generation
from triptych_export.huggingface.checkpoint.languages import CheckpointLanguages, language_tokens, text_to_text
from triptych_export.huggingface.checkpoint.seq2seq import (
    Embeddings,
    bart_members,
    bart_rules,
    check_architecture,
    make_model,
    make_source,
    whole,
)
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import Folder
from triptych_export.huggingface.tokenizers.tokenizer import translation_tokenizers
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_training.models.transformer import Transformer

LANGUAGE_TOKEN = r"([a-z]{2}_[A-Z]{2})"
UNUSED_POSITIONS = 2  # fairseq's tables count from behind its padding id
BART_DEFAULTS: Mapping[str, object] = {"forced_eos_token_id": 2, "decoder_start_token_id": 2}
MBART_DEFAULTS: Mapping[str, object] = {"forced_eos_token_id": 2}
MBART25_LANGUAGES = 25
IGNORED = ("encoder.version", "decoder.version", "*.encoder.version", "*.decoder.version")


def load_bart(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a BART checkpoint: a text-to-text model, or a translation model if languages are given.

    Raises:
        SourceError: files are missing, damaged or contradict each other; or a language code is malformed.
    """
    check_architecture(folder, "BartForConditionalGeneration", "BartModel")
    generation = read_generation(folder, whole(folder, "max_position_embeddings"), BART_DEFAULTS)
    tokenizers = translation_tokenizers(folder)
    languages = text_to_text(_begin(folder), generation.first).choose(source_language, target_language)
    model = _model(folder, generation, norm="post")
    return make_source(folder, model, tokenizers, languages, generation)


def load_mbart(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a translation model; for the languages see `CheckpointLanguages.choose`.

    Raises:
        SourceError: files are missing, damaged or contradict each other; or there is no such language.
    """
    check_architecture(folder, "MBartForConditionalGeneration", "MBartModel")
    generation = read_generation(folder, whole(folder, "max_position_embeddings"), MBART_DEFAULTS)
    tokenizers = translation_tokenizers(folder)
    first = None if target_language else generation.first
    languages = _languages(folder, tokenizers.source, generation, first).choose(source_language, target_language)
    model = _model(folder, generation, norm="pre")
    return make_source(folder, model, tokenizers, languages, generation)


def _model(folder: Folder, generation: GenerationSettings, norm: str) -> Transformer:
    weights = open_weights(folder.path)
    embeddings = Embeddings.of(folder)
    config: dict[str, Any] = {
        **bart_members(folder, weights),
        "vocabulary_size": whole(folder, "vocab_size"),
        "norm": norm,
        "embedding_norm": True,
        "activation": activation(folder, "activation_function"),
        "positions": "learned",
        "tie_embeddings": embeddings.ties_source(weights),
        "tie_projection": embeddings.ties_projection(weights),
        "pad_id": generation.pad,
        "bos_id": generation.start,
        "eos_id": generation.end,
    }
    rules = bart_rules(embeddings.rules(weights), UNUSED_POSITIONS)
    return make_model(folder, weights, config, rules, (*IGNORED, *embeddings.names))


def _begin(folder: Folder) -> Sequence[int]:
    """Frame every text with <s> and </s>."""
    begin = folder.config.get("bos_token_id", 0)
    return () if begin is None else (begin,)


def _languages(folder: Folder, tokenizer: Tokenizer, generation: GenerationSettings, first: int | None) -> CheckpointLanguages:
    """Read the languages: mBART puts the source language after the text, mBART-50 before; the target language comes first."""
    tokens = language_tokens(tokenizer, LANGUAGE_TOKEN)
    if not tokens:
        return text_to_text(_begin(folder), generation.first)
    behind = not _is_mbart50(folder, len(tokens))
    sources = {code: SourceFrame(after=(token,)) if behind else SourceFrame(before=(token,)) for code, token in tokens.items()}
    by_token = {token: code for code, token in tokens.items()}
    if generation.start in by_token:
        forced = () if generation.first is None else (generation.first,)
        return CheckpointLanguages(sources, {by_token[generation.start]: TargetFrame(forced=forced)})
    return CheckpointLanguages(sources, forced_targets(tokens, first))


def forced_targets(tokens: Mapping[str, int], first: int | None) -> Mapping[str, TargetFrame]:
    """Frame targets that begin with a language token; only one target if the checkpoint always forces it."""
    only = {code: token for code, token in tokens.items() if token == first}
    return {code: TargetFrame(forced=(token,)) for code, token in (only or tokens).items()}


def _is_mbart50(folder: Folder, languages: int) -> bool:
    config = folder.read_json("tokenizer_config.json") or {}
    name = str(config.get("tokenizer_class") or folder.config.get("tokenizer_class") or "")
    return name.startswith("MBart50") if name.startswith("MBart") else languages > MBART25_LANGUAGES
