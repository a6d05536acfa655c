"""BART, MVP, Pegasus, Blenderbot, mBART, mBART-50, M2M100, NLLB-200 and MarianMT checkpoints, OPUS-MT's among them.

Lewis et al. 2019; Tang, Li et al. 2022; Zhang et al. 2020; Roller et al. 2021; Liu et al. 2020; Tang et al. 2020; Fan et al.
2020; NLLB Team 2022; Junczys-Dowmunt et al. 2018; Tiedemann and Thottingal 2020. `registry.load` says which errors the loaders
raise.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tokenizers import Tokenizer

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.config import check_architecture, integer
from triptych_export.huggingface.checkpoint.generation import FILE as GENERATION_CONFIG
from triptych_export.huggingface.checkpoint.generation import GenerationSettings, read_generation
from triptych_export.huggingface.checkpoint.languages import (
    CheckpointLanguages,
    language_tokens,
    model_name,
    offered_tokens,
    single,
    text_to_text,
)
from triptych_export.huggingface.checkpoint.seq2seq import (
    BART_NEUTRAL,
    Embeddings,
    bart_members,
    bart_rules,
    load_model,
    make_source,
)
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import Folder, neutral
from triptych_export.huggingface.tokenizers.tokenizer import (
    SMALL100,
    TranslationTokenizers,
    named_classes,
    translation_tokenizers,
)
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame
from triptych_serving.text.languages import list_languages
from triptych_training.models.transformer import Transformer

MBART_TOKEN, M2M100_TOKEN, NLLB_TOKEN = r"([a-z]{2}_[A-Z]{2})", r"__([a-z]{2,3})__", r"([a-z]{3}_[A-Z][a-z]{3})"
UNUSED_POSITIONS = 2  # BART's position tables start after fairseq's padding id, 1
PAD = 1  # M2M100's computed positions assume this padding id
BART_DEFAULTS: Mapping[str, object] = {"forced_eos_token_id": 2, "decoder_start_token_id": 2}
PEGASUS_DEFAULTS: Mapping[str, object] = {
    "pad_token_id": 0,
    "eos_token_id": 1,
    "forced_eos_token_id": 1,
    "decoder_start_token_id": 0,
}
BLENDERBOT_DEFAULTS: Mapping[str, object] = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
    "decoder_start_token_id": 1,
    "encoder_no_repeat_ngram_size": 3,
}
MBART_DEFAULTS: Mapping[str, object] = {"forced_eos_token_id": 2}
M2M100_DEFAULTS: Mapping[str, object] = {"decoder_start_token_id": 2}
MARIAN_DEFAULTS: Mapping[str, object] = {"forced_eos_token_id": 0}
MARIAN_NEUTRAL = {**BART_NEUTRAL, **neutral("decoder_vocab_size")}  # read if the vocabularies are separate
MVP_NEUTRAL = {**BART_NEUTRAL, **neutral("prompt_length prompt_mid_dim", use_prompt=(False,))}
BLENDERBOT_NEUTRAL = {**BART_NEUTRAL, **neutral("extra_layer_norm layernorm_variant unk_token_id")}
SMALL100_NAME = re.compile(r"small-?100", re.IGNORECASE)  # its own files may name M2M100's tokenizer
MARIAN_TOKEN = r">>(.+)<<"
LANGUAGE_TOKENS = re.compile("|".join((MBART_TOKEN, M2M100_TOKEN, NLLB_TOKEN, MARIAN_TOKEN)))
MARIAN_PAIR = re.compile(r"opus-mt-(?:tc-(?:[a-z]+-)*?)?(?P<source>[A-Za-z_]+)-(?P<target>[A-Za-z_]+)$")
MBART25_LANGUAGES = 25
IGNORED = ("encoder.version", "decoder.version", "*.encoder.version", "*.decoder.version")
SINUSOIDS = "*.embed_positions.weight"  # not parameters here, but read if they are stored


def load_bart(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a BART or MVP checkpoint: a text-to-text model, or a translation model if languages are given."""
    name, defaults = ("Mvp", M2M100_DEFAULTS) if folder.model_type == "mvp" else ("Bart", BART_DEFAULTS)
    languages = source_language, target_language
    return _text_to_text(folder, name, defaults, languages, norm="post", positions="learned", embedding_norm=True)


def load_pegasus(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a Pegasus checkpoint: a text-to-text model, or a translation model if languages are given."""
    languages = source_language, target_language
    return _text_to_text(folder, "Pegasus", PEGASUS_DEFAULTS, languages, norm="pre", positions="sinusoidal-marian")


def load_blenderbot(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a Blenderbot checkpoint as a text-to-text model, whose sources are what was said before the answer."""
    languages = source_language, target_language
    return _text_to_text(folder, "Blenderbot", BLENDERBOT_DEFAULTS, languages, unused=0, norm="pre", positions="learned")


def load_mbart(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a translation model; see `CheckpointLanguages.choose` for the languages."""
    generation, tokenizers = _read(folder, "MBart", MBART_DEFAULTS)
    first = None if target_language else generation.first_token
    languages = mbart_languages(folder, tokenizers, generation, first).choose(source_language, target_language)
    files = folder.config, folder.members(GENERATION_CONFIG)
    is_mbart25 = any(frame.after for frame in languages.sources.values())
    if is_mbart25 and generation.first_token is None and all(file.get("decoder_start_token_id") is None for file in files):
        generation, languages = start_with_target(folder, generation, languages)
    model = _model(folder, generation, norm="pre", positions="learned", embedding_norm=True)
    return make_source(folder, model, tokenizers, languages, generation)


def load_m2m100(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load an M2M100 or NLLB model; see `CheckpointLanguages.choose` for the languages."""
    generation, tokenizers = _read(folder, "M2M100", M2M100_DEFAULTS)
    if generation.pad != PAD:
        raise folder.config_error(f"pad_token_id: {generation.pad} is not supported; supported: {PAD}")
    first = None if target_language else generation.first_token
    languages = m2m100_languages(folder, tokenizers.source, first).choose(source_language, target_language)
    weights, embeddings = open_weights(folder.path), Embeddings.of(folder)
    config = bart_members(folder, weights, "relu") | {
        "norm": "pre",
        "scaled_embedding": bool(folder.config.get("scale_embedding", True)),
        "positions": "sinusoidal-fairseq",
    }
    ignored = (*IGNORED, "*.embed_positions.weights")  # old files also store the computed positions
    model = load_model(folder, weights, config, generation, embeddings, bart_rules(), ignored)
    return make_source(folder, model, tokenizers, languages, generation, family="m2m100")


def load_marian(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a translation model; see `CheckpointLanguages.choose` for the languages."""
    check_architecture(folder, "MarianMTModel", "MarianModel")
    weights = open_weights(folder.path)
    tokenizers = translation_tokenizers(folder)
    generation = read_generation(folder, integer(folder, "max_position_embeddings"), MARIAN_DEFAULTS)
    languages = marian_languages(folder, tokenizers.source, generation).choose(source_language, target_language)
    shared = bool(folder.config.get("share_encoder_decoder_embeddings", True))
    config = bart_members(folder, weights) | {"positions": "sinusoidal-marian"}
    if not shared:
        size = config["vocabulary_size"]
        config |= {"vocabulary_size": integer(folder, "decoder_vocab_size", size), "source_vocabulary_size": size}
    model = load_model(folder, weights, config, generation, Embeddings.of(folder, shared), bart_rules(), (SINUSOIDS,))
    return make_source(folder, model, tokenizers, languages, generation)


def _read(folder: Folder, name: str, defaults: Mapping[str, object]) -> tuple[GenerationSettings, TranslationTokenizers]:
    """Read what the families have in common; `name` begins the names of their classes."""
    check_architecture(folder, f"{name}ForConditionalGeneration", f"{name}Model")
    return read_generation(folder, integer(folder, "max_position_embeddings"), defaults), translation_tokenizers(folder)


def _text_to_text(
    folder: Folder, name: str, defaults: Mapping[str, object], given: tuple[str, str], **options: Any
) -> TranslationSource:
    """Load a text-to-text model, or a translation model if languages are given; `options` are those of `_model`."""
    generation, tokenizers = _read(folder, name, defaults)
    model, before = _model(folder, generation, **options), tokenizers.before(folder, generation.ends[0])
    languages = text_to_text(before, generation.first_token).choose(*given)
    return make_source(folder, model, tokenizers, languages, generation)


def _model(folder: Folder, generation: GenerationSettings, unused: int = UNUSED_POSITIONS, **members: Any) -> Transformer:
    """Load a model; `members` of TransformerConfig are added to those that `bart_members` reads."""
    weights, ignored = open_weights(folder.path), (*IGNORED, SINUSOIDS)
    config = bart_members(folder, weights) | members
    return load_model(folder, weights, config, generation, Embeddings.of(folder), bart_rules(unused), ignored)


def mbart_languages(
    folder: Folder, tokenizers: TranslationTokenizers, generation: GenerationSettings, first: int | None
) -> CheckpointLanguages:
    """Read the languages: mBART puts the source language after the text, mBART-50 before; the target language comes first."""
    tokens = language_tokens(tokenizers.source, MBART_TOKEN)
    if not tokens:
        return text_to_text(tokenizers.before(folder, generation.ends[0]), generation.first_token)
    config = folder.members("tokenizer_config.json")
    name = str(config.get("tokenizer_class") or folder.config.get("tokenizer_class") or "")
    is_mbart50 = name.startswith("MBart50") if name.startswith("MBart") else len(tokens) > MBART25_LANGUAGES
    sources = _source_frames(tokens, after=not is_mbart50)
    by_token = {token: code for code, token in tokens.items()}
    if generation.start in by_token:
        return CheckpointLanguages(sources, {by_token[generation.start]: TargetFrame(forced=generation.forced)})
    return CheckpointLanguages(sources, _forced_targets(folder, tokens, first))


def start_with_target(
    folder: Folder, generation: GenerationSettings, languages: CheckpointLanguages
) -> tuple[GenerationSettings, CheckpointLanguages]:
    """Let the decoder start with the only target language's token, as transformers documents it for mBART of 25 languages."""
    if len(languages.targets) > 1:
        missing = "decoder_start_token_id: missing; the decoder of mBART starts with its target language"
        raise folder.config_error(f"{missing}: name it with --target-language")
    [(code, frame)] = languages.targets.items()
    return replace(generation, start=frame.forced[0]), replace(languages, targets={code: TargetFrame()})


def m2m100_languages(folder: Folder, tokenizer: Tokenizer, first: int | None) -> CheckpointLanguages:
    """Read the languages: the source's token precedes the text (or follows it in early NLLB models); the target's is first.

    Sources of SMaLL-100 (Mohammadshahi et al. 2022) have the target's token instead, and targets have none.
    """
    tokens = language_tokens(tokenizer, NLLB_TOKEN) or language_tokens(tokenizer, M2M100_TOKEN)
    if not tokens:
        return text_to_text(first=first)
    if SMALL100 in named_classes(folder) or SMALL100_NAME.search(model_name(folder)):
        targets = {code: TargetFrame(before=(token,)) for code, token in tokens.items()}
        return CheckpointLanguages(dict.fromkeys(tokens, SourceFrame()), targets)
    legacy = bool(folder.members("tokenizer_config.json").get("legacy_behaviour"))
    return CheckpointLanguages(_source_frames(tokens, after=legacy), _forced_targets(folder, tokens, first))


def _source_frames(tokens: Mapping[str, int], after: bool) -> Mapping[str, SourceFrame]:
    return {code: SourceFrame(after=(token,)) if after else SourceFrame(before=(token,)) for code, token in tokens.items()}


def _forced_targets(folder: Folder, tokens: Mapping[str, int], first: int | None) -> Mapping[str, TargetFrame]:
    """Frame targets that begin with a language token; only one target if the checkpoint always forces it."""
    only = {code: token for code, token in tokens.items() if token == first}
    if first is not None and not only:
        problem = f"{first} is no language's token; languages: {list_languages(tuple(tokens))}"
        raise SourceError(f"{folder.path}: forced_bos_token_id: {problem}. Remove it, or choose with --target-language")
    return {code: TargetFrame(forced=(token,)) for code, token in (only or tokens).items()}


def marian_languages(folder: Folder, tokenizer: Tokenizer, generation: GenerationSettings) -> CheckpointLanguages:
    """Read the languages: each of several targets has a token; a pair is named in tokenizer_config.json or the model's name."""
    config = folder.members("tokenizer_config.json")
    names = (model_name(folder), str(folder.config.get("_name_or_path", "")))
    found = next((pair.groupdict() for name in names if (pair := MARIAN_PAIR.search(name))), {})
    source = single(str(config.get("source_lang") or found.get("source") or ""))
    tokens, notes = offered_tokens(tokenizer, MARIAN_TOKEN)
    targets = {code: TargetFrame(before=(token,), forced=generation.forced) for code, token in tokens.items()}
    target = single(str(config.get("target_lang") or found.get("target") or ""))
    return CheckpointLanguages({source: SourceFrame()}, targets or {target: TargetFrame(forced=generation.forced)}, notes=notes)
