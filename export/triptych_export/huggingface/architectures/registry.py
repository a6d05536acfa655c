"""Table of supported architectures, by `model_type` of config.json."""

from collections.abc import Callable, Mapping
from functools import partial

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures import bart, bert, image_classifiers, marian, modernbert, t5
from triptych_export.huggingface.checkpoint.config import Neutral, check_members
from triptych_export.huggingface.checkpoint.seq2seq import BART_NEUTRAL
from triptych_export.huggingface.checkpoint.text import load_text
from triptych_export.huggingface.folder import Folder
from triptych_export.translation_source import TranslationSource
from triptych_training.checkpoints.encoder import BertCheckpoint, ImageCheckpoint

Loaded = TranslationSource | BertCheckpoint | ImageCheckpoint


TRANSLATION_LOADERS: Mapping[str, Callable[[Folder, str, str], TranslationSource]] = {
    "bart": bart.load_bart,
    "m2m_100": bart.load_m2m100,
    "marian": marian.load_marian,
    "mbart": bart.load_mbart,
    "mt5": t5.load_t5,
    "t5": t5.load_t5,
}
LOADERS: Mapping[str, Callable[[Folder], BertCheckpoint | ImageCheckpoint]] = {
    "bert": partial(load_text, mapping=bert.BERT),
    "camembert": partial(load_text, mapping=bert.ROBERTA),
    "deit": image_classifiers.load_deit,
    "distilbert": partial(load_text, mapping=bert.DISTILBERT),
    "modernbert": partial(load_text, mapping=modernbert.MODERNBERT),
    "roberta": partial(load_text, mapping=bert.ROBERTA),
    "swin": image_classifiers.load_swin,
    "vit": image_classifiers.load_vit,
    "xlm-roberta": partial(load_text, mapping=bert.ROBERTA),
}
# What each type's loader does not read from config.json, and why it need not.
NEUTRAL: Mapping[str, Neutral] = {
    "bart": BART_NEUTRAL,
    "bert": bert.BERT_NEUTRAL,
    "camembert": bert.BERT_NEUTRAL,
    "deit": image_classifiers.VIT_NEUTRAL,
    "distilbert": bert.DISTILBERT_NEUTRAL,
    "m2m_100": BART_NEUTRAL,
    "marian": marian.NEUTRAL,
    "mbart": BART_NEUTRAL,
    "modernbert": modernbert.NEUTRAL,
    "mt5": t5.NEUTRAL,
    "roberta": bert.BERT_NEUTRAL,
    "swin": image_classifiers.SWIN_NEUTRAL,
    "t5": t5.NEUTRAL,
    "vit": image_classifiers.VIT_NEUTRAL,
    "xlm-roberta": bert.BERT_NEUTRAL,
}
DECODER_ONLY = ("ForCausalLM", "LMHeadModel")  # suffixes of class names


def load(folder: Folder, source_language: str = "", target_language: str = "") -> Loaded:
    """Load the model of a folder into our own modules.

    Args:
        folder: the checkpoint.
        source_language: for encoder-decoders, the only source language to offer, or the name of an undetermined one.
        target_language: the same for targets.

    Raises:
        SourceError: the architecture or a member of config.json is not supported; files are missing, damaged or contradict each
            other; or languages are given for a model that does not translate.
    """
    if folder.architecture.endswith(DECODER_ONLY) and not folder.config.get("is_encoder_decoder", False):
        raise _unsupported(folder, "is a decoder-only language model, which is not supported")
    if translation_loader := TRANSLATION_LOADERS.get(folder.model_type):
        loaded: Loaded = translation_loader(folder, source_language, target_language)
    else:
        loader = LOADERS.get(folder.model_type)
        if loader is None:
            raise _unsupported(folder, "is not supported")
        if source_language or target_language:
            raise folder.config_error(f"{_kind(folder)} does not translate; remove source_language and target_language")
        loaded = loader(folder)
    check_members(folder, NEUTRAL[folder.model_type])
    return loaded


def _kind(folder: Folder) -> str:
    kind = f"model_type {folder.model_type!r}" if folder.model_type else "no model_type"
    return f"{kind} ({folder.architecture or 'no architecture'})"


def _unsupported(folder: Folder, problem: str) -> SourceError:
    supported = f"supported are encoder-decoders: {', '.join(TRANSLATION_LOADERS)}; encoders: {', '.join(sorted(LOADERS))}"
    return folder.config_error(f"{_kind(folder)} {problem}; {supported}")
