"""preprocessor_config.json as it is written by many hands: what it means, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from triptych_export.errors import SourceError
from triptych_export.huggingface.checkpoint.image import read_image_processor
from triptych_export.huggingface.folder import Folder
from triptych_training.checkpoints.encoder import ImagePreprocessing

from ....fixtures.json_files import write_json

HALF = (0.5, 0.5, 0.5)


def read(
    folder: Path, members: dict[str, Any], model_type: str = "vit", name: str = "preprocessor_config.json"
) -> ImagePreprocessing:
    write_json(folder / "config.json", {"model_type": model_type})
    write_json(folder / name, members)
    return read_image_processor(Folder(folder))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"image_processor_type": "ViTImageProcessor"}, (224, 224, "stretch", 0, "bilinear", HALF, HALF)),
        ({"image_processor_type": "ViTImageProcessorFast", "size": 96}, (96, 96, "stretch", 0, "bilinear", HALF, HALF)),
        ({"feature_extractor_type": "ViTFeatureExtractor", "size": 384}, (384, 384, "stretch", 0, "bilinear", HALF, HALF)),
        ({"size": [64, 48], "resample": 1}, (64, 48, "stretch", 0, "lanczos", HALF, HALF)),
        ({"size": {"height": 64, "width": 48, "shortest_edge": None}}, (64, 48, "stretch", 0, "bilinear", HALF, HALF)),
        ({"image_processor_type": "DeiTImageProcessor"}, (224, 224, "stretch", 0, "bicubic", HALF, HALF, 256, 256)),
        (
            {"feature_extractor_type": "DeiTFeatureExtractor", "size": 256, "crop_size": 224, "do_center_crop": True},
            (224, 224, "stretch", 0, "bicubic", HALF, HALF, 256, 256),
        ),
        (
            {"image_processor_type": "DeiTImageProcessor", "size": 224, "crop_size": 224},
            (224, 224, "stretch", 0, "bicubic", HALF, HALF),
        ),
        (
            {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 32},
            (32, 32, "shortest-edge", 40, "bilinear", HALF, HALF),
        ),
        (
            {"image_processor_type": "ConvNextImageProcessor", "size": 224, "crop_pct": 0.875, "image_mean": 0.5},
            (224, 224, "shortest-edge", 256, "bicubic", HALF, HALF),
        ),
        ({"image_processor_type": "ConvNextFeatureExtractor"}, (384, 384, "stretch", 0, "bicubic", HALF, HALF)),
        (
            {"image_processor_type": "CLIPImageProcessor", "size": 224, "image_mean": 0.5, "image_std": [0.25, 0.5, 1]},
            (224, 224, "shortest-edge", 224, "bicubic", HALF, (0.25, 0.5, 1.0)),
        ),
        ({"do_normalize": False}, (224, 224, "stretch", 0, "bilinear", (0.0,) * 3, (1.0,) * 3)),
        ({"do_rescale": False, "image_mean": 127.5, "image_std": 127.5}, (224, 224, "stretch", 0, "bilinear", HALF, HALF)),
        ({"rescale_factor": 1 / 127.5, "image_mean": 1, "image_std": 1}, (224, 224, "stretch", 0, "bilinear", HALF, HALF)),
        ({"size": None, "do_pad": None, "do_convert_rgb": True}, (224, 224, "stretch", 0, "bilinear", HALF, HALF)),
    ],
)
def test_what_a_processor_does(tmp_path: Path, members: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert read(tmp_path, members) == ImagePreprocessing(*expected)


def test_a_processor_without_a_name_is_the_family_s_own(tmp_path: Path) -> None:
    assert read(tmp_path, {}, "deit").resize_height == 256
    assert read(tmp_path, {}, "swin") == ImagePreprocessing(224, 224)


def test_a_processor_may_be_a_member_of_processor_config(tmp_path: Path) -> None:
    members = {"image_processor": {"image_processor_type": "ViTImageProcessor", "size": 32}}
    assert read(tmp_path, members, name="processor_config.json").height == 32
    (tmp_path / "processor_config.json").write_text("{}")
    with pytest.raises(SourceError, match=r"holds no preprocessor_config\.json, which says how images are .*; save the"):
        read_image_processor(Folder(tmp_path))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"do_resize": False}, "do_resize: false; the model takes images of one size, so they must be resized"),
        ({"do_pad": True}, "do_pad: true; padding is not supported"),
        (
            {"image_processor_type": "SamImageProcessor"},
            "image_processor_type: SamImageProcessor is not supported; supported: ViT",
        ),
        (
            {"size": {"shortest_edge": 224}},
            "size: shortest_edge 224 without do_center_crop; the model takes images of one size",
        ),
        (
            {"size": {"shortest_edge": 224, "longest_edge": 448}},
            "size: {'shortest_edge': 224, 'longest_edge': 448}, expected a",
        ),
        (
            {"size": {"max_height": 9, "max_width": 9}},
            "size: {'max_height': 9, 'max_width': 9}, expected a number of pixels, height and width, or a shortest_edge alone",
        ),
        ({"size": 0}, "size: 0, expected a number of pixels"),
        ({"size": True}, "size: True, expected a number of pixels"),
        ({"size": "224"}, "size: '224', expected a number of pixels"),
        ({"do_center_crop": True, "crop_size": 256}, "crop_size: 256 x 256 exceeds size 224 x 224; padding is not supported"),
        (
            {"do_center_crop": True, "size": {"shortest_edge": 200}, "crop_size": [180, 220]},
            "crop_size: 220 x 180 exceeds the shortest_edge 200 of size; padding is not supported",
        ),
        (
            {"do_center_crop": True, "crop_size": {"shortest_edge": 9}},
            "crop_size: {'shortest_edge': 9} has no height and width",
        ),
        ({"resample": 6}, "resample: 6 is unknown; supported: 0 (nearest), 1 (lanczos), 2 (bilinear)"),
        ({"resample": "bicubic"}, "resample: 'bicubic' is unknown"),
        ({"image_mean": [0.5]}, "image_mean: [0.5], expected a number, or one each for red, green and blue"),
        ({"image_std": [0.5, "a", 1]}, "image_std: [0.5, 'a', 1], expected a number"),
        ({"image_mean": [0.5, float("nan"), 1]}, "image_mean: [0.5, nan, 1], expected a number"),
        ({"image_std": [0.5, 0, 1]}, "image_std: [0.5, 0.0, 1.0], every channel's must be above 0"),
        ({"rescale_factor": 0}, "rescale_factor: 0 is not above 0"),
        ({"image_processor_type": "ConvNextImageProcessor", "size": 224, "crop_pct": 1.2}, "crop_pct: 1.2 is outside (0, 1]"),
        (
            {"image_processor_type": "ConvNextImageProcessor", "size": {"height": 9, "width": 9}},
            "size: {'height': 9, 'width': 9}, expected shortest_edge",
        ),
        (
            {"image_processor_type": "ConvNextImageProcessor", "do_center_crop": True},
            "do_center_crop: true; ConvNextImageProcessor crops by crop_pct",
        ),
    ],
)
def test_what_a_bundle_cannot_do_is_named(tmp_path: Path, members: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError) as caught:
        read(tmp_path, members)
    assert str(caught.value).startswith(f"{tmp_path / 'preprocessor_config.json'}: {message}")
