"""Image checkpoints of transformers, loaded, exported and served: the same logits and labels.

The models are small and random, with weights large enough that results differ between images.
"""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor, nn

from triptych_export.errors import SourceError
from triptych_export.families.image import ImageFamily
from triptych_export.huggingface.architectures.registry import load
from triptych_export.huggingface.folder import Folder
from triptych_export.original import compare_with_original
from triptych_export.parity.image import generate_images
from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.encoding.options import EncoderOptions
from triptych_serving.models.image.image_job import ClassifiedImage
from triptych_serving.models.image.image_model import ImageModel
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.encoder import ImageCheckpoint

from ..fixtures.json_files import edit_json
from ..fixtures.noise import stir

TOLERANCE = 1e-4
SPREAD = 0.3  # standard deviation of what is added to every weight
TOP = 5
CLASSES = 11
SIZES = ((40, 40), (61, 33), (24, 90), (17, 19))  # width and height of the files
PREFIX = {
    **{"vit": "ViT", "deit": "DeiT", "swin": "Swin", "pvt": "Pvt", "pvt_v2": "PvtV2", "vit_msn": "ViTMSN"},
    **{"dinov2": "Dinov2", "dinov2_with_registers": "Dinov2WithRegisters", "clip": "CLIP", "siglip": "Siglip"},
    **{"beit": "Beit", "data2vec-vision": "Data2VecVision", "swinv2": "Swinv2"},
}

Members = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One checkpoint: `shape` goes to the model's configuration, `processor` to the image processor's."""

    model_type: str
    shape: Members
    processor: Members
    architecture: str = "ForImageClassification"


VIT: Members = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "image_size": 32}
SWIN: Members = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "image_size": 32}
PVT: Members = {
    "num_labels": CLASSES,
    "num_encoder_blocks": 3,
    "depths": [2, 1, 2],
    "hidden_sizes": [8, 16, 24],
    "num_attention_heads": [1, 2, 3],
    "mlp_ratios": [3, 2, 2],
    "strides": [4, 2, 2],
}
SQUARE: Members = {"size": {"height": 32, "width": 32}}
TEACHER = "ForImageClassificationWithTeacher"


def vit(processor: Members = SQUARE, patch_size: Any = 8, **shape: Any) -> Case:
    return Case("vit", {**VIT, "patch_size": patch_size, **shape}, processor)


def deit(processor: Members, patch_size: int = 8, teacher: bool = True, **shape: Any) -> Case:
    shape = {**VIT, "patch_size": patch_size, **shape}
    return Case("deit", shape, processor, TEACHER) if teacher else Case("deit", shape, processor)


def swin(processor: Members = SQUARE, **shape: Any) -> Case:
    return Case("swin", {**SWIN, **shape}, processor)


def swin2(processor: Members = SQUARE, **shape: Any) -> Case:
    return Case("swinv2", {**SWIN, **shape}, processor)


def pvt(processor: Members = SQUARE, **shape: Any) -> Case:
    return Case(
        "pvt",
        {**PVT, "patch_sizes": PVT["strides"], "sequence_reduction_ratios": [4, 2, 1], "image_size": 32, **shape},
        processor,
    )


def pvt_v2(processor: Members, **shape: Any) -> Case:
    return Case("pvt_v2", {**PVT, "patch_sizes": [7, 3, 3], "sr_ratios": [4, 2, 1], **shape}, processor)


def dino(processor: Members, registers: int = 0, **shape: Any) -> Case:
    inner = {"mlp_ratio": 2, **{name: value for name, value in VIT.items() if name != "intermediate_size"}, **shape}
    if registers:
        return Case("dinov2_with_registers", {**inner, "num_register_tokens": registers}, processor)
    return Case("dinov2", inner, processor)


def clip(model_type: str, processor: Members, **shape: Any) -> Case:
    return Case(model_type, {"vision_config": {**VIT, **shape}}, processor)


def beit(model_type: str, processor: Members = SQUARE, relative: str = "", **shape: Any) -> Case:
    return Case(model_type, {**VIT, "patch_size": 8, f"use_{relative}relative_position_bias": True, **shape}, processor)


BIT: Members = {"size": {"shortest_edge": 42}, "crop_size": 32}
QUICK = {
    "vit": vit(),
    "deit with teacher": deit({"size": 36, "crop_size": 32}),
    "swin padded": swin({"size": 46, "image_mean": [0.485, 0.456, 0.406]}, image_size=46),
    "swin v2": swin2(pretrained_window_sizes=[3, 0]),
    "pvt": pvt(),
    "dinov2 with registers, trained at another size": dino(BIT, 4, patch_size=8, image_size=56),
    "clip": clip("clip", BIT, patch_size=8),
    "siglip": clip("siglip", SQUARE, patch_size=8),
    "beit": beit("beit", layer_scale_init_value=0.1),
    "pvt v2": pvt_v2({"size": 40, "image_mean": [0.485, 0.456, 0.406]}),
}
FULL = {
    "vit without biases": vit(qkv_bias=False),
    "vit oblong": vit({"size": {"height": 28, "width": 42}, "resample": 3}, image_size=[28, 42], patch_size=[7, 14]),
    "vit of one layer": vit({"size": 30}, num_hidden_layers=1, image_size=30, patch_size=15),
    "vit with other arithmetic": vit(
        {**SQUARE, "rescale_factor": 1 / 127.5, "image_mean": [1, 0.9, 1.1], "image_std": 1},
        num_attention_heads=1,
        patch_size=4,
        hidden_act="gelu_new",
        layer_norm_eps=1e-3,
    ),
    "vit with relu, neither rescaled nor normalised": vit(
        {**SQUARE, "do_rescale": False, "image_mean": [127, 128, 129], "image_std": [60, 61, 62]}, hidden_act="relu"
    ),
    "vit msn": Case("vit_msn", {**VIT, "patch_size": 8, "hidden_act": "gelu_new"}, SQUARE),
    "clip with default patches": clip("clip", {"size": 64, "crop_size": 64}, image_size=64, hidden_act="gelu"),
    "siglip with default patches": clip("siglip", {"size": {"height": 48, "width": 48}}, image_size=48, vision_use_head=False),
    "beit of the class token": beit("beit", use_mean_pooling=False, use_absolute_position_embeddings=True),
    "beit with one bias for all layers, without scales": beit("beit", relative="shared_", layer_scale_init_value=0.0),
    "beit without relative positions": beit("beit", use_relative_position_bias=False, use_absolute_position_embeddings=True),
    "data2vec": beit("data2vec-vision", {"size": 48}, image_size=48, use_mask_token=True),
    "data2vec with one bias for all layers": beit("data2vec-vision", relative="shared_", use_mean_pooling=False),
    "dinov2": dino(BIT, patch_size=8),
    "dinov2 with default patches, at another size": dino({"crop_size": 28}, image_size=42, qkv_bias=False),
    "dinov2 with gates": dino(BIT, patch_size=8, use_swiglu_ffn=True, use_mask_token=False),
    "dinov2 with registers and gates": dino(BIT, 1, patch_size=[8, 16], use_swiglu_ffn=True, layerscale_value=0.1),
    "dinov2 with registers, oblong": dino({**BIT, "crop_size": {"height": 32, "width": 24}}, 2, patch_size=8),
    "deit": deit({"size": 40, "crop_size": 33}, image_size=33, patch_size=11, qkv_bias=False, teacher=False),
    "deit with a deep teacher": deit(
        {"size": {"height": 48, "width": 37}, "crop_size": 32, "do_normalize": False},
        num_hidden_layers=5,
        num_attention_heads=6,
        patch_size=16,
    ),
    "deit of one layer": deit({"size": 32, "do_center_crop": False}, num_hidden_layers=1),
    "swin": swin(),
    "swin of one window a stage": swin(window_size=8, depths=[2], num_heads=[3]),
    "swin with absolute embeddings": swin(use_absolute_embeddings=True, qkv_bias=False),
    "swin of three stages": swin(
        {"size": 60, "resample": 3}, depths=[1, 3, 2], num_heads=[1, 2, 4], window_size=3, image_size=60, mlp_ratio=2.5
    ),
    "swin oblong": swin(
        {"size": {"height": 40, "width": 72}}, image_size=[40, 72], patch_size=[4, 6], window_size=3, layer_norm_eps=1e-3
    ),
    "swin of patches that stick out": swin(
        {"size": 47, "image_mean": [0.2, 0.5, 0.9], "image_std": [0.2, 0.3, 0.4]}, patch_size=5, image_size=47
    ),
    "swin at another size than it was trained at": swin({"size": 40}),
    "swin of even windows and odd grids": swin(
        {"size": 52}, image_size=52, window_size=6, depths=[4, 3], hidden_act="gelu_new"
    ),
    "swin v2 of windows as large as the last grid": swin2(depths=[2, 1, 2], num_heads=[2, 3, 6], qkv_bias=False),
    "swin v2 of incomplete windows": swin2(
        {"size": 48}, image_size=48, window_size=5, pretrained_window_sizes=[2, 2], hidden_act="gelu_new", layer_norm_eps=1e-3
    ),
    "pvt of odd grids": pvt({"size": 44}, image_size=44, qkv_bias=False, sequence_reduction_ratios=[3, 1, 1]),
    "pvt v2 of odd grids": pvt_v2({"size": {"height": 37, "width": 51}}, qkv_bias=False, sr_ratios=[3, 2, 1]),
    "pvt v2 with linear attention": pvt_v2({"size": 56}, linear_attention=True),
    "pvt v2 with linear attention to odd grids": pvt_v2({"size": {"height": 41, "width": 66}}, linear_attention=True),
}


def build(case: Case) -> nn.Module:
    prefix = PREFIX[case.model_type]
    config = getattr(transformers, f"{prefix}Config")(
        **case.shape,
        id2label={number: f"label {number}" for number in range(CLASSES)},
        label2id={f"label {number}": number for number in range(CLASSES)},
    )
    torch.manual_seed(7)
    return stir(getattr(transformers, f"{prefix}{case.architecture}")(config), SPREAD)


@torch.no_grad()
def balance(model: nn.Module, case: Case) -> None:
    """Shift the classifier's bias so that no class is best for all images."""
    favour = model(inputs(case)).logits.mean(0)
    for name, parameter in model.named_parameters():
        if name.endswith("classifier.bias"):
            parameter.sub_(favour)


def save(model: nn.Module, case: Case, folder: Path) -> None:
    """Save model and image processor with transformers."""
    model.save_pretrained(folder)  # type: ignore[operator]
    processor(case).save_pretrained(folder)


def load_image(folder: Path) -> ImageCheckpoint:
    loaded = load(Folder(folder))
    assert isinstance(loaded, ImageCheckpoint)
    return loaded


def processor(case: Case) -> Any:
    kinds = {"deit": "DeiT", "dinov2": "Bit", "dinov2_with_registers": "Bit", "clip": "CLIP", "siglip": "Siglip"}
    kinds |= {"beit": "Beit", "data2vec-vision": "Beit"}
    return getattr(transformers, f"{kinds.get(case.model_type, 'ViT')}ImageProcessorPil")(**case.processor)


def pictures() -> list[Image.Image]:
    return [Image.fromarray(generate_images(5, height, width)[index]) for width, height in SIZES for index in (0, 2, 4)]


def as_png(picture: Image.Image) -> bytes:
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def inputs(case: Case) -> Tensor:
    """`[B, C, height, width]`, as transformers prepares them."""
    values: Tensor = processor(case)(pictures(), return_tensors="pt")["pixel_values"]
    return values.float()


@torch.no_grad()
def check_modules(case: Case, model: nn.Module, checkpoint: ImageCheckpoint) -> Tensor:
    """Compare the logits of both PyTorch models; returns them."""
    images = inputs(case)
    expected: Tensor = model(images).logits
    torch.testing.assert_close(checkpoint.model(images), expected, rtol=0, atol=TOLERANCE)
    return expected


def check_served(folder: Path, expected: Tensor) -> None:
    """Compare the bundle's probabilities of image files with transformers'."""
    with closing(ImageModel("model", 1, open_bundle(folder), EncoderOptions("fp32", runs=1))) as model:
        answers = model.classify([as_png(picture) for picture in pictures()], top_k=CLASSES)
    wanted = torch.softmax(expected, -1).numpy()
    np.testing.assert_allclose(by_class(answers), wanted, rtol=0, atol=TOLERANCE)
    for answer, row in zip(answers, wanted, strict=True):
        best = [f"label {number}" for number in np.argsort(-row, kind="stable")[:TOP]]
        assert [label.label for label in answer.labels[:TOP]] == best
    assert len({answer.labels[0].label for answer in answers}) > 1
    assert float(np.abs(wanted - wanted.mean(0)).max()) > 0.02


def by_class(answers: Sequence[ClassifiedImage]) -> Any:
    rows = np.zeros((len(answers), CLASSES), np.float32)
    for row, answer in zip(rows, answers, strict=True):
        for label in answer.labels:
            row[label.index] = label.score
    return rows


@torch.no_grad()
def check_attention(case: Case, model: nn.Module, folder: Path) -> None:
    """Compare the weights of every layer and head for one image of the model's own size."""
    picture = pictures()[0].convert("RGB").resize((32, 32))
    prepared = processor(case)(picture, return_tensors="pt", do_resize=False, do_center_crop=False)["pixel_values"]
    model.set_attn_implementation("eager")  # type: ignore[operator]  # the only one that returns weights
    wanted = torch.stack(model(pixel_values=prepared.float(), output_attentions=True).attentions, 1).numpy()
    session = Session(folder / "attend.fp32.onnx")
    [found] = session.run({"pixels": np.asarray(picture)[None].copy()}, ["encoder"])
    np.testing.assert_allclose(found, wanted, atol=TOLERANCE)
    assert wanted.std() > 0.02  # not uniform
    assert session.shape("encoder")[1:] == found.shape[1:]  # known before it runs


def check(case: Case, folder: Path) -> ImageFamily:
    model = build(case)
    balance(model, case)
    save(model, case, folder / "checkpoint")
    original = Folder(folder / "checkpoint")
    checkpoint = load(original)
    assert isinstance(checkpoint, ImageCheckpoint)
    assert "8 outputs as in transformers" in compare_with_original(original, checkpoint)
    expected = check_modules(case, model, checkpoint)
    family = ImageFamily(checkpoint)
    family.write(folder / "bundle", lambda line: None)
    check_served(folder / "bundle", expected)
    if case in (QUICK["vit"], QUICK["deit with teacher"]):
        check_attention(case, model, folder / "bundle")
    return family


@pytest.mark.full  # test_image_graphs and test_encoder_export have graphs of each kind, test_original weights and outputs
@pytest.mark.parametrize("name", QUICK)
def test_a_served_bundle_equals_transformers(name: str, tmp_path: Path) -> None:
    case = QUICK[name]
    family = check(case, tmp_path)
    manifest = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert manifest["family"] == case.model_type
    parity, _ = family.measure(tmp_path / "bundle", lambda line: None)
    assert parity["fp32"]["samples"] == parity["int8"]["decisions"] == 40
    assert parity["int8"]["mean_probability_difference"] < 0.1


@pytest.mark.full
@pytest.mark.parametrize("name", FULL)
def test_other_shapes_equal_transformers(name: str, tmp_path: Path) -> None:
    check(FULL[name], tmp_path)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    save(build(QUICK["vit"]), QUICK["vit"], tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("vit", {"architectures": ["ViTModel"]}, r"config\.json: ViTModel is not supported; supported of vit: ViTFor"),
        ("vit", {"architectures": None}, "architectures: missing, name the model's class; supported of vit"),
        ("vit", {"model_type": "levit"}, r"model_type 'levit' \(ViTForImageClassification\) is not supported"),
        ("vit", {"problem_type": "multi_label_classification"}, "problem_type: 'multi_label_classification' is not"),
        ("vit", {"num_channels": 1}, "num_channels: 1; images have 3"),
        ("vit", {"hidden_act": "selu"}, "hidden_act: 'selu' is not supported; supported: relu, gelu"),
        ("vit", {"num_attention_heads": 5}, "heads: 5 does not divide model_dim 24"),
        ("vit", {"patch_size": 7}, "patch_size: 7 does not divide image_size 32"),
        ("vit", {"image_size": "32"}, "image_size: '32', expected a number of pixels"),
        ("vit", {"num_hidden_layers": 3}, r"missing encoder\.layer\.2\.attention\.attention\.query\.weight"),
        ("vit", {"qkv_bias": False}, r"unexpected vit\.encoder\.layer\.0\.attention\.attention\.key\.bias"),
        ("vit", {"image_size": 40}, r"misshapen .*position_embeddings \[1, 17, 24\].*expected \[26, 24\]"),
        ("vit", {"id2label": {"0": "a", "1": "b"}}, "id2label: no name for 9 of 11 classes: 2, 3, 4"),
        ("vit", {"id2label": {str(number): "a" for number in range(12)}}, "12 names, the model has 11 classes"),
        ("vit", {"id2label": {str(number): "a" if number else None for number in range(11)}}, "no name for 1 of 11 classes: 0"),
        ("vit", {"architectures": "ViTModel"}, "ViTModel is not supported; supported of vit: ViTForImageClassification"),
        ("vit", {"id2label": ["a", "b"]}, r"id2label: \['a', 'b'\], expected names by class number"),
        ("siglip", {"vision_config": [1]}, r"config\.json: vision_config: \[1\], expected an object"),
        ("siglip", {"vision_config": {"num_channels": 1}}, "num_channels: 1; images have 3"),
        ("siglip", {"vision_config": {"hidden_act": "selu"}}, "hidden_act: 'selu' is not supported; supported: relu, gelu"),
        *(
            ("siglip", {"vision_config": inner}, r"config\.json \(vision_config\): novel: 1 is not supported, and may change")
            for inner in ({"novel": 1}, {"novel": 1, "intermediate_size": 41})
        ),
        ("swin v2", {"image_size": [32, 40]}, "image_size: .* with version 2; supported: squares of a multiple of 8"),
        ("swin v2", {"patch_size": 0}, "patch_size: 0, expected a number of pixels"),
        (
            "swin v2",
            {"pretrained_window_sizes": [3]},
            r"pretrained_window_sizes: \[3\], expected a whole number for each stage",
        ),
        ("swin v2", {"image_size": 36}, r"image_size: \[36, 36\] is not supported"),
        ("swin v2", {"use_absolute_embeddings": True}, "use_absolute_embeddings: True is not supported with version 2"),
    ],
)
def test_unsupported_members_are_named(name: str, change: Members, message: str, tmp_path: Path) -> None:
    save(build(QUICK[name]), QUICK[name], tmp_path)
    if isinstance(inner := change.get("vision_config"), dict):
        change = {"vision_config": {**json.loads((tmp_path / "config.json").read_text())["vision_config"], **inner}}
    edit_json(tmp_path / "config.json", **change)
    with pytest.raises(SourceError, match=message):
        load(Folder(tmp_path))


def test_images_for_parity_may_be_files(checkpoint: Path) -> None:
    loaded = load_image(checkpoint)
    path = checkpoint / "picture.png"
    path.write_bytes(as_png(pictures()[1]))
    (pixels,) = ImageFamily(loaded, [str(path)]).images
    expected = processor(QUICK["vit"])(pictures()[1], do_rescale=False, do_normalize=False)["pixel_values"][0]
    np.testing.assert_array_equal(pixels, np.moveaxis(np.asarray(expected), 0, -1))
    with pytest.raises(SourceError, match=r"lost\.png: cannot be read: No such file"):
        ImageFamily(loaded, [str(checkpoint / "lost.png")])
    edit_json(checkpoint / "preprocessor_config.json", size=24)
    with pytest.raises(SourceError, match="image: 24 x 24 pixels, the model takes 32 x 32"):
        ImageFamily(load_image(checkpoint))


def test_a_single_class_is_rejected(tmp_path: Path) -> None:
    config = transformers.ViTConfig(**QUICK["vit"].shape, num_labels=1)
    save(transformers.ViTForImageClassification(config), QUICK["vit"], tmp_path)
    with pytest.raises(SourceError, match="the model has 1 class, expected at least 2"):
        load(Folder(tmp_path))


def test_duplicate_class_names_get_a_number(checkpoint: Path) -> None:
    names = {str(number): "crane" if number in (3, 7) else f"thing  {number}" for number in range(CLASSES)}
    edit_json(checkpoint / "config.json", id2label=names | {"9": "crane (7)"})
    labels = load_image(checkpoint).labels
    named = [labels[number] for number in (3, 7, 8, 9)]
    assert named == ["crane (3)", "crane (7) (7)", "thing 8", "crane (7) (9)"]
    edit_json(checkpoint / "config.json", id2label=None)
    assert load_image(checkpoint).labels == tuple(f"LABEL_{number}" for number in range(CLASSES))
