"""M2M100 and NLLB-200 checkpoints (Fan et al. 2020; NLLB Team 2022)."""

from collections.abc import Mapping

from tokenizers import Tokenizer

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.bart import IGNORED, forced_targets
from triptych_export.huggingface.checkpoint.activations import activation
from triptych_export.huggingface.checkpoint.generation import read_generation
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
from triptych_export.huggingface.folder import CONFIG, Folder
from triptych_export.huggingface.tokenizers.tokenizer import translation_tokenizers
from triptych_export.translation_source import TranslationSource
from triptych_serving.bundle.manifest import SourceFrame

M2M100_TOKEN = r"__([a-z]{2,3})__"
NLLB_TOKEN = r"([a-z]{3}_[A-Z][a-z]{3})"
PAD = 1  # fairseq's tables of positions count from behind it
DEFAULTS: Mapping[str, object] = {"decoder_start_token_id": 2}


def load_m2m100(folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource:
    """Load a translation model; for the languages see `CheckpointLanguages.choose`.

    Raises:
        SourceError: files are missing, damaged or contradict each other; or there is no such language.
    """
    check_architecture(folder, "M2M100ForConditionalGeneration", "M2M100Model")
    generation = read_generation(folder, whole(folder, "max_position_embeddings"), DEFAULTS)
    if generation.pad != PAD:
        raise SourceError(f"{folder.path / CONFIG}: pad_token_id: {generation.pad} is not supported; supported: {PAD}")
    tokenizers = translation_tokenizers(folder)
    first = None if target_language else generation.first
    languages = _languages(folder, tokenizers.source, first).choose(source_language, target_language)
    weights = open_weights(folder.path)
    embeddings = Embeddings.of(folder)
    config = {
        **bart_members(folder, weights),
        "vocabulary_size": whole(folder, "vocab_size"),
        "norm": "pre",
        "scaled_embedding": bool(folder.config.get("scale_embedding", True)),
        "activation": activation(folder, "activation_function", "relu"),
        "positions": "sinusoidal-fairseq",
        "tie_embeddings": embeddings.ties_source(weights),
        "tie_projection": embeddings.ties_projection(weights),
        "pad_id": generation.pad,
        "bos_id": generation.start,
        "eos_id": generation.end,
    }
    # Old files have the fixed tables of positions as well.
    ignored = (*IGNORED, "*.embed_positions.weights", *embeddings.names)
    model = make_model(folder, weights, config, bart_rules(embeddings.rules(weights)), ignored)
    return make_source(folder, model, tokenizers, languages, generation, family="m2m100")


def _languages(folder: Folder, tokenizer: Tokenizer, first: int | None) -> CheckpointLanguages:
    """Read the languages: the source's token precedes the text (or follows it in early NLLB models); the target's is first."""
    tokens = language_tokens(tokenizer, NLLB_TOKEN) or language_tokens(tokenizer, M2M100_TOKEN)
    if not tokens:
        return text_to_text(first=first)
    legacy = bool((folder.read_json("tokenizer_config.json") or {}).get("legacy_behaviour"))
    sources = {code: SourceFrame(after=(token,)) if legacy else SourceFrame(before=(token,)) for code, token in tokens.items()}
    return CheckpointLanguages(sources, forced_targets(tokens, first))
