"""Every kind of image model, with large random weights: the graph's probabilities are PyTorch's."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from triptych_export.bundle_files import write_encoder
from triptych_export.errors import GraphError
from triptych_export.graphs.attention import expose_attention
from triptych_export.graphs.tracing import trace_image
from triptych_export.parity.comparison import check_answers, compare_answers
from triptych_export.parity.image import Pixels, answer_images_in_session, answer_images_in_torch
from triptych_serving.bundle.manifest import FP16
from triptych_serving.runtime.session import Session
from triptych_training.checkpoints.encoder import ImageConfig, TrainedImageModel, make_image_model
from triptych_training.models.pvt import Pvt, PvtConfig
from triptych_training.models.resnet import ResNet, ResNetConfig
from triptych_training.models.swin import Swin, SwinConfig
from triptych_training.models.vit import Vit, VitConfig

from ..fixtures.cuda_kernels import unfit_nodes

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES, SIDE = 20, 32
PYRAMID: dict[str, Any] = {
    "merges": (2,),
    "widths": (32, 48),
    "depths": (1, 1),
    "heads": (2, 4),
    "feedforward_ratios": (2, 2),
    "reductions": (3, 1),
}
SHAPES = {
    "patches": VitConfig(CLASSES, SIDE, 8, model_dim=48, heads=3, feedforward_dim=80, layers=3),
    "convolutions": VitConfig(CLASSES, SIDE, 8, model_dim=48, heads=3, feedforward_dim=80, layers=2, stem="convolution"),
    "deep convolutions": VitConfig(CLASSES, SIDE, 8, model_dim=48, heads=3, feedforward_dim=80, layers=1, stem="deep"),
    "one layer": VitConfig(CLASSES, SIDE, 16, model_dim=32, heads=2, feedforward_dim=64, layers=1),
    "distilled": VitConfig(
        CLASSES, SIDE, 8, model_dim=32, heads=2, feedforward_dim=64, layers=2, distillation_token=True, distillation_head=True
    ),
    "registers": VitConfig(
        CLASSES, SIDE, 8, model_dim=32, heads=2, feedforward_dim=64, layers=2, registers=2, pooling="both", gated=True
    ),
    "mean": VitConfig(
        CLASSES,
        SIDE,
        8,
        model_dim=32,
        heads=2,
        feedforward_dim=64,
        layers=1,
        class_token=False,
        embedding_norm=True,
        pooling="mean-first",
    ),
    "relative": VitConfig(CLASSES, SIDE, 8, model_dim=32, heads=2, feedforward_dim=64, layers=2, relative_positions=True),
    # A grid of 11 x 11, then 6 x 6: patches, windows, those of the shifted layer too, and the merge need padding.
    "windows": SwinConfig(CLASSES, SIDE, 3, model_dim=32, depths=(2, 1), heads=(2, 4), window_size=3),
    # The last grid is smaller than a window.
    "cosines": SwinConfig(CLASSES, SIDE, 4, model_dim=32, depths=(2, 1), heads=(2, 4), window_size=5, cosine=True),
    "pyramid": PvtConfig(CLASSES, SIDE, 4, version="1", **PYRAMID),
    # A grid of 7 x 7, then 4 x 4, which is pooled into unequal parts.
    "pyramid of overlapping patches": PvtConfig(CLASSES, SIDE, 5, version="2-linear", **PYRAMID),
    "residuals": ResNetConfig(CLASSES, SIDE, 4, widths=(16, 24), depths=(2, 1)),
    "residuals of small images": ResNetConfig(CLASSES, SIDE, 1, widths=(16, 32), depths=(1, 1)),
}
Exported = tuple[TrainedImageModel, Path]


def make_model(shape: ImageConfig) -> TrainedImageModel:
    """Weights at which a lost bias shows, and batch statistics as after a training."""
    torch.manual_seed(17)
    model = make_image_model(shape).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()  # type: ignore[union-attr]
                module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return model


QUICK = ("windows", "pyramid of overlapping patches", "residuals")  # test_encoder_export has a ViT


def write(shape: ImageConfig, folder: Path, precisions: Sequence[str]) -> Exported:
    model = make_model(shape)
    write_encoder(folder, precisions, lambda half: trace_image(model, MEAN, STD, half), isinstance(model, Vit))
    return model, folder


@pytest.fixture(
    scope="module",
    params=[pytest.param(s, id=name, marks=[] if name in QUICK else [pytest.mark.full]) for name, s in SHAPES.items()],
)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return write(request.param, tmp_path_factory.mktemp("graph"), ("fp32", "int8"))


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def half(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return write(request.param, tmp_path_factory.mktemp("half"), (FP16,))


@pytest.fixture
def images() -> list[Pixels]:
    """Forty, from dark to bright, from flat to noisy."""
    chance = np.random.default_rng(2)
    levels = np.linspace(0, 255, 40)
    noise = chance.normal(size=(40, SIDE, SIDE, 3)) * np.linspace(0, 90, 40)[::-1, None, None, None]
    tint = chance.normal(size=(40, 1, 1, 3)) * 40
    return list(np.clip(levels[:, None, None, None] + noise + tint, 0, 255).astype(np.uint8))


def test_probabilities_are_those_of_pytorch_in_every_batch(exported: Exported, images: list[Pixels]) -> None:
    model, folder = exported
    expected = [answer_images_in_torch(model, image, MEAN, STD) for image in images]
    session = Session(folder / "graph.fp32.onnx")
    report = check_answers(expected, lambda size: answer_images_in_session(session, images, size, CLASSES))
    assert (report["samples"], report["decisions"]) == (40, 40)
    assert len({int(answer["probabilities"].argmax()) for answer in expected}) > 1


def test_as_many_labels_come_as_were_asked_for(exported: Exported, images: list[Pixels]) -> None:
    model, folder = exported
    pixels = np.stack(images[:5])
    scores, labels = Session(folder / "graph.fp32.onnx").run({"pixels": pixels, "k": np.array([3])}, ["scores", "labels"])
    assert scores.shape == labels.shape == (5, 3)
    assert np.all(np.diff(scores) <= 0)
    best = [int(answer_images_in_torch(model, image, MEAN, STD)["probabilities"].argmax()) for image in images[:5]]
    assert labels[:, 0].tolist() == best


def test_int8_is_near_and_needs_no_slow_kernels(exported: Exported, images: list[Pixels]) -> None:
    model, folder = exported
    expected = [answer_images_in_torch(model, image, MEAN, STD) for image in images]
    fast = answer_images_in_session(Session(folder / "graph.int8.onnx", saturation_free=True), images, 16, CLASSES)
    safe = answer_images_in_session(Session(folder / "graph.int8.onnx"), images, 16, CLASSES)
    for left, right in zip(fast, safe, strict=True):
        np.testing.assert_array_equal(left["probabilities"], right["probabilities"])
    report = compare_answers(expected, fast)
    assert report["top_1_agreement_percent"] > 60
    assert report["mean_probability_difference"] < 0.1


@pytest.mark.full
def test_fp16_is_nearer_and_names_the_same_labels(half: Exported, images: list[Pixels]) -> None:
    model, folder = half
    expected = [answer_images_in_torch(model, image, MEAN, STD) for image in images]
    session = Session(folder / "graph.fp16.onnx")
    report = compare_answers(expected, answer_images_in_session(session, images, 16, CLASSES))
    assert report["top_1_agreement_percent"] > 94
    assert report["mean_probability_difference"] < 0.005


@pytest.mark.full
def test_fp16_can_be_captured_on_a_gpu(half: Exported) -> None:
    """Every node has a kernel on CUDA, and none waits for a number that the host takes from a shape."""
    assert unfit_nodes(onnx.load(half[1] / "graph.fp16.onnx", load_external_data=False), ("k",)) == []


def test_patches_are_multiplied_as_bytes_and_attention_is_one_operator(exported: Exported) -> None:
    model, folder = exported
    kinds = [node.op_type for node in onnx.load(folder / "graph.int8.onnx", load_external_data=False).graph.node]
    by_patch = model.config.version == "1" if isinstance(model, Pvt) else isinstance(model.stem, nn.Conv2d)
    assert kinds.count("MatMulIntegerToFloat") == by_patch
    assert kinds.count("Cast") == (not by_patch) + kinds.count("Conv")  # of bytes, and of kernels stored in int8
    if isinstance(model, Vit):
        first = model.config.pooling == "first"  # of the last layer only the leading tokens are asked for
        assert kinds.count("PerRowAttention") == (0 if model.config.relative_positions else model.config.layers - first)
    assert kinds.count("MatMul") == (2 * 2 if isinstance(model, Pvt) and not by_patch else 0)  # rows and columns, pooled
    if isinstance(model, Swin):  # windows are cut by one Gather and attended to by one operator; one more Gather merges
        cut = 2 if model.config.cosine else 3  # layers of several windows
        assert (kinds.count("MultiHeadAttention"), kinds.count("Gather")) == (3, 2 * cut + 1)
        assert not {"Slice", "Concat", "Expand"} & set(kinds)
    assert not {"Gemm", "BatchNormalization"} & set(kinds)


def test_attention_weights_of_other_models_than_vit_cannot_be_given_as_one_array(exported: Exported) -> None:
    model = onnx.load(exported[1] / "graph.fp32.onnx", load_external_data=False)
    problem = "the graph has no attention operator" if isinstance(exported[0], ResNet) else "heads cannot be in one array"
    with nullcontext() if isinstance(exported[0], Vit) else pytest.raises(GraphError, match=problem):
        expose_attention(model)
