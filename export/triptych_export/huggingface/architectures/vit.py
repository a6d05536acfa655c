"""ViT: model_type "vit". Reference: https://huggingface.co/docs/transformers/model_doc/vit"""

from typing import Any

import torch

from triptych_export.huggingface.checkpoint.activations import activation
from triptych_export.huggingface.checkpoint.image_config import check_architecture, image_checkpoint, make_config, sides
from triptych_export.huggingface.checkpoint.image_processor import read_image_processor
from triptych_export.huggingface.checkpoint.mapping import Rule, load_rules
from triptych_export.huggingface.checkpoint.weights import StoredWeights, open_weights
from triptych_export.huggingface.folder import Folder
from triptych_training.checkpoints.encoder import ImageCheckpoint
from triptych_training.models.vit import Vit, VitConfig

ARCHITECTURES = ("ViTForImageClassification",)
LAYER = "encoder.layer.{i}"
RULES = (
    Rule("class_token", "embeddings.cls_token"),
    Rule("positions", "embeddings.position_embeddings", change=lambda positions: positions[0]),
    Rule("stem", "embeddings.patch_embeddings.projection"),
    Rule(
        "layers.{i}.attention.query_key_value",
        *(f"{LAYER}.attention.attention.{part}" for part in ("query", "key", "value")),
    ),
    Rule("layers.{i}.attention.output", f"{LAYER}.attention.output.dense"),
    Rule("layers.{i}.attention_residual.norm", f"{LAYER}.layernorm_before"),
    Rule("layers.{i}.feedforward.expand", f"{LAYER}.intermediate.dense"),
    Rule("layers.{i}.feedforward.contract", f"{LAYER}.output.dense"),
    Rule("layers.{i}.feedforward_residual.norm", f"{LAYER}.layernorm_after"),
    Rule("norm", "layernorm"),
    Rule("classifier", "classifier"),
)
IGNORED = ("*pooler.*", "*.mask_token")


def load_vit(folder: Folder) -> ImageCheckpoint:
    """Load the classifier of a folder.

    Raises:
        SourceError: the folder holds another model than a classifier, or its files are missing, damaged or do not fit together.
    """
    check_architecture(folder, ARCHITECTURES)
    weights = open_weights(folder.path)
    classes = count_classes(weights, "classifier")
    shape = make_config(folder, lambda: VitConfig(**vit_members(folder), classes=classes))
    with torch.device("meta"):
        model = Vit(shape)
    load_rules(model, weights, RULES, IGNORED, prefixes=("vit.",))
    return image_checkpoint(folder, model, read_image_processor(folder))


def vit_members(folder: Folder) -> dict[str, Any]:
    """Members of VitConfig, with transformers' defaults for those missing in config.json.

    Raises:
        ValueError: a size is of no use; the message names it.
        SourceError: the activation is unknown.
    """
    config = folder.config
    height, width = sides("image_size", config.get("image_size", 224))
    patch_height, patch_width = sides("patch_size", config.get("patch_size", 16))
    return {
        "image_size": height,
        "image_width": width,
        "patch_size": patch_height,
        "patch_width": patch_width,
        "model_dim": config.get("hidden_size", 768),
        "heads": config.get("num_attention_heads", 12),
        "feedforward_dim": config.get("intermediate_size", 3072),
        "layers": config.get("num_hidden_layers", 12),
        "norm_epsilon": config.get("layer_norm_eps", 1e-12),
        "activation": activation(folder, "hidden_act"),
        "input_bias": config.get("qkv_bias", True),
    }


def count_classes(weights: StoredWeights, classifier: str) -> int:
    """Count the classifier's rows; 1 if it is missing, which the mapping rules report."""
    shape = weights.get(f"{classifier}.weight")
    return shape[0] if shape else 1
