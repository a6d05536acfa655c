"""The manifest of a bundle, `bundle.json`: what the files beside it are and how to serve them.

Members of every bundle:

format                1; which releases read which is in serving/docs/compatibility.md
task                  "translation", "text-generation", "fill-mask", "text-classification", "token-classification",
                      "question-answering", "text-embedding", "image-classification", "image-generation",
                      "unconditional-image-generation" or "tensors"
family                the architecture's name, such as "triptych-transformer", "triptych-bert" or "triptych-vit"
precisions            name -> the graphs' file names, {graph} (translation: {encoder, step, search, score} and, with a
                      shortlist, four more: see TranslationGraphs; text- and image-generation: {step, search, score};
                      unconditional-image-generation: {encode, decode});
                      `saturation_free` (optional): the integer weights have 7 bits, their products fit the fast kernels of
                      every processor
                      `attend` (optional): the graph with attention weights
                      "fp16" has graphs for CUDA, see triptych_export: other inputs, other shapes of memory
                      "int8-caches" and "int4-int8-caches" are int8 and int4 with key-value caches in int8; their
                      scales are in the graphs, or of decoder-only models beside each key and value
default_precision     one of them
files                 name -> {sha256, bytes}; every file of the bundle but this one
provenance, metrics, parity    for users and tools; not needed to serve

The other members belong to a task's family: see TranslationManifest, PromptedTranslationManifest, TextGenerationManifest,
TextManifest, ImageManifest, AutoencoderManifest and TensorsManifest.
"""

from triptych_serving.bundle.manifest.base import (
    FILE_NAME,
    FORMAT,
    FP16,
    INT4,
    INT4_INT8_CACHES,
    INT8,
    INT8_CACHES,
    INT8_WEIGHTS,
    MAX_FILE_BYTES,
    OLDEST_FORMAT,
    WITH_INT8_CACHES,
    Manifest,
    StoredFile,
    runs_on,
)
from triptych_serving.bundle.manifest.frames import BARE, Frames, Framing, SourceFrame, TargetFrame
from triptych_serving.bundle.manifest.image import IMAGE_CLASSIFICATION, IMAGE_SAMPLING, AutoencoderManifest, ImageManifest
from triptych_serving.bundle.manifest.reader import TASKS, read_manifest
from triptych_serving.bundle.manifest.tensors import TENSORS, TensorsManifest
from triptych_serving.bundle.manifest.text import (
    AGGREGATIONS,
    FILL_MASK,
    QUESTION_ANSWERING,
    TEXT_CLASSIFICATION,
    TEXT_EMBEDDING,
    TOKEN_CLASSIFICATION,
    TextManifest,
    TextTokens,
)
from triptych_serving.bundle.manifest.text_generation import (
    IMAGE_GENERATION,
    TEXT_GENERATION,
    Colours,
    PromptedTranslationManifest,
    TextGenerationManifest,
)
from triptych_serving.bundle.manifest.translation import (
    TRANSLATION,
    AlignmentHeads,
    DecoderShape,
    Generation,
    Limits,
    SpecialTokens,
    TranslationGraphs,
    TranslationManifest,
)

AnyTranslationManifest = TranslationManifest | PromptedTranslationManifest

__all__ = [
    "AGGREGATIONS",
    "BARE",
    "FILE_NAME",
    "FILL_MASK",
    "FORMAT",
    "FP16",
    "IMAGE_CLASSIFICATION",
    "IMAGE_GENERATION",
    "IMAGE_SAMPLING",
    "INT4",
    "INT4_INT8_CACHES",
    "INT8",
    "INT8_CACHES",
    "INT8_WEIGHTS",
    "MAX_FILE_BYTES",
    "OLDEST_FORMAT",
    "QUESTION_ANSWERING",
    "TASKS",
    "TENSORS",
    "TEXT_CLASSIFICATION",
    "TEXT_EMBEDDING",
    "TEXT_GENERATION",
    "TOKEN_CLASSIFICATION",
    "TRANSLATION",
    "WITH_INT8_CACHES",
    "AlignmentHeads",
    "AnyTranslationManifest",
    "AutoencoderManifest",
    "Colours",
    "DecoderShape",
    "Frames",
    "Framing",
    "Generation",
    "ImageManifest",
    "Limits",
    "Manifest",
    "PromptedTranslationManifest",
    "SourceFrame",
    "SpecialTokens",
    "StoredFile",
    "TargetFrame",
    "TensorsManifest",
    "TextGenerationManifest",
    "TextManifest",
    "TextTokens",
    "TranslationGraphs",
    "TranslationManifest",
    "read_manifest",
    "runs_on",
]
