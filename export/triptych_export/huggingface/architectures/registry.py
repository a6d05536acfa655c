"""Table of supported architectures, by `model_type` of config.json."""

from collections.abc import Callable, Mapping
from functools import partial

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.bart import load_bart, load_m2m100, load_mbart
from triptych_export.huggingface.architectures.bert import BERT, DISTILBERT, ROBERTA
from triptych_export.huggingface.architectures.image_classifiers import load_deit, load_swin, load_vit
from triptych_export.huggingface.architectures.marian import load_marian
from triptych_export.huggingface.architectures.modernbert import MODERNBERT
from triptych_export.huggingface.architectures.t5 import load_t5
from triptych_export.huggingface.checkpoint.text import load_text
from triptych_export.huggingface.folder import Folder
from triptych_export.translation_source import TranslationSource
from triptych_training.checkpoints.encoder import BertCheckpoint, ImageCheckpoint

Loaded = TranslationSource | BertCheckpoint | ImageCheckpoint


TRANSLATION_LOADERS: Mapping[str, Callable[[Folder, str, str], TranslationSource]] = {
    "bart": load_bart,
    "m2m_100": load_m2m100,
    "marian": load_marian,
    "mbart": load_mbart,
    "mt5": load_t5,
    "t5": load_t5,
}
LOADERS: Mapping[str, Callable[[Folder], BertCheckpoint | ImageCheckpoint]] = {
    "bert": partial(load_text, mapping=BERT),
    "camembert": partial(load_text, mapping=ROBERTA),
    "deit": load_deit,
    "distilbert": partial(load_text, mapping=DISTILBERT),
    "modernbert": partial(load_text, mapping=MODERNBERT),
    "roberta": partial(load_text, mapping=ROBERTA),
    "swin": load_swin,
    "vit": load_vit,
    "xlm-roberta": partial(load_text, mapping=ROBERTA),
}
DECODER_ONLY = ("ForCausalLM", "LMHeadModel")  # suffixes of class names


def load(folder: Folder, source_language: str = "", target_language: str = "") -> Loaded:
    """Load the model of a folder into our own modules.

    Args:
        folder: the checkpoint.
        source_language: for encoder-decoders, the only source language to offer, or the name of an undetermined one.
        target_language: the same for targets.

    Raises:
        SourceError: the architecture is not supported; files are missing, damaged or contradict each other; or languages are
            given for a model that does not translate.
    """
    if folder.architecture.endswith(DECODER_ONLY) and not folder.config.get("is_encoder_decoder", False):
        raise _unsupported(folder, "is a decoder-only language model, which is not supported")
    if translation_loader := TRANSLATION_LOADERS.get(folder.model_type):
        return translation_loader(folder, source_language, target_language)
    loader = LOADERS.get(folder.model_type)
    if loader is None:
        raise _unsupported(folder, "is not supported")
    if source_language or target_language:
        raise folder.config_error(f"{_kind(folder)} does not translate; remove source_language and target_language")
    return loader(folder)


def _kind(folder: Folder) -> str:
    kind = f"model_type {folder.model_type!r}" if folder.model_type else "no model_type"
    return f"{kind} ({folder.architecture or 'no architecture'})"


def _unsupported(folder: Folder, problem: str) -> SourceError:
    supported = f"supported are encoder-decoders: {', '.join(TRANSLATION_LOADERS)}; encoders: {', '.join(sorted(LOADERS))}"
    return folder.config_error(f"{_kind(folder)} {problem}; {supported}")
