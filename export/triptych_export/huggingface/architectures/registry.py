"""Table of supported architectures, by `model_type` of config.json."""

from collections.abc import Callable, Mapping
from typing import Protocol

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.bart import load_bart, load_mbart
from triptych_export.huggingface.architectures.bert import load_bert
from triptych_export.huggingface.architectures.deit import load_deit
from triptych_export.huggingface.architectures.distilbert import load_distilbert
from triptych_export.huggingface.architectures.m2m100 import load_m2m100
from triptych_export.huggingface.architectures.marian import load_marian
from triptych_export.huggingface.architectures.modernbert import load_modernbert
from triptych_export.huggingface.architectures.roberta import load_roberta
from triptych_export.huggingface.architectures.swin import load_swin
from triptych_export.huggingface.architectures.t5 import load_t5
from triptych_export.huggingface.architectures.vit import load_vit
from triptych_export.huggingface.folder import CONFIG, Folder
from triptych_export.translation_source import TranslationSource
from triptych_training.checkpoints.encoder import BertCheckpoint, ImageCheckpoint

Loaded = TranslationSource | BertCheckpoint | ImageCheckpoint


class TranslationLoader(Protocol):
    """Loader of encoder-decoder models; given languages restrict the model to these."""

    def __call__(self, folder: Folder, source_language: str = "", target_language: str = "") -> TranslationSource: ...


TRANSLATION_LOADERS: Mapping[str, TranslationLoader] = {
    "bart": load_bart,
    "m2m_100": load_m2m100,
    "marian": load_marian,
    "mbart": load_mbart,
    "mt5": load_t5,
    "t5": load_t5,
}
LOADERS: Mapping[str, Callable[[Folder], BertCheckpoint | ImageCheckpoint]] = {
    "bert": load_bert,
    "camembert": load_roberta,
    "deit": load_deit,
    "distilbert": load_distilbert,
    "modernbert": load_modernbert,
    "roberta": load_roberta,
    "swin": load_swin,
    "vit": load_vit,
    "xlm-roberta": load_roberta,
}


DECODER_ONLY = ("ForCausalLM", "LMHeadModel")  # ends of architectures' names


def load(folder: Folder, source_language: str = "", target_language: str = "") -> Loaded:
    """Load the model of a folder into our own modules.

    Args:
        folder: the checkpoint's.
        source_language: of an encoder-decoder, the only language that it is to offer, or what an undetermined one is called.
        target_language: the same of translations.

    Raises:
        SourceError: the architecture is none of those, or the folder's files are missing, damaged or contradict each other; or
            languages are given for a model that does not translate.
    """
    if folder.architecture.endswith(DECODER_ONLY) and not folder.config.get("is_encoder_decoder", False):
        raise SourceError(f"{_found(folder)} is a decoder-only language model, and those are not supported; {_supported()}")
    if translation_loader := TRANSLATION_LOADERS.get(folder.model_type):
        return translation_loader(folder, source_language, target_language)
    loader = LOADERS.get(folder.model_type)
    if loader is None:
        raise SourceError(f"{_found(folder)} is not supported; {_supported()}")
    if source_language or target_language:
        raise SourceError(f"{_found(folder)} does not translate: no source_language and no target_language can be chosen")
    return loader(folder)


def _found(folder: Folder) -> str:
    kind = f"model_type {folder.model_type!r}" if folder.model_type else "no model_type"
    return f"{folder.path / CONFIG}: {kind} ({folder.architecture or 'no architecture'})"


def _supported() -> str:
    """List the supported model types."""
    return f"supported are encoder-decoders: {', '.join(TRANSLATION_LOADERS)}; encoders: {', '.join(sorted(LOADERS))}"
