"""ImageGPT checkpoints (Chen et al. 2020): classifiers of images, and models that complete them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from triptych_export.generation_source import GenerationSource
from triptych_export.huggingface.architectures.decoders import load_gpt, make_source
from triptych_export.huggingface.architectures.gpt_decoders import GPT2_MAPPING, GPT2_NEUTRAL, gpt2_members
from triptych_export.huggingface.checkpoint.config import check_architecture, integer
from triptych_export.huggingface.checkpoint.image import FILE, class_names, read_image_processor
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules, make_model
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import Folder
from triptych_training.checkpoints.encoder import ImageCheckpoint, ImagePreprocessing
from triptych_training.models.gpt import GptConfig
from triptych_training.models.image_gpt import ImageGpt, ImageGptConfig

CLASSIFIER, COMPLETER = "ImageGPTForImageClassification", "ImageGPTForCausalImageModeling"
NEUTRAL = {**GPT2_NEUTRAL, "tie_word_embeddings": (False,)}


def _members(folder: Folder) -> Mapping[str, Any]:
    return {**gpt2_members(folder, "quick_gelu"), "norm_kind": "rms"}


def load_image_gpt(folder: Folder) -> ImageCheckpoint | GenerationSource:
    """Load a classifier, or a model that completes images."""
    check_architecture(folder, CLASSIFIER, COMPLETER, required=True)
    image, colours = read_image_processor(folder), _colours(folder)
    if folder.architecture == COMPLETER:
        if image != ImagePreprocessing(image.height, image.width, interpolation=image.interpolation):
            raise folder.config_error(f"{FILE}: an image to complete must not be cropped, and its pixels be from -1 to 1")
        if image.height * image.width > (most := integer(folder, "n_positions")):
            raise folder.config_error(f"n_positions: {most} are too few for images of {image.height} x {image.width} pixels")
        outputs = integer(folder, "vocab_size") - 1  # all but the start of an image
        if len(colours) != outputs:
            raise folder.config_error(f"vocab_size: {outputs + 1} is not one more than the {len(colours)} clusters of {FILE}")
        mapping = replace(
            GPT2_MAPPING, architecture=COMPLETER, members=lambda folder: {**_members(folder), "tied": False, "outputs": outputs}
        )
        source = make_source(folder, load_gpt(folder, mapping, open_weights(folder.path)), None)
        return replace(source, pad=0, ends=(), start=outputs, colours=colours, image=image)
    weights = open_weights(folder.path)
    rows = weights.get("score.weight")

    def make() -> ImageGpt:
        gpt = GptConfig(vocabulary_size=integer(folder, "vocab_size"), **_members(folder))  # tied: without an output
        return ImageGpt(ImageGptConfig(gpt, len(colours), rows[0] if rows else 1, (image.height, image.width)))

    model = make_model(folder, make)
    model.colours = torch.from_numpy(colours)
    rules = [*(rule.under("gpt") for rule in GPT2_MAPPING.rules), Rule("classifier", "score")]
    load_rules(model, weights, rules, (*GPT2_MAPPING.ignored, "lm_head.weight"), GPT2_MAPPING.prefixes)
    labels = class_names(folder, model.config.classes)
    return ImageCheckpoint(model, labels, image, {"architecture": folder.architecture}, family=folder.model_type)


def _colours(folder: Folder) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Read the colours, `[tokens, 3]` from -1 to 1."""
    given = folder.members(FILE).get("clusters")
    try:
        colours = np.array(given, np.float32)
    except (TypeError, ValueError):
        colours = np.zeros(0, np.float32)
    if colours.ndim != 2 or colours.shape[1] != 3 or not len(colours):
        raise folder.config_error(f"clusters of {FILE}: {given!r:.40}, expected a list of colours of three numbers")
    return colours
