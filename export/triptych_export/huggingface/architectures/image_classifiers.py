"""ViT, DeiT, Swin and PVT image classifiers (Dosovitskiy et al. 2020; Touvron et al. 2020; Liu et al. 2021; Wang et al. 2021).

Version 2 of Swin is Liu et al. 2022.

Variants of ViT: ViTMSN (Assran et al. 2022), DINOv2 (Oquab et al. 2023; with registers Darcet et al. 2023), CLIP (Radford et
al. 2021), SigLIP (Zhai et al. 2023), BEiT (Bao et al. 2021) and data2vec (Baevski et al. 2022).
Members missing in config.json have the defaults of transformers:
https://huggingface.co/docs/transformers/model_doc/vit (also /deit, /swin, /swinv2, /pvt, /pvt_v2, /vit_msn, /dinov2, /clip,
/siglip and /beit).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from triptych_export.errors import SourceError
from triptych_export.huggingface.architectures.zero_shot import Prompts, label_vectors
from triptych_export.huggingface.checkpoint.config import (
    COMMON,
    ENCODER,
    SINGLE_LABEL,
    activation,
    check_architecture,
    flag,
    integer,
)
from triptych_export.huggingface.checkpoint.image import CHANNELS, class_names, read_image_processor, sides
from triptych_export.huggingface.checkpoint.mapping import Rule, block_rules, load_rules, make_model, scaled_rules, split_rules
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import CONFIG, Folder, neutral
from triptych_training.checkpoints.encoder import ImageCheckpoint, ImageModel, ImagePreprocessing
from triptych_training.models.pvt import LINEAR, VERSION_1, VERSION_2, Pvt, PvtConfig
from triptych_training.models.swin import Swin, SwinConfig
from triptych_training.models.vit import BOTH, FIRST, MEAN, MEAN_FIRST, CosineClassifier, Vit, VitConfig

DEIT, DEIT_WITH_TEACHER = "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher"
QUERY_KEY_VALUE = ("query", "key", "value")
BLOCK_NAMES = ("attention.output.dense", "layernorm_before", "intermediate.dense", "output.dense", "layernorm_after")
SWIN_OURS, SWIN_THEIRS = "stages.{i}.layers.{j}", "encoder.layers.{i}.blocks.{j}"
LARGEST_FACTOR = 100.0  # on cosines
BLOCK = "encoder.layer.{i}"
COMMON_RULES = (
    Rule("stem", "embeddings.patch_embeddings.projection"),
    Rule("positions", "embeddings.position_embeddings", change=lambda positions: positions[0]),
    Rule("norm", "layernorm"),
    Rule("classifier", "classifier"),
    Rule("class_token", "embeddings.cls_token"),
)
VIT_INPUTS = [f"attention.attention.{part}" for part in QUERY_KEY_VALUE]
VIT_RULES = (*COMMON_RULES, *block_rules("layers.{i}", BLOCK, VIT_INPUTS, *BLOCK_NAMES))
DINO_NAMES = ("attention.output.dense", "norm1", "mlp.fc1", "mlp.fc2", "norm2")
DINO_RULES = (
    Rule("registers", "embeddings.register_tokens"),
    *scaled_rules("layers.{i}.attention.output", f"{BLOCK}.attention.output.dense", f"{BLOCK}.layer_scale1.lambda1"),
    *scaled_rules("layers.{i}.feedforward.contract", f"{BLOCK}.mlp.fc2", f"{BLOCK}.layer_scale2.lambda1"),
    *block_rules("layers.{i}", BLOCK, VIT_INPUTS, *DINO_NAMES),
    *COMMON_RULES,
)
GATED_RULES = (
    *split_rules(f"{BLOCK}.mlp.weights_in", "layers.{i}.feedforward.gate", "layers.{i}.feedforward.expand"),
    *scaled_rules("layers.{i}.feedforward.contract", f"{BLOCK}.mlp.weights_out", f"{BLOCK}.layer_scale2.lambda1"),
)
BEIT_TABLE = "relative_position_bias.relative_position_bias_table"
BEIT_SCALE_RULES = (
    *scaled_rules("layers.{i}.attention.output", f"{BLOCK}.attention.output.dense", f"{BLOCK}.lambda_1"),
    *scaled_rules("layers.{i}.feedforward.contract", f"{BLOCK}.output.dense", f"{BLOCK}.lambda_2"),
)
CLIP_BLOCK, CLIP_NAMES = "encoder.layers.{i}", ("self_attn.out_proj", "layer_norm1", "mlp.fc1", "mlp.fc2", "layer_norm2")
CLIP_RULES = (
    Rule("stem", "embeddings.patch_embedding"),
    Rule("positions", "embeddings.position_embedding.weight"),
    Rule("class_token", "embeddings.class_embedding", change=lambda token: token[None, None]),
    Rule("embedding_norm", "pre_layrnorm"),
    *block_rules("layers.{i}", CLIP_BLOCK, [f"self_attn.{part}_proj" for part in "qkv"], *CLIP_NAMES),
    Rule("norm", "post_layernorm"),
    Rule("classifier", "classifier"),
)
# These come before ViT's rules, which match "classifier" too.
TEACHER_RULES = (Rule("classifier", "cls_classifier"), Rule("distillation_classifier", "distillation_classifier"))
TOKEN_RULE = Rule("distillation_token", "embeddings.distillation_token")
SWIN_RULES = (
    *COMMON_RULES,
    Rule("stem_norm", "embeddings.norm"),
    *block_rules(SWIN_OURS, SWIN_THEIRS, [f"attention.self.{part}" for part in QUERY_KEY_VALUE], *BLOCK_NAMES),
    Rule(f"{SWIN_OURS}.relative_positions", f"{SWIN_THEIRS}.attention.self.relative_position_bias_table"),
    Rule("stages.{i}.merging.norm", "encoder.layers.{i}.downsample.norm"),
    Rule("stages.{i}.merging.reduction", "encoder.layers.{i}.downsample.reduction"),
)


def _pvt_rules(stage: str, projection: str, layer: str, attention: str, output: str, reduction: str, norm: str) -> list[Rule]:
    """Rules of PVT, whose versions name the parts of a stage and of a layer differently."""
    ours = "stages.{i}.layers.{j}"
    query, key, value = (f"{layer}.{attention}.{part}" for part in QUERY_KEY_VALUE)
    return [
        Rule("stages.{i}.projection", f"{stage}.{projection}"),
        Rule("stages.{i}.projection_norm", f"{stage}.layer_norm"),
        Rule("stages.{i}.positions", f"{stage}.position_embeddings", change=lambda positions: positions[0]),
        Rule("stages.{i}.class_token", f"{stage}.cls_token", change=lambda token: token[0]),
        Rule("stages.{i}.norm", norm),
        Rule(f"{ours}.attention.query", query),
        Rule(f"{ours}.attention.key_value", key, value),
        *block_rules(ours, layer, (), output, "layer_norm_1", "mlp.dense1", "mlp.dense2", "layer_norm_2"),
        Rule(f"{ours}.reduction.projection", f"{layer}.{attention}.{reduction}"),
        Rule(f"{ours}.reduction.norm", f"{layer}.{attention}.layer_norm"),
        Rule(f"{ours}.feedforward.channels", f"{layer}.mlp.dwconv.dwconv"),
        Rule("classifier", "classifier"),
    ]


PVT_RULES = _pvt_rules(
    *("encoder.patch_embeddings.{i}", "projection", "encoder.block.{i}.{j}"),
    *("attention.self", "attention.output.dense", "sequence_reduction", "encoder.layer_norm"),
)
PVT_V2_RULES = _pvt_rules(
    *("encoder.layers.{i}.patch_embedding", "proj", "encoder.layers.{i}.blocks.{j}"),
    *("attention", "attention.proj", "spatial_reduction", "encoder.layers.{i}.layer_norm"),
)
BACKBONE = {**ENCODER, **neutral("drop_path_rate out_features out_indices stage_names")}
VIT_NEUTRAL = {**ENCODER, **neutral("tie_word_embeddings encoder_stride pooler_act pooler_output_size")}
DINO_NEUTRAL = {  # positions are resized from a square to the size of the processor's images
    **VIT_NEUTRAL,
    **BACKBONE,
    **neutral("image_size layerscale_value use_mask_token apply_layernorm reshape_hidden_states"),
}
BEIT_NEUTRAL = {
    **VIT_NEUTRAL,
    **BACKBONE,
    **neutral(
        """
        vocab_size use_mask_token pool_scales use_auxiliary_head auxiliary_loss_weight auxiliary_channels auxiliary_num_convs
        auxiliary_concat_input semantic_loss_ignore_index add_fpn reshape_hidden_states segmentation_indices
        """
    ),
}
SWIN_NEUTRAL = {  # image_size is read with absolute positions only, which depend on it
    **BACKBONE,
    **neutral("tie_word_embeddings encoder_stride hidden_size num_layers image_size", path_norm=(True,)),
}
# image_size is read with version 1 only, whose positions depend on it
PVT_NEUTRAL = {**BACKBONE, **neutral("hidden_size num_layers image_size")}
# Members of config.json, and of its `vision_config`.
CLIP_NEUTRAL = {
    **COMMON,
    **neutral("text_config vision_config logit_scale_init_value projection_dim tie_word_embeddings"),
}
ZERO_SHOT_NEUTRAL = {**CLIP_NEUTRAL, **neutral("text_config_dict vision_config_dict")}  # compared with transformers anyway
VISION_NEUTRAL = {**COMMON, **neutral("projection_dim vision_use_head")}
IGNORED = ("*pooler.*", "*.mask_token")


def load_vit(folder: Folder) -> ImageCheckpoint:
    """Load a ViT or ViTMSN classifier; see `_load` for errors."""
    name, epsilon = ("ViTMSN", 1e-6) if folder.model_type == "vit_msn" else ("ViT", 1e-12)

    def make(classes: int, _image: ImagePreprocessing) -> Vit:
        return Vit(VitConfig(classes, **_vit_members(folder, epsilon=epsilon)))

    return _load(folder, (f"{name}ForImageClassification",), make, VIT_RULES, IGNORED, prefix="vit.")


def load_dino(folder: Folder) -> ImageCheckpoint:
    """Load a DINOv2 classifier, with or without registers; see `_load` for errors."""
    registers = folder.model_type == "dinov2_with_registers"
    name = f"Dinov2{'WithRegisters' * registers}ForImageClassification"
    gated = flag(folder, "use_swiglu_ffn", default=False)
    count = integer(folder, "num_register_tokens", 4) if registers else 0

    def make(classes: int, image: ImagePreprocessing) -> Vit:
        width, ratio = integer(folder, "hidden_size", 768), folder.config.get("mlp_ratio", 4)
        inner = int(width * ratio)
        members = _vit_members(folder, 16 if registers else 14, 1e-6, (image.height, image.width))
        members |= {"feedforward_dim": inner, "registers": count, "gated": gated, "pooling": BOTH}
        if gated:
            members |= {"feedforward_dim": (int(inner * 2 / 3) + 7) // 8 * 8, "activation": "silu"}
        return Vit(VitConfig(classes, **members))

    def rules(model: ImageModel) -> Sequence[Rule]:
        (height, width), patch = model.config.image, model.config.patch

        def resize(positions: Tensor) -> Tensor:
            """`[1, 1 + P, E]` -> `[1 + registers + patches, E]`; registers have no positions."""
            first, rest = positions[0, :1], positions[0, 1:]
            grid = height // patch[0], width // patch[1]
            if height != width or len(rest) != grid[0] * grid[1]:
                square = torch.unflatten(rest.t(), 1, (isqrt(len(rest)), -1))[None]
                rest = functional.interpolate(square, size=grid, mode="bicubic", antialias=registers).flatten(2)[0].t()
            return torch.cat((functional.pad(first, (0, 0, 0, count)), rest))

        own = Rule("positions", "embeddings.position_embeddings", change=resize)
        return own, *(GATED_RULES if gated else ()), *DINO_RULES

    return _load(folder, (name,), make, rules, IGNORED)


def load_deit(folder: Folder) -> ImageCheckpoint:
    """Load a DeiT classifier, with or without its teacher's head; see `_load` for errors."""
    teacher = folder.architecture == DEIT_WITH_TEACHER

    def make(classes: int, _image: ImagePreprocessing) -> Vit:
        return Vit(VitConfig(**_vit_members(folder), classes=classes, distillation_token=True, distillation_head=teacher))

    rules = (*(TEACHER_RULES if teacher else ()), TOKEN_RULE, *VIT_RULES)
    return _load(folder, (DEIT, DEIT_WITH_TEACHER), make, rules, IGNORED, "cls_classifier" if teacher else "classifier")


def load_beit(folder: Folder) -> ImageCheckpoint:
    """Load a BEiT or data2vec classifier; see `_load` for errors."""
    mean, absolute = flag(folder, "use_mean_pooling", True), flag(folder, "use_absolute_position_embeddings", False)
    shared, apart = (flag(folder, f"use_{kind}relative_position_bias", False) for kind in ("shared_", ""))
    if shared and apart:
        raise folder.config_error("use_shared_relative_position_bias: true beside use_relative_position_bias, expected one")
    table = f"{'encoder' if shared else f'{BLOCK}.attention.attention'}.{BEIT_TABLE}"

    def make(classes: int, _image: ImagePreprocessing) -> Vit:
        options: dict[str, Any] = {"relative_positions": shared or apart, "pooling": MEAN_FIRST if mean else FIRST}
        return Vit(VitConfig(classes, **_vit_members(folder), **options))

    def rules(model: ImageModel) -> Sequence[Rule]:
        assert isinstance(model, Vit)
        return (
            *(() if absolute else (no_positions("embeddings.cls_token", model.config),)),
            *((Rule("norm", "pooler.layernorm"),) if mean else ()),
            *(BEIT_SCALE_RULES if folder.config.get("layer_scale_init_value") != 0 else ()),
            Rule("relative_positions.{i}", table),
            keyless_bias("layers.{i}", *(f"{BLOCK}.attention.attention.{part}.bias" for part in ("query", "value"))),
            *VIT_RULES,
        )

    name, prefix = ("Beit", "beit.") if folder.model_type == "beit" else ("Data2VecVision", "data2vec_vision.")
    ignored = ("*.relative_position_index", "*.mask_token")
    return _load(folder, (f"{name}ForImageClassification",), make, rules, ignored, prefix=prefix)


def keyless_bias(ours: str, query: str, value: str) -> Rule:
    """Rule of a layer's bias of queries, keys and values where keys have none, as in BEiT."""

    def join(biases: tuple[Tensor, ...]) -> Tensor:
        return torch.cat((biases[0], torch.zeros_like(biases[0]), biases[1]))

    return Rule(f"{ours}.attention.query_key_value.bias", query, value, join=join)


def no_positions(token: str, config: VitConfig) -> Rule:
    """Rule of zeros in place of positions, with the type and width of a token."""
    count = config.tokens + config.patches
    return Rule("positions", token, change=lambda vector: vector.new_zeros(count, vector.shape[-1]))


def load_clip(folder: Folder) -> ImageCheckpoint:
    """Load a classifier on CLIP's or SigLIP's images; see `_load` for errors."""
    vision, clip = replace(folder, inner="vision_config"), folder.model_type == "clip"

    def make(classes: int, _image: ImagePreprocessing) -> Vit:
        members = _vit_members(vision, *((32, 1e-5) if clip else (16, 1e-6)))
        members["activation"] = activation(vision, "hidden_act", "quick_gelu" if clip else "gelu_pytorch_tanh")
        tokens: dict[str, Any] = {"class_token": clip, "embedding_norm": clip, "final_norm": not clip, "pooling": MEAN}
        return Vit(VitConfig(classes, **members, **tokens))

    name, unused = ("CLIP", "*.post_layernorm.*") if clip else ("Siglip", "*.head.*")
    ignored = (unused, "*.position_ids")
    try:
        return _load(folder, (f"{name}ForImageClassification",), make, CLIP_RULES, ignored, prefix="vision_model.")
    finally:
        folder.closed.append((f"{CONFIG} ({vision.inner})", vision.config.unread, VISION_NEUTRAL))


def load_zero_shot(folder: Folder, prompts: Prompts) -> ImageCheckpoint:
    """Load CLIP's image encoder as a classifier, whose weights are the vectors of prompts; see `_load` for errors."""
    vision, weights = replace(folder, inner="vision_config"), open_weights(folder.path)
    image, shape = read_image_processor(folder), weights.get("visual_projection.weight")
    vectors = label_vectors(folder, prompts)

    def make() -> Vit:
        members = _vit_members(vision, 32, 1e-5) | {"activation": activation(vision, "hidden_act", "quick_gelu")}
        config = VitConfig(len(prompts.labels), **members, embedding_norm=True)
        model = Vit(config)
        model.classifier = CosineClassifier(config.model_dim, shape[0] if shape else 1, config.classes)
        return model

    model = make_model(folder, make)
    rules = (
        Rule("classifier.weight", "logit_scale", change=lambda scale: scale.exp() * vectors.to(scale.device)),
        Rule("classifier.projection", "visual_projection"),
        *CLIP_RULES,
    )
    ignored = ("*text_model.*", "text_projection.*", "*.position_ids")
    load_rules(model, weights, rules, ignored, prefixes=("vision_model.",))
    folder.closed.append((f"{CONFIG} ({vision.inner})", vision.config.unread, VISION_NEUTRAL))
    return ImageCheckpoint(model, prompts.labels, image, {"architecture": folder.architecture}, family=folder.model_type)


def load_swin(folder: Folder) -> ImageCheckpoint:
    """Load a Swin classifier, also of version 2; see `_load` for errors."""
    second = folder.model_type == "swinv2"

    def rules(model: ImageModel) -> Sequence[Rule]:
        assert isinstance(model, Swin)
        return *(_swin2_rules(folder, model.config) if second else ()), *SWIN_RULES

    return _load(
        folder,
        (f"Swin{'v2' * second}ForImageClassification",),
        lambda classes, image: Swin(SwinConfig(classes, **_swin_members(folder, image, second))),
        rules,
        ("*.relative_position_index", "*.relative_coords_table", "*.mask_token"),
    )


def _swin2_rules(folder: Folder, config: SwinConfig) -> Sequence[Rule]:
    """Rules of a Swin of version 2, whose networks of position biases become tables, of the windows in the pre-training."""
    windows = folder.config.get("pretrained_window_sizes") or []
    if not isinstance(windows, list) or 0 < len(windows) < len(config.depths) or {*map(type, windows)} - {int}:
        raise folder.config_error(f"pretrained_window_sizes: {windows!r:.60}, expected a whole number for each stage")
    theirs = f"{SWIN_THEIRS}.attention.self"
    rules = [
        keyless_bias(SWIN_OURS, f"{theirs}.query.bias", f"{theirs}.value.bias"),
        Rule(f"{SWIN_OURS}.attention.factors", f"{theirs}.logit_scale", change=_factors),
        Rule(f"{SWIN_OURS}.attention_residual.output_norm", f"{SWIN_THEIRS}.layernorm_before"),
        Rule(f"{SWIN_OURS}.feedforward_residual.output_norm", f"{SWIN_THEIRS}.layernorm_after"),
    ]
    for stage in range(len(config.depths)):
        size = config.windows(stage, 0).size
        network = (f"{theirs}.continuous_position_bias_mlp.{part}" for part in ("0.weight", "0.bias", "2.weight"))
        names = [name.replace("{i}", str(stage)) for name in network]
        whole = (windows[stage] if windows else 0) or size
        rules.append(Rule(f"stages.{stage}.layers.{{j}}.relative_positions", *names, join=partial(_bias_table, size, whole)))
    return rules


def _factors(logarithms: Tensor) -> Tensor:
    return logarithms[..., 0].exp().clamp(max=LARGEST_FACTOR)


def _bias_table(size: int, whole: int, network: tuple[Tensor, ...]) -> Tensor:
    """Compute the biases of all distances within windows of a size, `[distances, heads]`; `whole` is the size in training."""
    weight, bias, output = network
    steps = torch.arange(1 - size, size, device=weight.device) * (8 / max(1, whole - 1))
    steps = steps.sign() * (steps.abs() + 1).log2() / 3  # log2(8)
    places = torch.cartesian_prod(steps, steps)
    return 16 * torch.sigmoid(functional.linear(functional.linear(places, weight, bias).relu(), output))


def load_pvt(folder: Folder) -> ImageCheckpoint:
    """Load a PVT classifier; the weights of version 2 fit any image size. See `_load` for errors."""
    first = folder.model_type == "pvt"

    def make(classes: int, image: ImagePreprocessing) -> Pvt:
        size = sides("image_size", folder.config.get("image_size", 224)) if first else (image.height, image.width)
        return Pvt(PvtConfig(**_pvt_members(folder, size, first), classes=classes))

    architecture = "PvtForImageClassification" if first else "PvtV2ForImageClassification"
    return _load(folder, (architecture,), make, PVT_RULES if first else PVT_V2_RULES, ())


def _load(
    folder: Folder,
    architectures: Sequence[str],
    make: Callable[[int, ImagePreprocessing], ImageModel],
    rules: Sequence[Rule] | Callable[[ImageModel], Sequence[Rule]],
    ignored: Sequence[str],
    classifier: str = "classifier",
    prefix: str = "",
) -> ImageCheckpoint:
    """Load a classifier whose label scores are one softmax; names of weights may begin with `prefix`, or with the type's.

    Raises:
        SourceError: the folder holds another kind of model, or its files are missing, damaged or contradict each other.
    """
    check_architecture(folder, *architectures, required=True)
    weights = open_weights(folder.path)
    image, rows = read_image_processor(folder), weights.get(f"{classifier}.weight")
    model = make_model(folder, lambda: make(rows[0] if rows else 1, image))  # load_rules reports a missing classifier
    own = rules(model) if callable(rules) else rules
    load_rules(model, weights, own, ignored, prefixes=(prefix or f"{folder.model_type}.",))
    return make_checkpoint(folder, model, image, {"architecture": folder.architecture}, folder.model_type)


def make_checkpoint(
    folder: Folder,
    model: ImageModel,
    image: ImagePreprocessing,
    provenance: Mapping[str, str],
    family: str,
    names: str = "id2label",
) -> ImageCheckpoint:
    """Make the checkpoint of a loaded model; `names` is the member of config.json with the names of the classes.

    Raises:
        SourceError: these are not one for each class, there is only one class, or an image may have several.
    """
    if (problem := folder.config.get("problem_type")) not in (None, SINGLE_LABEL):
        raise folder.config_error(f"problem_type: {problem!r} is not supported; supported: {SINGLE_LABEL}")
    if model.config.classes < 2:
        raise SourceError(f"{folder.path}: the model has 1 class, expected at least 2")
    return ImageCheckpoint(model, class_names(folder, model.config.classes, names), image, provenance, family=family)


def _vit_members(
    folder: Folder, patch: int = 16, epsilon: float = 1e-12, size: tuple[int, int] | None = None
) -> dict[str, Any]:
    config = folder.config
    return {
        **_common_members(folder, size or sides("image_size", config.get("image_size", 224)), patch, epsilon),
        "model_dim": config.get("hidden_size", 768),
        "heads": config.get("num_attention_heads", 12),
        "feedforward_dim": config.get("intermediate_size", 3072),
        "layers": config.get("num_hidden_layers", 12),
    }


def _swin_members(folder: Folder, image: ImagePreprocessing, second: bool) -> dict[str, Any]:
    """Members of SwinConfig. Without absolute positions the weights fit any image size, and the processor's size applies.

    Of version 2, windows depend on the size in config.json.
    """
    config = folder.config
    absolute = config.get("use_absolute_embeddings", False)
    size = sides("image_size", config.get("image_size", 224)) if absolute or second else (image.height, image.width)
    if second and absolute:
        raise ValueError("use_absolute_embeddings: True is not supported with version 2")
    unit = sides("patch_size", config.get("patch_size", 4))[0] << len(config.get("depths", (2, 2, 6, 2))) - 1
    if second and (size[0] != size[1] or size[0] % unit):  # other grids have windows that depend on one side, or are rounded
        raise ValueError(
            f"image_size: {list(size)} is not supported with version 2; supported: squares of a multiple of {unit}"
        )
    return {
        **_common_members(folder, size, patch=4, epsilon=1e-5),
        "model_dim": config.get("embed_dim", 96),
        "depths": tuple(config.get("depths", (2, 2, 6, 2))),
        "heads": tuple(config.get("num_heads", (3, 6, 12, 24))),
        "window_size": config.get("window_size", 7),
        "feedforward_ratio": config.get("mlp_ratio", 4.0),
        "absolute_positions": absolute,
        "cosine": second,
    }


def _pvt_members(folder: Folder, size: tuple[int, int], first: bool) -> dict[str, Any]:
    """Members of PvtConfig, with the defaults of the version; raises ValueError if patches or stages are not the version's."""
    config = folder.config
    strides, depths = list(config.get("strides", (4, 2, 2, 2))), tuple(config.get("depths", (2, 2, 2, 2)))
    patches = strides if first else [2 * stride - 1 for stride in strides]
    if (found := list(config.get("patch_sizes", patches))) != patches:
        raise ValueError(f"patch_sizes: {found} with strides {strides}; supported: {patches}")
    if (blocks := config.get("num_encoder_blocks", 4)) != len(depths):
        raise ValueError(f"num_encoder_blocks: {blocks}, depths has {len(depths)}")
    return {
        **_common_members(folder, size, patch=strides[0], epsilon=1e-6),
        "version": VERSION_1 if first else LINEAR if config.get("linear_attention", False) else VERSION_2,
        "merges": tuple(strides[1:]),
        "widths": tuple(config.get("hidden_sizes", (64, 128, 320, 512) if first else (32, 64, 160, 256))),
        "depths": depths,
        "heads": tuple(config.get("num_attention_heads", (1, 2, 5, 8))),
        "feedforward_ratios": tuple(config.get("mlp_ratios", (8, 8, 4, 4))),
        "reductions": tuple(config.get("sequence_reduction_ratios" if first else "sr_ratios", (8, 4, 2, 1))),
    }


def _common_members(folder: Folder, size: tuple[int, int], patch: int, epsilon: float) -> dict[str, Any]:
    """Members of both configs, with the family's defaults of patch size and norm epsilon."""
    patch_height, patch_width = sides("patch_size", folder.config.get("patch_size", patch))
    if (channels := folder.config.get("num_channels", CHANNELS)) != CHANNELS:
        raise ValueError(f"num_channels: {channels}; images have {CHANNELS}, red, green and blue")
    return {
        "image_size": size[0],
        "image_width": size[1],
        "patch_size": patch_height,
        "patch_width": patch_width,
        "norm_epsilon": folder.config.get("layer_norm_eps", epsilon),
        "activation": activation(folder, "hidden_act"),
        "input_bias": folder.config.get("qkv_bias", True),
    }
