"""Table of supported architectures, by `model_type` of config.json."""

from collections.abc import Callable, Mapping
from functools import partial

from triptych_export.errors import WeightsError
from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.architectures import (
    bart,
    bert,
    bert_relatives,
    image_classifiers,
    image_gpt,
    rotary_encoders,
    t5,
    timm_vit,
)
from triptych_export.huggingface.architectures.decoders import HEAD_NEUTRAL, load_decoder, load_states
from triptych_export.huggingface.architectures.gpt_decoders import GPTS
from triptych_export.huggingface.architectures.llama_decoders import LLAMAS
from triptych_export.huggingface.architectures.zero_shot import Prompts
from triptych_export.huggingface.checkpoint.config import ENCODER_DECODER, TEXT, TOKENS, check_members
from triptych_export.huggingface.checkpoint.sentence_transformers import MODULES
from triptych_export.huggingface.checkpoint.seq2seq import BART_NEUTRAL
from triptych_export.huggingface.checkpoint.text import TextMapping, load_text
from triptych_export.huggingface.folder import TIMM_WRAPPER, Folder, Neutral
from triptych_export.translation_source import TranslationSource
from triptych_training.checkpoints.encoder import ImageCheckpoint, TextCheckpoint

Loaded = TranslationSource | GenerationSource | TextCheckpoint | ImageCheckpoint


# By type: the loader, and what it does not read from config.json because it changes no result.
TRANSLATION_LOADERS: Mapping[str, tuple[Callable[[Folder, str, str], TranslationSource], Neutral]] = {
    "bart": (bart.load_bart, BART_NEUTRAL),
    "blenderbot": (bart.load_blenderbot, bart.BLENDERBOT_NEUTRAL),
    "m2m_100": (bart.load_m2m100, BART_NEUTRAL),
    "marian": (bart.load_marian, bart.MARIAN_NEUTRAL),
    "mbart": (bart.load_mbart, BART_NEUTRAL),
    "mt5": (t5.load_t5, ENCODER_DECODER),
    "mvp": (bart.load_bart, bart.MVP_NEUTRAL),
    "pegasus": (bart.load_pegasus, BART_NEUTRAL),
    "t5": (t5.load_t5, ENCODER_DECODER),
    "umt5": (t5.load_t5, t5.UMT5_NEUTRAL),
}
TEXTS: Mapping[str, TextMapping] = {
    "albert": bert.ALBERT,
    "bert": bert.BERT,
    "big_bird": bert_relatives.BIG_BIRD,
    "camembert": bert.ROBERTA,
    "data2vec-text": bert.ROBERTA,
    "deberta-v2": bert.DEBERTA,
    "distilbert": bert.DISTILBERT,
    "electra": bert.ELECTRA,
    "ernie": bert.ERNIE,
    "gte": rotary_encoders.GTE,
    "ibert": bert_relatives.IBERT,
    "jina_embeddings_v3": rotary_encoders.JINA,
    "megatron-bert": bert_relatives.MEGATRON,
    "modernbert": bert.MODERNBERT,
    "mpnet": bert.MPNET,
    "new": rotary_encoders.GTE,  # in its authors' files
    "nomic_bert": rotary_encoders.NOMIC_BERT,
    "roberta": bert.ROBERTA,
    "roberta-prelayernorm": bert.ROBERTA_PRELAYERNORM,
    "roformer": bert_relatives.ROFORMER,
    "squeezebert": bert_relatives.SQUEEZE,
    "xlm-roberta": bert.ROBERTA,
    "xlm-roberta-xl": bert.XLM_ROBERTA_XL,
}
Loaders = Mapping[str, tuple[Callable[[Folder], TextCheckpoint | ImageCheckpoint | GenerationSource], Neutral]]
TEXT_LOADERS: Loaders = {
    **{name: (partial(load_text, mapping=mapping), mapping.neutral) for name, mapping in TEXTS.items()},
    "eurobert": (partial(load_states, mapping=rotary_encoders.EUROBERT), rotary_encoders.EUROBERT.neutral),
}
LOADERS: Loaders = {
    **TEXT_LOADERS,
    "beit": (image_classifiers.load_beit, image_classifiers.BEIT_NEUTRAL),
    "clip": (image_classifiers.load_clip, image_classifiers.CLIP_NEUTRAL),
    "data2vec-vision": (image_classifiers.load_beit, image_classifiers.BEIT_NEUTRAL),
    "deit": (image_classifiers.load_deit, image_classifiers.VIT_NEUTRAL),
    "dinov2": (image_classifiers.load_dino, image_classifiers.DINO_NEUTRAL),
    "dinov2_with_registers": (image_classifiers.load_dino, image_classifiers.DINO_NEUTRAL),
    "imagegpt": (image_gpt.load_image_gpt, image_gpt.NEUTRAL),
    "pvt": (image_classifiers.load_pvt, image_classifiers.PVT_NEUTRAL),
    "pvt_v2": (image_classifiers.load_pvt, image_classifiers.PVT_NEUTRAL),
    "siglip": (image_classifiers.load_clip, image_classifiers.CLIP_NEUTRAL),
    TIMM_WRAPPER: (timm_vit.load_timm, timm_vit.NEUTRAL),
    "swin": (image_classifiers.load_swin, image_classifiers.SWIN_NEUTRAL),
    "swinv2": (image_classifiers.load_swin, image_classifiers.SWIN_NEUTRAL),
    "vit": (image_classifiers.load_vit, image_classifiers.VIT_NEUTRAL),
    "vit_msn": (image_classifiers.load_vit, image_classifiers.VIT_NEUTRAL),
}
DECODERS = {**GPTS, **LLAMAS}
QUANTIZATION = "quantization_config"  # member of config.json


def load(folder: Folder, source_language: str = "", target_language: str = "", prompts: Prompts | None = None) -> Loaded:
    """Load the model of a folder into our own modules.

    Of an encoder-decoder, `source_language` is the only source language to offer, or the name of an undetermined one;
    `target_language` likewise. With `prompts`, a CLIP becomes a zero-shot classifier.

    Raises:
        SourceError: the architecture or a member of config.json is not supported; files are missing, damaged or contradict each
            other; or languages are given for a model that does not translate.
    """
    neutral, open_model = _loader(folder, source_language, target_language, prompts)
    try:
        loaded = open_model()
    except WeightsError as error:
        if given := folder.config.whole.get(QUANTIZATION):
            remedy = "export the model in full precision that they were made of"
            fault = f"{given!r:.60} is not supported, and the weights seem to be quantized; {remedy}"
            raise folder.config_error(f"{QUANTIZATION}: {fault}") from error
        check_members(folder, neutral)  # an unsupported member says why they do not fit
        raise
    check_members(folder, neutral)
    return loaded


def _loader(
    folder: Folder, source_language: str, target_language: str, prompts: Prompts | None
) -> tuple[Neutral, Callable[[], Loaded]]:
    """Find the neutral members of the folder's `model_type`, and what loads it."""
    if folder.model_type not in {**TRANSLATION_LOADERS, **LOADERS, **DECODERS}:
        groups = {"encoder-decoders": TRANSLATION_LOADERS, "decoders": DECODERS, "encoders": LOADERS}
        supported = "; ".join(f"{name}: {', '.join(sorted(loaders))}" for name, loaders in groups.items())
        elsewhere = "" if folder.model_type else folder.elsewhere()
        raise folder.config_error(f"{_kind(folder)} is not supported{elsewhere}; supported are {supported}")
    if folder.model_type in TRANSLATION_LOADERS and folder.has(MODULES):
        known = ", ".join((*TEXT_LOADERS, *DECODERS))
        raise folder.config_error(f"{_kind(folder)} is not supported as a sentence encoder ({MODULES}); supported: {known}")
    if folder.model_type in TRANSLATION_LOADERS:
        translate, neutral = TRANSLATION_LOADERS[folder.model_type]
        return neutral, lambda: translate(folder, source_language, target_language)
    if source_language or target_language:
        raise folder.config_error(f"{_kind(folder)} does not translate; remove source_language and target_language")
    if folder.model_type in DECODERS:
        mapping = DECODERS[folder.model_type]
        if folder.has(MODULES) or folder.architecture.endswith((TEXT, TOKENS)):  # without an output matrix
            return {**mapping.neutral, **HEAD_NEUTRAL}, lambda: load_states(folder, mapping)
        return mapping.neutral, lambda: load_decoder(folder, mapping)
    if prompts is not None:
        return image_classifiers.ZERO_SHOT_NEUTRAL, partial(image_classifiers.load_zero_shot, folder, prompts)
    encode, neutral = LOADERS[folder.model_type]
    return neutral, lambda: encode(folder)


def _kind(folder: Folder) -> str:
    kind = f"model_type {folder.model_type!r}" if folder.model_type else "no model_type"
    return f"{kind} ({folder.architecture or 'no architecture'})"
