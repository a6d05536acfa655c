"""Swin: model_type "swin". Reference: https://huggingface.co/docs/transformers/model_doc/swin"""

from typing import Any

import torch

from triptych_export.huggingface.architectures.vit import count_classes
from triptych_export.huggingface.checkpoint.activations import activation
from triptych_export.huggingface.checkpoint.image_config import check_architecture, image_checkpoint, make_config, sides
from triptych_export.huggingface.checkpoint.image_processor import read_image_processor
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import Folder
from triptych_training.checkpoints.encoder import ImageCheckpoint, ImagePreprocessing
from triptych_training.models.swin import Swin, SwinConfig

ARCHITECTURES = ("SwinForImageClassification",)
OURS, LAYER = "stages.{i}.layers.{j}", "encoder.layers.{i}.blocks.{j}"
RULES = (
    Rule("stem", "embeddings.patch_embeddings.projection"),
    Rule("stem_norm", "embeddings.norm"),
    Rule("positions", "embeddings.position_embeddings", change=lambda positions: positions[0]),
    Rule(f"{OURS}.attention.query_key_value", *(f"{LAYER}.attention.self.{part}" for part in ("query", "key", "value"))),
    Rule(f"{OURS}.relative_positions", f"{LAYER}.attention.self.relative_position_bias_table"),
    Rule(f"{OURS}.attention.output", f"{LAYER}.attention.output.dense"),
    Rule(f"{OURS}.attention_residual.norm", f"{LAYER}.layernorm_before"),
    Rule(f"{OURS}.feedforward.expand", f"{LAYER}.intermediate.dense"),
    Rule(f"{OURS}.feedforward.contract", f"{LAYER}.output.dense"),
    Rule(f"{OURS}.feedforward_residual.norm", f"{LAYER}.layernorm_after"),
    Rule("stages.{i}.merging.norm", "encoder.layers.{i}.downsample.norm"),
    Rule("stages.{i}.merging.reduction", "encoder.layers.{i}.downsample.reduction"),
    Rule("norm", "layernorm"),
    Rule("classifier", "classifier"),
)
IGNORED = ("*.relative_position_index", "*.mask_token")


def load_swin(folder: Folder) -> ImageCheckpoint:
    """Load the classifier of a folder.

    Raises:
        SourceError: the folder holds another model than a classifier, or its files are missing, damaged or do not fit together.
    """
    check_architecture(folder, ARCHITECTURES)
    weights = open_weights(folder.path)
    classes, image = count_classes(weights, "classifier"), read_image_processor(folder)
    shape = make_config(folder, lambda: SwinConfig(**_members(folder, image), classes=classes))
    with torch.device("meta"):
        model = Swin(shape)
    load_rules(model, weights, RULES, IGNORED, prefixes=("swin.",))
    return image_checkpoint(folder, model, image)


def _members(folder: Folder, image: ImagePreprocessing) -> dict[str, Any]:
    """Members of SwinConfig, with transformers' defaults for those missing in config.json.

    Without absolute positions the weights fit images of any size: the processor's counts, as it does in transformers.
    """
    config = folder.config
    absolute = config.get("use_absolute_embeddings", False)
    height, width = sides("image_size", config.get("image_size", 224)) if absolute else (image.height, image.width)
    patch_height, patch_width = sides("patch_size", config.get("patch_size", 4))
    return {
        "image_size": height,
        "image_width": width,
        "patch_size": patch_height,
        "patch_width": patch_width,
        "model_dim": config.get("embed_dim", 96),
        "depths": tuple(config.get("depths", (2, 2, 6, 2))),
        "heads": tuple(config.get("num_heads", (3, 6, 12, 24))),
        "window_size": config.get("window_size", 7),
        "feedforward_ratio": config.get("mlp_ratio", 4.0),
        "norm_epsilon": config.get("layer_norm_eps", 1e-5),
        "activation": activation(folder, "hidden_act"),
        "input_bias": config.get("qkv_bias", True),
        "absolute_positions": absolute,
    }
