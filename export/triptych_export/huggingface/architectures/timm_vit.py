"""ViT, DeiT and BEiT classifiers that timm saved, or transformers' wrapper of timm.

The shapes of the weights say nearly all about these models; `architecture` in config.json says the rest.
Source: https://github.com/huggingface/pytorch-image-models/blob/main/timm/models/vision_transformer.py
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Size, Tensor
from torch.nn import functional

from triptych_export.errors import WeightsError
from triptych_export.huggingface.architectures.image_classifiers import keyless_bias, make_checkpoint, no_positions
from triptych_export.huggingface.checkpoint.config import COMMON, check_architecture
from triptych_export.huggingface.checkpoint.image import read_timm_transform
from triptych_export.huggingface.checkpoint.mapping import Rule, block_rules, load_rules, make_model, scaled_rules
from triptych_export.huggingface.checkpoint.weights import open_weights
from triptych_export.huggingface.folder import CONFIG, Folder, neutral
from triptych_training.checkpoints.encoder import ImageCheckpoint, ImagePreprocessing
from triptych_training.models.vit import FIRST, MEAN, MEAN_FIRST, Vit, VitConfig

NEUTRAL = {
    **COMMON,
    # Transformers' wrapper classifies whatever `do_pooling` says.
    **neutral("architecture num_classes num_features do_pooling label_names label_descriptions tie_word_embeddings"),
}
MODEL_ARGS = neutral(  # what the weights show, or what matters in training alone
    """
    img_size patch_size in_chans num_classes embed_dim depth mlp_ratio qkv_bias init_values class_token no_embed_class
    reg_tokens pre_norm fc_norm dynamic_img_size drop_rate pos_drop_rate patch_drop_rate proj_drop_rate attn_drop_rate
    drop_path_rate weight_init
    """,
    final_norm=(True,),
    pool_include_prefix=(False,),
    dynamic_img_pad=(False,),
)
# Number of attention heads by the name of a width.
HEADS = {
    **{"wee": 4, "xsmall": 4, "little": 5, "tiny": 3, "small": 6, "medium": 8, "mediumd": 8, "betwixt": 10, "base": 12},
    **{"so150m": 14, "so150m2": 13, "large": 16, "huge": 16, "giant": 16, "gigantic": 16, "base_plus": 14},
}
# Names of architectures. Of the options "clip" changes the epsilon and "quickgelu" the activation; the weights show the others.
NAME = re.compile(
    r"(?!vit_base_patch16_gap)(?:vit|deit3?)_(?P<width>[a-z0-9]+)(?:_distilled)?_patch\d+(?P<plus>_plus)?"
    r"(?P<options>(?:_(?:clip|quickgelu|reg\d|gap|dinov2|36x1))*)(?:_\d+)?(?:_miil)?(?:_in21k)?"
    r"|(?:flexivit|beit|beitv2)_(?P<other>small|base|large)(?:_patch16_\d+)?|(?P<eva>eva_large)_patch14_\d+"
)
PREFIX = "timm_model."
OURS, THEIRS = "layers.{i}", "blocks.{i}"
RULES = (
    Rule("stem", "patch_embed.proj"),
    Rule("class_token", "cls_token"),
    Rule("distillation_token", "dist_token"),
    Rule("registers", "reg_token"),
    Rule("embedding_norm", "norm_pre"),
    *block_rules(OURS, THEIRS, ["attn.qkv"], "attn.proj", "norm1", "mlp.fc1", "mlp.fc2", "norm2"),
    Rule("classifier", "head"),
    Rule("distillation_classifier", "head_dist"),
)
SCALED = (f"{OURS}.attention.output", f"{THEIRS}.attn.proj"), (f"{OURS}.feedforward.contract", f"{THEIRS}.mlp.fc2")
SCALES = ("ls1.weight", "ls2.weight"), ("gamma_1", "gamma_2")  # of either kind; "ls1.gamma" is read as "ls1.weight"
BEIT_RULES = (
    keyless_bias(OURS, f"{THEIRS}.attn.q_bias", f"{THEIRS}.attn.v_bias"),
    Rule("relative_positions.{i}", f"{THEIRS}.attn.relative_position_bias_table"),
)


def load_timm(folder: Folder) -> ImageCheckpoint:
    """Load a classifier of timm.

    Raises:
        SourceError: the architecture is not supported, or files are missing, damaged or contradict each other.
    """
    check_architecture(folder, "TimmWrapperForImageClassification")
    name, weights = str(folder.config.get("architecture", "")), open_weights(folder.path)
    image = read_timm_transform(folder)
    shapes = {each.removeprefix(PREFIX): shape for each, shape in weights.items()}
    norm = "fc_norm" if "fc_norm.weight" in shapes else "norm"
    model = make_model(folder, lambda: Vit(_config(folder, name, shapes, image, norm)))
    config, beit = model.config, model.config.relative_positions
    scales = next((each for each in SCALES if f"blocks.0.{each[0]}" in shapes), ())
    rules = (
        no_positions("cls_token", config) if beit else Rule("positions", "pos_embed", change=partial(_for_tokens, config)),
        Rule("norm", norm),
        *(rule for names in zip(SCALED, scales, strict=False) for rule in scaled_rules(*names[0], f"{THEIRS}.{names[1]}")),
        *(BEIT_RULES if beit else ()),
        *RULES,
    )
    load_rules(model, weights, rules, ["*.relative_position_index"], prefixes=(PREFIX,))
    return make_checkpoint(folder, model, image, {"architecture": name}, "vit", names="label_names")


def _config(folder: Folder, name: str, shapes: Mapping[str, Size], image: ImagePreprocessing, norm: str) -> VitConfig:
    """Describe the model; raises ValueError if it is not supported."""
    found = NAME.fullmatch(name)
    width = found and (found["other"] or (found["eva"] and "large") or f"{found['width']}{found['plus'] or ''}")
    if not found or width not in HEADS:
        known = "ViT, DeiT and BEiT, such as vit_base_patch16_224, without other blocks"
        raise ValueError(f"architecture: {name!r} of timm is not supported; supported: {known}")
    arguments: Any = folder.config.get("model_args") or {}
    if not isinstance(arguments, dict):
        raise ValueError(f"model_args: {arguments!r:.40}, expected an object")
    folder.closed.append((f"{CONFIG} (model_args)", arguments, {**MODEL_ARGS, **neutral("num_heads global_pool")}))
    usual = folder.config.get("global_pool") or ("avg" if re.match("eva|beit|.*_gap", name) else "token")
    pooling = arguments.get("global_pool", usual)
    if pooling not in ("token", "avg"):
        raise ValueError(f"global_pool: {pooling!r} is not supported; supported: 'token', 'avg'")
    wanted = "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight", "head.weight"
    if missing := [each for each in wanted if len(shapes.get(each, ())) < 2]:
        raise WeightsError(f"{folder.path}: missing {', '.join(missing)}")
    stem, expand, head = (shapes[each] for each in wanted)
    options = found["options"] or ""
    return VitConfig(
        head[0],
        image.height,
        stem[2],
        stem[1],
        norm_epsilon=1e-5 if "clip" in options else 1e-6,
        image_width=image.width,
        patch_width=stem[3],
        activation="gelu_quick" if "quickgelu" in options else "gelu",
        input_bias=not shapes.keys().isdisjoint(("blocks.0.attn.qkv.bias", "blocks.0.attn.q_bias")),
        model_dim=stem[0],
        heads=arguments.get("num_heads", HEADS[width]),
        feedforward_dim=expand[0],
        layers=len({each.split(".")[1] for each in shapes if each.startswith("blocks.")}),
        distillation_token="dist_token" in shapes,
        distillation_head="head_dist.weight" in shapes,
        class_token="cls_token" in shapes,
        registers=shapes["reg_token"][1] if "reg_token" in shapes else 0,
        embedding_norm="norm_pre.weight" in shapes,
        relative_positions="blocks.0.attn.relative_position_bias_table" in shapes,
        pooling=FIRST if pooling == "token" else MEAN_FIRST if norm == "fc_norm" else MEAN,
    )


def _for_tokens(config: VitConfig, positions: Tensor) -> Tensor:
    """Give the tokens before the patches positions of zeros if they have none."""
    missing = config.tokens if positions.shape[1] == config.patches else 0
    return functional.pad(positions[0], (0, 0, missing, 0))
