"""bundle.json of the text and image families: every fault at once."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from triptych_serving.bundle.bundle import open_bundle
from triptych_serving.bundle.manifest import ImageManifest, TextManifest, TranslationManifest, read_manifest
from triptych_serving.bundle.manifest.image import ImageSpec
from triptych_serving.errors import BundleError

from ....fixtures.encoders import COLOURS, ENTITIES, sign, write_image_bundle, write_image_tensors_bundle, write_text_bundle
from ....fixtures.toy import BUNDLE, edit_manifest

Edit = Callable[[dict[str, Any]], object]


def faults_of(folder: Path, edit: Edit) -> set[str]:
    edit_manifest(folder, edit)
    with pytest.raises(BundleError) as error:
        read_manifest(folder)
    return set(error.value.faults)


def test_a_text_manifest_is_read(repository: Path) -> None:
    manifest = read_manifest(write_text_bundle(repository, "fill-mask", next_sentence=True))
    assert isinstance(manifest, TextManifest)
    assert (manifest.tokens.pad, manifest.tokens.cls, manifest.tokens.sep, manifest.tokens.mask) == (0, 2, 3, 4)
    assert (manifest.limits.max_tokens, manifest.hidden_size, manifest.next_sentence, manifest.pairs) == (64, 4, True, False)
    assert manifest.precisions["fp32"].files == ("model.fp32.onnx",)
    assert not manifest.precisions["fp32"].saturation_free


def test_an_image_manifest_is_read(repository: Path) -> None:
    precisions = {"fp32": {"graph": "model.fp32.onnx", "saturation_free": True}}
    folder = write_image_bundle(repository, precisions=precisions)
    manifest = read_manifest(folder)
    assert isinstance(manifest, ImageManifest)
    assert (manifest.image.height, manifest.image.width, manifest.image.interpolation) == (8, 8, "bilinear")
    assert (manifest.label_count, manifest.mean, manifest.std) == (3, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert manifest.precisions["fp32"].saturation_free
    assert manifest.image.stretched == (8, 8)
    edit_manifest(folder, lambda raw: raw["image"].update(resize_height=10, resize_width=12))
    assert read_manifest(folder).image.stretched == (10, 12)


def test_every_fault_of_a_text_manifest_is_listed(repository: Path) -> None:
    def edit(raw: dict[str, Any]) -> None:
        raw["tokens"] = {"pad": -1, "cls": "2", "sep": 3}
        raw["limits"] = {}
        raw["hidden_size"] = 0
        raw["labels"] = ["a", "b", "a", " "]
        raw["pairs"] = "yes"
        raw["singles"] = 1
        raw["template"] = ["{document} {query}"]
        raw["pooling"] = "max"
        raw["normalize"] = "no"
        raw["aggregation"] = "last"
        raw["regression"] = True
        raw["precisions"]["int8"] = {"graph": "lost.onnx", "saturation_free": 1}
        raw["default_precision"] = "fp16"

    assert faults_of(write_text_bundle(repository, "text-classification"), edit) == {
        "tokens.pad is -1, expected at least 0",
        "tokens.cls is '2', expected int",
        "tokens.mask is missing, expected int",
        "limits.max_tokens is missing, expected int",
        "hidden_size is 0, expected at least 1",
        "labels: one is blank",
        "pairs is 'yes', expected bool",
        "singles is 1, expected bool",
        "template is ['{document} {query}'], expected {text} for text-embedding, {query} and {document} in one text or two for "
        "pairs without singles",
        "pooling is 'max', expected one of mean, cls",
        "normalize is 'no', expected bool",
        "aggregation is 'last', expected one of none, simple, first, average, max",
        "regression needs logits, which the graph does not have",
        "precisions.int8.saturation_free is 1, expected bool",
        "files lists no 'lost.onnx'",
        "default_precision 'fp16' is not among precisions ['fp32', 'int8']",
    }


def test_a_classifier_needs_labels(repository: Path) -> None:
    folder = write_text_bundle(repository, "token-classification")
    assert open_bundle(folder).manifest_of(TextManifest).labels == tuple(ENTITIES)
    assert faults_of(folder, lambda raw: raw.pop("labels")) == {"labels is missing, expected a list of strings"}
    assert faults_of(folder, lambda raw: raw.update(labels=[])) == {"labels is empty"}
    edit_manifest(folder, lambda raw: raw.update(labels=["O", "B-PER", "B-PER"]))
    assert open_bundle(folder).manifest_of(TextManifest).labels == ("O", "B-PER", "B-PER")


def test_every_fault_of_an_image_manifest_is_listed(repository: Path) -> None:
    def edit(raw: dict[str, Any]) -> None:
        raw["label_count"] = 0
        raw["image"] |= {"resize": "squeeze", "interpolation": "cubic", "mean": [0.5], "std": None}
        del raw["files"]["labels.txt"]

    faults = faults_of(write_image_bundle(repository), edit)
    assert faults >= {
        "label_count is 0, expected at least 1",
        "image.mean is [0.5], expected a list of 3 numbers",
        "image.std is missing, expected a list of 3 numbers",
        "files lists no 'labels.txt'",
    }
    assert {fault.split(" ")[0] for fault in faults} >= {"image.resize", "image.interpolation"}


@pytest.mark.parametrize(
    ("image", "fault"),
    [
        ({"std": [0, 1, 1]}, "image.std is [0.0, 1.0, 1.0], all of it must be above 0"),
        ({"std": [1, float("inf"), 1]}, "image.std is [1, inf, 1], expected a list of 3 numbers"),
        ({"mean": [0, float("nan"), 0]}, "image.mean is [0, nan, 0], expected a list of 3 numbers"),
        ({"mean": [10**400, 0, 0]}, f"image.mean is [1{'0' * 38}, expected a list of 3 numbers"),
        ({"height": 9}, "image makes rows of [3, 9, 8], but the shape of 'x' is [-1, 3, 8, 8]"),
    ],
)
def test_images_that_do_not_fit_a_graph_of_plain_tensors_are_rejected(
    repository: Path, image: dict[str, Any], fault: str
) -> None:
    folder = write_image_tensors_bundle(repository)
    assert faults_of(folder, lambda raw: raw["image"].update(image)) == {fault}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"red\ngreen\n", "labels.txt has 2 lines, label_count says 3"),
        (b"red\ngreen\n\n", "labels.txt: one is blank"),
        (b"red\n\xff\nblue\n", "labels.txt is not UTF-8"),
        ("\n".join(COLOURS).encode(), ""),
        (("\r\n".join(COLOURS) + "\r\n").encode(), ""),
        (b"red\ngreen\nred\n", ""),
    ],
)
def test_labels_must_match_the_graph(repository: Path, content: bytes, fault: str) -> None:
    folder = write_image_bundle(repository)
    (folder / "labels.txt").write_bytes(content)
    sign(folder)
    with pytest.raises(BundleError, match=re.escape(fault)) if fault else nullcontext():
        open_bundle(folder)


def test_a_bundle_of_another_task_is_rejected(repository: Path) -> None:
    with pytest.raises(BundleError, match="task 'translation' has no TextManifest"):
        open_bundle(BUNDLE).manifest_of(TextManifest)
    assert open_bundle(BUNDLE).manifest_of(TranslationManifest).source_languages == ("en",)


def test_a_spec_has_the_manifests_values() -> None:
    ImageSpec(height=224, width=192, resize="shortest-edge", resize_size=224, interpolation="bicubic")
    assert ImageSpec(height=32, width=32, resize="stretch", resize_size=7).resize_size == 7
    assert ImageSpec(height=32, width=16).stretched == (32, 16)
    assert ImageSpec(height=32, width=16, resize_height=40).stretched == (40, 16)


SIZE = "it must be between 1 and 4096 pixels"
LARGER = "it must be 32 or more, the longer side of the crop"


@pytest.mark.parametrize(
    ("members", "faults"),
    [
        ({"width": 4097}, [f"width is 4097, {SIZE}"]),
        (
            {"height": 0, "width": -1, "resize": "squeeze", "interpolation": "cubic"},
            [
                f"height is 0, {SIZE}",
                f"width is -1, {SIZE}",
                "resize is 'squeeze', it must be one of stretch, shortest-edge",
                "interpolation is 'cubic', it must be one of nearest, box, bilinear, hamming, bicubic, lanczos",
            ],
        ),
        ({"resize": "shortest-edge"}, [f"resize_size is 0, {SIZE}"]),
        ({"resize": "shortest-edge", "resize_size": 31}, [f"resize_size is 31, {LARGER}"]),
        ({"resize_height": 31}, ["resize_height is 31, it must be 32 or more, the height of the crop"]),
        ({"resize_width": 15}, ["resize_width is 15, it must be 16 or more, the width of the crop"]),
        ({"resize_width": -1}, [f"resize_width is -1, {SIZE}"]),
    ],
)
def test_each_fault_names_member_value_and_limit(members: dict[str, Any], faults: list[str]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        ImageSpec(**{"height": 32, "width": 16} | members)
    assert list(caught.value.args) == faults
