"""Folders as timm saves them, loaded and served: the logits of transformers' models whose weights they have.

timm's transform for evaluation is compared with the same steps in Pillow.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from triptych_export.errors import SourceError
from triptych_export.families.image import ImageFamily, image_spec
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.checkpoint.image import timm_transform
from triptych_export.huggingface.folder import Folder
from triptych_export.loading import open_checkpoint
from triptych_export.options import ExportOptions
from triptych_export.parity.image import generate_images
from triptych_serving.images.decode import decode_image
from triptych_training.checkpoints.encoder import ImageCheckpoint

from ..fixtures.json_files import edit_json, write_json
from ..fixtures.noise import stir
from .test_huggingface_images import CLASSES, SPREAD, TOLERANCE, as_png, check_served, load_image, pictures

SIDE, GRID = 32, 16
Weights = dict[str, Tensor]
SHAPE: Mapping[str, Any] = {"num_hidden_layers": 2, "image_size": SIDE, "patch_size": 8, "num_labels": CLASSES}
CONFIG: Mapping[str, Any] = {
    "num_classes": CLASSES,
    "num_features": 24,
    "label_names": [f"label {number}" for number in range(CLASSES)],
    "pretrained_cfg": {
        "tag": "augreg2_in21k_ft_in1k",
        "custom_load": False,
        "input_size": [3, SIDE, SIDE],
        "fixed_input_size": True,
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        "crop_mode": "center",
        "mean": [0.5, 0.4, 0.3],
        "std": [0.5, 0.6, 0.7],
        "num_classes": 1000,
        "pool_size": None,
        "first_conv": "patch_embed.proj",
        "classifier": "head",
    },
}


@dataclass(frozen=True)
class Case:
    """A model of transformers: its weights in timm's form, and its logits."""

    architecture: str
    weights: Weights
    logits: Callable[[Tensor], Tensor]
    pooling: str = "token"


def stirred(model: Any) -> Any:
    return stir(model, SPREAD)


def block(weights: Weights, theirs: str, index: int, names: Mapping[str, str], *parts: str) -> Weights:
    """Name the weights of a layer as timm does; `parts` are those of one projection there."""
    found: Weights = {}
    for ending in ("weight", "bias"):
        if f"{theirs}.{parts[0]}.{ending}" in weights:
            found[f"attn.qkv.{ending}"] = torch.cat([weights[f"{theirs}.{part}.{ending}"] for part in parts])
        found |= {f"{ours}.{ending}": weights[f"{theirs}.{name}.{ending}"] for ours, name in names.items()}
    return {f"blocks.{index}.{name}": tensor for name, tensor in found.items()}


def named(name: str, module: nn.Module) -> Weights:
    """Name the weights of a module."""
    return {f"{name}.{ending}": tensor for ending, tensor in module.named_parameters()}


VIT_NAMES = {
    "attn.proj": "attention.o_proj",
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
VIT_PARTS = ("attention.q_proj", "attention.k_proj", "attention.v_proj")


def vit(architecture: str, teacher: bool = False, **shape: Any) -> Case:
    shape = {**SHAPE, "hidden_size": 24, "num_attention_heads": 3, "intermediate_size": 40, "layer_norm_eps": 1e-6, **shape}
    if teacher:
        model = stirred(transformers.DeiTForImageClassificationWithTeacher(transformers.DeiTConfig(**shape)))
    else:
        model = stirred(transformers.ViTForImageClassification(transformers.ViTConfig(**shape)))
    base = model.deit if teacher else model.vit
    head = model.cls_classifier if teacher else model.classifier
    state = base.state_dict()
    weights = {
        "cls_token": base.embeddings.cls_token,
        "pos_embed": base.embeddings.position_embeddings,
        **named("patch_embed.proj", base.embeddings.patch_embeddings.projection),
        **block(state, "layers.0", 0, VIT_NAMES, *VIT_PARTS),
        **block(state, "layers.1", 1, VIT_NAMES, *VIT_PARTS),
        **named("norm", base.layernorm),
        **named("head", head),
    }
    if teacher:
        weights |= {"dist_token": base.embeddings.distillation_token, **named("head_dist", model.distillation_classifier)}
    return Case(architecture, weights, lambda images: model(images).logits)


DINO_NAMES = {"attn.proj": "attention.o_proj", **{name: name for name in ("norm1", "norm2", "mlp.fc1", "mlp.fc2")}}


def dino(architecture: str, pooling: str = "token", norm: str = "norm") -> Case:
    """Layer scale and registers: the first token is a class token, or without one ("avg") another register."""
    shape = {**SHAPE, "hidden_size": 24, "num_attention_heads": 3, "mlp_ratio": 2}
    base = stirred(transformers.Dinov2WithRegistersModel(transformers.Dinov2WithRegistersConfig(**shape)))
    head, state, embeddings = stirred(nn.Linear(24, CLASSES)), base.state_dict(), base.embeddings
    first = embeddings.cls_token + embeddings.position_embeddings[:, :1]
    weights = {
        "cls_token": first,
        "reg_token": embeddings.register_tokens,
        "pos_embed": embeddings.position_embeddings[:, 1:],
        **named("patch_embed.proj", embeddings.patch_embeddings.projection),
        **named(norm, base.layernorm),
        **named("head", head),
    }
    for layer in range(2):
        weights |= block(state, f"encoder.layer.{layer}", layer, DINO_NAMES, *VIT_PARTS)
        weights |= {f"blocks.{layer}.ls{i}.gamma": state[f"encoder.layer.{layer}.layer_scale{i}.lambda1"] for i in (1, 2)}
    if pooling == "avg":
        weights["reg_token"] = torch.cat((weights.pop("cls_token"), weights["reg_token"]), 1)

    def logits(images: Tensor) -> Tensor:
        states = base.encoder(base.embeddings(images)).last_hidden_state
        if pooling == "token":
            return head(base.layernorm(states[:, 0]))
        if norm == "norm":
            return head(base.layernorm(states)[:, -GRID:].mean(1))
        return head(base.layernorm(states[:, -GRID:].mean(1)))

    return Case(architecture, weights, logits, pooling)


CLIP_NAMES = {
    "attn.proj": "self_attn.out_proj",
    "norm1": "layer_norm1",
    "norm2": "layer_norm2",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
CLIP_PARTS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def clip(architecture: str, hidden_act: str) -> Case:
    shape = {**SHAPE, "hidden_size": 24, "num_attention_heads": 12, "intermediate_size": 40, "hidden_act": hidden_act}
    base = stirred(transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**shape)))
    head = stirred(nn.Linear(24, CLASSES))
    first = {"cls_token": base.embeddings.class_embedding[None, None], **named("norm_pre", base.pre_layrnorm)}
    return Case(architecture, first | clip_weights(base, head), lambda images: head(base(images).pooler_output))


def without_class(architecture: str) -> Case:
    """No token before the patches: SigLIP's, with the mean of the patches' states."""
    shape = {**SHAPE, "hidden_size": 24, "num_attention_heads": 8, "intermediate_size": 40, "hidden_act": "gelu"}
    base = stirred(transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**shape)))
    head = stirred(nn.Linear(24, CLASSES))
    return Case(architecture, clip_weights(base, head), lambda images: head(base(images).last_hidden_state.mean(1)), "avg")


def clip_weights(base: Any, head: nn.Module) -> Weights:
    """Name the weights that CLIP's and SigLIP's models have."""
    state = base.state_dict()
    return {
        "pos_embed": base.embeddings.position_embedding.weight[None],
        **named("patch_embed.proj", base.embeddings.patch_embedding),
        **block(state, "encoder.layers.0", 0, CLIP_NAMES, *CLIP_PARTS),
        **block(state, "encoder.layers.1", 1, CLIP_NAMES, *CLIP_PARTS),
        **named("norm", base.post_layernorm),
        **named("head", head),
    }


def beit(architecture: str) -> Case:
    shape = {**SHAPE, "hidden_size": 24, "num_attention_heads": 12, "intermediate_size": 40, "layer_norm_eps": 1e-6}
    model = stirred(transformers.BeitForImageClassification(transformers.BeitConfig(**shape, use_relative_position_bias=True)))
    state = model.beit.state_dict()
    weights = {
        "cls_token": model.beit.embeddings.cls_token,
        **named("patch_embed.proj", model.beit.embeddings.patch_embeddings.projection),
        **named("fc_norm", model.beit.pooler.layernorm),
        **named("head", model.classifier),
    }
    for layer in range(2):
        theirs, ours = f"layers.{layer}", f"blocks.{layer}"
        state[f"{theirs}.attention.k_proj.bias"] = torch.zeros(24)
        weights |= block(state, theirs, layer, VIT_NAMES, *VIT_PARTS)
        del weights[f"{ours}.attn.qkv.bias"]
        weights |= {f"{ours}.attn.{part}_bias": state[f"{theirs}.attention.{part}_proj.bias"] for part in "qv"}
        weights |= {f"{ours}.gamma_{number}": state[f"{theirs}.lambda_{number}"] for number in (1, 2)}
        table = state[f"{theirs}.relative_position_bias.relative_position_bias_table"]
        weights[f"{ours}.attn.relative_position_bias_table"] = table
    return Case(architecture, weights, lambda images: model(images).logits, "avg")


CASES: Mapping[str, Callable[[], Case]] = {
    "vit": lambda: vit("vit_tiny_patch16_224"),
    "vit without biases": lambda: vit("vit_tiny_patch16_224", qkv_bias=False),
    "vit of other heads": lambda: vit("vit_small_patch16_384", num_attention_heads=6),
    "deit with teacher": lambda: vit("deit_tiny_distilled_patch16_224", teacher=True),
    "deit 3, with scaled layers and registers": lambda: dino("deit3_tiny_patch16_224"),
    "registers, mean before the norm": lambda: dino("vit_tiny_patch16_reg4_gap_256", "avg", "fc_norm"),
    "registers, norm before the mean": lambda: dino("vit_tiny_patch16_reg4_gap_256", "avg"),
    "clip": lambda: clip("vit_base_patch32_clip_224", "gelu"),
    "clip with another activation": lambda: clip("vit_base_patch16_clip_quickgelu_224", "quick_gelu"),
    "beit": lambda: beit("beit_base_patch16_224"),
    "no class token": lambda: without_class("vit_medium_patch16_gap_256"),
}


def write(case: Case, folder: Path, prefix: str = "", **members: Any) -> Path:
    folder.mkdir(exist_ok=True)
    weights = {f"{prefix}{name}": tensor.detach().clone().contiguous() for name, tensor in case.weights.items()}
    save_file(weights, folder / "model.safetensors")
    own = {"architecture": case.architecture, "global_pool": case.pooling}
    write_json(folder / "config.json", {**CONFIG, **own, **members})
    return folder


def transform(picture: Image.Image, given: Mapping[str, Any]) -> Tensor:
    """timm's transform for evaluation, with torchvision's resize and crop in Pillow: `[3, height, width]`."""
    _, height, width = given["input_size"]
    share, filters = given["crop_pct"], {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    size = math.floor(width / share), math.floor(height / share)
    if given["crop_mode"] == "center":
        wide, tall = picture.size
        size = (size[0], int(size[0] * tall / wide)) if wide <= tall else (int(size[0] * wide / tall), size[0])
    resized = picture.resize(size, filters[given["interpolation"]])
    left, top = round((size[0] - width) / 2.0), round((size[1] - height) / 2.0)
    pixels = torch.from_numpy(np.array(resized.crop((left, top, left + width, top + height)))).float() / 255
    return ((pixels - torch.tensor(given["mean"])) / torch.tensor(given["std"])).permute(2, 0, 1)


def inputs() -> Tensor:
    return torch.stack([transform(picture, CONFIG["pretrained_cfg"]) for picture in pictures()])


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    case, images = CASES[name](), inputs()
    expected = case.logits(images)
    assert expected.std(0).mean() > 0.05  # images differ
    for prefix, members in (("", {}), ("timm_model.", {"model_type": "timm_wrapper", "model_args": None, "do_pooling": True})):
        checkpoint = load_image(write(case, tmp_path, prefix, **members))
        torch.testing.assert_close(checkpoint.model(images), expected, rtol=0, atol=TOLERANCE)
        assert checkpoint.labels == tuple(f"label {number}" for number in range(CLASSES))


@torch.no_grad()
@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_a_served_bundle_equals_transformers(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    head = case.weights["head.bias"]
    head.data -= case.logits(inputs()).mean(0) * (2 if "head_dist.bias" in case.weights else 1)  # no class is best for all
    opened = open_checkpoint(str(write(case, tmp_path / "checkpoint")), ExportOptions(tmp_path), tmp_path)
    assert isinstance(opened.family, ImageFamily)
    assert opened.origin["original"].startswith("not compared, ")  # timm is not installed
    opened.family.write(tmp_path / "bundle", lambda line: None)
    check_served(tmp_path / "bundle", case.logits(inputs()))
    parity, _ = opened.family.measure(tmp_path / "bundle", lambda line: None)
    assert parity["fp32"]["samples"] == parity["int8"]["decisions"] == 40
    assert parity["int8"]["mean_probability_difference"] < 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"input_size": [3, 33, 33], "crop_pct": 0.875, "interpolation": "bilinear"},
        {"crop_pct": 1.0},
        {"input_size": [3, 37, 24], "crop_mode": "squash"},
        {"crop_pct": 1.0, "crop_mode": "squash"},
    ],
)
def test_pixels_are_those_of_timm_s_transform(changes: dict[str, Any]) -> None:
    given = {**CONFIG["pretrained_cfg"], **changes}
    image = timm_transform(given)
    for width, height in ((331, 217), (64, 301), (40, 41), (45, 47), (9, 13)):
        picture = Image.fromarray(generate_images(3, height, width)[1])
        pixels = decode_image(as_png(picture), image_spec(image)).pixels
        normal = (pixels / 255 - np.array(image.mean)) / np.array(image.std)
        np.testing.assert_allclose(np.moveaxis(normal, -1, 0), transform(picture, given), rtol=0, atol=1e-5)


def test_missing_members_have_timm_s_defaults() -> None:
    image = timm_transform({})
    assert (image.height, image.resize_size, image.interpolation) == (224, 256, "bicubic")
    assert image.mean == (0.485, 0.456, 0.406)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write(CASES["vit"](), tmp_path)


def test_labels_may_be_an_object_or_missing(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", label_names={str(number): f"n{number:08}" for number in range(CLASSES)})
    assert load_image(checkpoint).labels[3] == "n00000003"
    edit_json(checkpoint / "config.json", label_names=None)
    assert load_image(checkpoint).labels[3] == "LABEL_3"


def test_arguments_of_the_model_are_read(checkpoint: Path) -> None:
    edit_json(checkpoint / "config.json", model_args={"img_size": SIDE, "depth": 2, "num_heads": 6, "global_pool": "avg"})
    loaded = load(Folder(checkpoint))
    assert isinstance(loaded, ImageCheckpoint)
    assert loaded.model.config == load_image(checkpoint).model.config
    assert (loaded.model.config.heads, loaded.model.config.pooling) == (6, "mean")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"architecture": "resnet50"}, "architecture: 'resnet50' of timm is not supported; supported: ViT, DeiT and BEiT, "),
        ({"architecture": "vit_base_patch16_siglip_224"}, "'vit_base_patch16_siglip_224' of timm is not supported"),
        ({"architecture": "vit_dwee_patch16_reg1_gap_256"}, "'vit_dwee_patch16_reg1_gap_256' of timm is not supported"),
        ({"architecture": "vit_base_patch16_gap_224"}, "'vit_base_patch16_gap_224' of timm is not supported"),
        ({"architecture": "vit_base_patch16_224", "model_args": {"num_heads": 5}}, "heads: 5 does not divide model_dim 24"),
        ({"model_args": {"qk_norm": True}}, r"config\.json \(model_args\): qk_norm: True is not supported, and may change"),
        ({"model_args": [1]}, r"model_args: \[1\], expected an object"),
        ({"global_pool": "map"}, "global_pool: 'map' is not supported; supported: 'token', 'avg'"),
        ({"label_names": ["a"]}, "label_names: no name for 10 of 11 classes: 1, 2"),
        ({"architectures": ["TimmWrapperModel"]}, "TimmWrapperModel is not supported"),
        ({"novel": 1}, "novel: 1 is not supported, and may change the results"),
        ({"problem_type": "multi_label_classification"}, "problem_type: 'multi_label_classification' is not supported"),
        ({"pretrained_cfg": []}, r"pretrained_cfg: \[\], expected an object"),
        ({"pretrained_cfg": {"novel": 1}}, r"config\.json \(pretrained_cfg\): novel: 1 is not supported"),
        ({"pretrained_cfg": {"input_size": [1, 32, 32]}}, r"pretrained_cfg: input_size: \[1, 32, 32\], expected 3 channels"),
        ({"pretrained_cfg": {"crop_pct": 1.1}}, r"crop_pct: 1\.1 is outside \(0, 1\]"),
        ({"pretrained_cfg": {"crop_mode": "border"}}, "crop_mode: 'border' is not supported; supported: 'center', 'squash'"),
        ({"pretrained_cfg": {"interpolation": "random"}}, "interpolation: 'random' is not supported; supported: nearest"),
        ({"pretrained_cfg": {"input_size": [3, 32, 40]}}, "input_size: 40 x 32 with crop_mode 'center'; supported: 'squash'"),
        ({"pretrained_cfg": {"input_size": [3, 40, 40]}}, r"misshapen pos_embed \[1, 17, 24\].*expected \[26, 24\]"),
    ],
)
def test_what_is_not_supported_is_named(checkpoint: Path, members: dict[str, Any], message: str) -> None:
    if given := members.get("pretrained_cfg"):
        members = {"pretrained_cfg": {**CONFIG["pretrained_cfg"], **given}}
    edit_json(checkpoint / "config.json", **members)
    with pytest.raises(SourceError, match=message):
        load(Folder(checkpoint))


def test_blocks_of_other_kinds_and_missing_weights_are_named(tmp_path: Path) -> None:
    case = CASES["vit"]()
    case.weights["blocks.0.attn.q_norm.weight"] = torch.ones(8)
    with pytest.raises(SourceError, match=r"unexpected blocks\.0\.attn\.q_norm\.weight"):
        load(Folder(write(case, tmp_path)))
    del case.weights["head.weight"], case.weights["head.bias"]
    with pytest.raises(SourceError, match=r"missing head\.weight"):
        load(Folder(write(case, tmp_path)))
