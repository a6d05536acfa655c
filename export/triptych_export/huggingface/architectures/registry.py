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
from triptych_export.huggingface.checkpoint.text import load_text
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
_ROBERTA = partial(load_text, mapping=bert.ROBERTA), bert.BERT_NEUTRAL
_GTE = partial(load_text, mapping=rotary_encoders.GTE), rotary_encoders.GTE_NEUTRAL
Loaders = Mapping[str, tuple[Callable[[Folder], TextCheckpoint | ImageCheckpoint | GenerationSource], Neutral]]
TEXT_LOADERS: Loaders = {
    "albert": (partial(load_text, mapping=bert.ALBERT), bert.ALBERT_NEUTRAL),
    "bert": (partial(load_text, mapping=bert.BERT), bert.BERT_NEUTRAL),
    "big_bird": (partial(load_text, mapping=bert_relatives.BIG_BIRD), bert_relatives.BIG_BIRD_NEUTRAL),
    "camembert": _ROBERTA,
    "data2vec-text": _ROBERTA,
    "deberta-v2": (bert.load_deberta, bert.DEBERTA_NEUTRAL),
    "distilbert": (partial(load_text, mapping=bert.DISTILBERT), bert.DISTILBERT_NEUTRAL),
    "electra": (partial(load_text, mapping=bert.ELECTRA), bert.ELECTRA_NEUTRAL),
    "ernie": (bert.load_ernie, bert.ERNIE_NEUTRAL),
    "eurobert": (rotary_encoders.load_eurobert, rotary_encoders.EUROBERT_NEUTRAL),
    "gte": _GTE,
    "ibert": (partial(load_text, mapping=bert_relatives.IBERT), bert_relatives.IBERT_NEUTRAL),
    "jina_embeddings_v3": (partial(load_text, mapping=rotary_encoders.JINA), bert.BERT_NEUTRAL),
    "megatron-bert": (partial(load_text, mapping=bert_relatives.MEGATRON), bert.BERT_NEUTRAL),
    "modernbert": (partial(load_text, mapping=bert.MODERNBERT), bert.MODERNBERT_NEUTRAL),
    "mpnet": (partial(load_text, mapping=bert.MPNET), bert.MPNET_NEUTRAL),
    "new": _GTE,  # in its authors' files
    "nomic_bert": (partial(load_text, mapping=rotary_encoders.NOMIC_BERT), rotary_encoders.NOMIC_NEUTRAL),
    "roberta": _ROBERTA,
    "roberta-prelayernorm": (partial(load_text, mapping=bert.ROBERTA_PRELAYERNORM), bert.BERT_NEUTRAL),
    "roformer": (bert_relatives.load_roformer, bert_relatives.ROFORMER_NEUTRAL),
    "squeezebert": (partial(load_text, mapping=bert_relatives.SQUEEZE), bert_relatives.SQUEEZE_NEUTRAL),
    "xlm-roberta": _ROBERTA,
    "xlm-roberta-xl": (partial(load_text, mapping=bert.XLM_ROBERTA_XL), bert.BERT_NEUTRAL),
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
    except WeightsError:
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
