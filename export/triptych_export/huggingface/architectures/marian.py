"""MarianMT checkpoints, OPUS-MT's among them (Junczys-Dowmunt et al. 2018; Tiedemann and Thottingal 2020)."""

import re
from collections.abc import Mapping

from tokenizers import Tokenizer

from triptych_export.huggingface.checkpoint.config import check_architecture, integer
from triptych_export.huggingface.checkpoint.generation import read_generation
from triptych_export.huggingface.checkpoint.languages import CheckpointLanguages, is_known, language_tokens, model_name, single
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
from triptych_export.huggingface.tokenizers.tokenizer import translation_tokenizers
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame, TargetFrame

LANGUAGE_TOKEN = r">>(.+)<<"
PAIR = re.compile(r"opus-mt-(?:tc-(?:[a-z]+-)*?)?(?P<source>[A-Za-z_]+)-(?P<target>[A-Za-z_]+)$")
NEUTRAL = {**BART_NEUTRAL, **neutral("decoder_vocab_size")}  # read if the vocabularies are separate
DEFAULTS: Mapping[str, object] = {"forced_eos_token_id": 0}


def load_marian(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a translation model; see `CheckpointLanguages.choose` for the languages.

    Raises:
        SourceError: files are missing, damaged or contradict each other; or there is no such language.
    """
    check_architecture(folder, "MarianMTModel", "MarianModel")
    weights = open_weights(folder.path)
    tokenizers = translation_tokenizers(folder)
    languages = _languages(folder, tokenizers.source).choose(source_language, target_language)
    generation = read_generation(folder, integer(folder, "max_position_embeddings"), DEFAULTS)
    shared = bool(folder.config.get("share_encoder_decoder_embeddings", True))
    config = bart_members(folder, weights) | {"positions": "sinusoidal-marian"}
    if not shared:
        size = config["vocabulary_size"]
        config |= {"vocabulary_size": integer(folder, "decoder_vocab_size", size), "source_vocabulary_size": size}
    ignored = ("*.embed_positions.weight",)  # old files also store the computed positions
    model = load_model(folder, weights, config, generation, Embeddings.of(folder, shared), bart_rules(), ignored)
    return make_source(folder, model, tokenizers, languages, generation)


def _languages(folder: Folder, tokenizer: Tokenizer) -> CheckpointLanguages:
    """Read the languages: each of several targets has a token; a pair is named in tokenizer_config.json or the model's name."""
    config = folder.read_json("tokenizer_config.json") or {}
    names = (model_name(folder), str(folder.config.get("_name_or_path", "")))
    found = next((pair.groupdict() for name in names if (pair := PAIR.search(name))), {})
    source = single(config.get("source_lang") or found.get("source"))
    tokens = language_tokens(tokenizer, LANGUAGE_TOKEN)
    targets = {code: TargetFrame(before=(token,)) for code, token in tokens.items() if is_known(code)}
    skipped = ", ".join(code for code in tokens if code not in targets)
    notes = {"language_tokens_not_offered": skipped} if skipped else {}
    target = single(config.get("target_lang") or found.get("target"))
    return CheckpointLanguages({source: SourceFrame()}, targets or {target: TargetFrame()}, notes=notes)
