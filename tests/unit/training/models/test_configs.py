"""Model configurations reject values out of range and name field, value and limit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from triptych_training.models.bert import BertConfig
from triptych_training.models.deberta import DebertaConfig
from triptych_training.models.elmo import ElmoConfig
from triptych_training.models.modernbert import ModernBertConfig
from triptych_training.models.pvt import PvtConfig
from triptych_training.models.resnet import ResNetConfig
from triptych_training.models.rotary import Rotary
from triptych_training.models.swin import SwinConfig
from triptych_training.models.transformer import TransformerConfig
from triptych_training.models.vit import VitConfig

TRANSFORMER = partial(TransformerConfig, vocabulary_size=100)
BERT = partial(BertConfig, vocabulary_size=50)
ELMO = partial(ElmoConfig, vocabulary_size=50)
MODERNBERT = partial(
    ModernBertConfig, 50, 16, 2, 24, layers=3, max_positions=32, global_layers=(0,), pad_id=0, cls_id=2, sep_id=3, mask_id=4
)
DEBERTA = partial(DebertaConfig, 50, 16, 2, 24, mask_id=4)
ROTARY = partial(Rotary, 4, theta=100.0, head_dim=8)
VIT = partial(VitConfig, classes=10)
SWIN = partial(SwinConfig, classes=3, image_size=32, model_dim=8, depths=(2, 2), heads=(2, 4), window_size=4)
PVT = partial(PvtConfig, classes=3, image_size=32)
RESNET = partial(ResNetConfig, classes=3)

CASES: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (TRANSFORMER, {"model_dim": 0}, "model_dim: 0 is below 1"),
    (TRANSFORMER, {"decoder_layers": 0}, "decoder_layers: 0 is below 1"),
    (TRANSFORMER, {"max_positions": 1}, "max_positions: 1 is below 2, a token and the end of the sentence"),
    (TRANSFORMER, {"decoder_heads": 3}, "heads: 3 does not divide model_dim 512"),
    (TRANSFORMER, {"norm": "middle"}, "norm: 'middle' is unknown; choose one of pre, post"),
    (TRANSFORMER, {"activation": "tanh"}, "activation: 'tanh' is unknown; choose one of relu, gelu, gelu_tanh, silu,"),
    (TRANSFORMER, {"positions": "rotary"}, "positions: 'rotary' is unknown; choose one of sinusoidal, learned,"),
    (TRANSFORMER, {"dropout": 1.0}, "dropout: 1.0 is outside [0, 1)"),
    (ELMO, {"dropout": 1.0}, "dropout: 1.0 is outside [0, 1)"),
    (TRANSFORMER, {"eos_id": 100}, "eos_id: 100 is outside the vocabulary of 100"),
    (TRANSFORMER, {"pad_id": 1.5}, "pad_id: 1.5 is not a whole number"),
    (TRANSFORMER, {"eos_id": 0}, "pad_id, eos_id: both are 0; padding would end every sentence"),
    (TRANSFORMER, {"source_vocabulary_size": -1}, "source_vocabulary_size: -1 is below 0"),
    (TRANSFORMER, {"source_vocabulary_size": 2}, "eos_id: 2 is outside the sources' vocabulary of 2"),
    (TRANSFORMER, {"relative_buckets": 3}, "relative_buckets: 3 is below 4"),
    (TRANSFORMER, {"relative_buckets": 32, "relative_distance": 16}, "relative_distance: 16 is not above 16, half of the"),
    (TRANSFORMER, {"head_dim": -1}, "head_dim: -1 is below 0"),
    (TRANSFORMER, {"norm_kind": "batch"}, "norm_kind: 'batch' is unknown; choose one of layer, rms"),
    (BERT, {"layers": 0}, "layers: 0 is below 1"),
    (BERT, {"embedding_dim": -1}, "embedding_dim: -1 is below 0"),
    (BERT, {"relative_buckets": 3}, "relative_buckets: 3 is below 4"),
    (BERT, {"theta": -1.0}, "theta: -1.0 is below 0"),
    (BERT, {"rotary_divisor": 0.5}, "rotary_divisor: 0.5 is below 1"),
    (BERT, {"segments": -1}, "segments: -1 is below 0"),
    (BERT, {"pooler_activation": "sin"}, "pooler_activation: 'sin' is unknown; choose one of relu, gelu, gelu_tanh, silu,"),
    (BERT, {"max_positions": 3}, "max_positions: 3 is below 4: [CLS], a token, [SEP] twice"),
    (BERT, {"pad_id": -1}, "pad_id: -1 is outside the vocabulary of 50"),
    (MODERNBERT, {"window": -1}, "window: -1 is below 0"),
    (MODERNBERT, {"global_layers": (3,)}, "global_layers: 3 is none of the 3 layers"),
    (MODERNBERT, {"pooling": "max"}, "pooling: 'max' is unknown; choose one of cls, mean"),
    (MODERNBERT, {"mask_id": 50}, "mask_id: 50 is outside the vocabulary of 50"),
    (MODERNBERT, {"head_activation": "sin"}, "activation: 'sin' is unknown; choose one of relu, gelu, gelu_tanh, silu,"),
    (DEBERTA, {"position_buckets": 3}, "position_buckets: 3 is below 4"),
    (DEBERTA, {"max_distance": 129}, "max_distance: 129 is not above 129, half of the position_buckets and one"),
    (DEBERTA, {"embedding_dim": -1}, "embedding_dim: -1 is below 0"),
    (DEBERTA, {"mask_id": 50}, "mask_id: 50 is outside the vocabulary of 50"),
    (DEBERTA, {"pooler_activation": "sin"}, "activation: 'sin' is unknown; choose one of relu, gelu, gelu_tanh, silu,"),
    (ROTARY, {"head_dim": 7}, "head_dim: 7 is odd"),
    (VIT, {"classes": 0}, "classes: 0 is below 1"),
    (VIT, {"patch_size": 15}, "patch_size: 15 does not divide image_size 224"),
    (VIT, {"image_width": -1}, "image_width: -1 is below 0"),
    (VIT, {"image_width": 230}, "patch_width: 16 does not divide image_width 230"),
    (VIT, {"stem": "pool"}, "stem: 'pool' is unknown; choose one of patch, convolution, deep"),
    (VIT, {"patch_size": 7, "stem": "convolution"}, "patch_size: 7 is not a power of two, which the convolution stem needs"),
    (VIT, {"patch_width": 32, "stem": "convolution"}, "patch_width: 32 is not patch_size, which the convolution stem needs"),
    (VIT, {"distillation_head": True}, "distillation_head: there is no distillation_token for it"),
    (VIT, {"class_token": False}, "pooling: 'first' needs a class_token"),
    (
        VIT,
        {"class_token": False, "distillation_token": True, "pooling": "mean"},
        "distillation_token: true needs a class_token",
    ),
    (
        VIT,
        {"distillation_token": True, "distillation_head": True, "pooling": "mean"},
        "distillation_head: needs pooling 'first'",
    ),
    (VIT, {"pooling": "max"}, "pooling: 'max' is unknown; choose one of first, mean, mean-first, both"),
    (VIT, {"relative_positions": True, "registers": 1}, "relative_positions: needs a class_token alone before the patches"),
    (VIT, {"registers": -1}, "registers: -1 is below 0"),
    (VIT, {"embedding_norm": True, "stem": "deep"}, "embedding_norm: only with the patch stem"),
    (VIT, {"drop_path": 1.0, "layers": 1}, "drop_path: 1.0 is outside [0, 1)"),
    (SWIN, {"window_size": 0}, "window_size: 0 is below 1"),
    (SWIN, {"image_width": -1}, "image_width: -1 is below 0"),
    (SWIN, {"depths": (2, 0)}, "depths: [2, 0], every stage needs a layer"),
    (SWIN, {"heads": (2,)}, "heads: 1 stages, depths has 2"),
    (SWIN, {"heads": (2, 5)}, "heads: 5 does not divide model_dim 16"),
    (SWIN, {"window_size": 7}, "window_size: 7 exceeds the 4 x 4 positions of stage 1"),
    (SWIN, {"absolute_positions": True, "image_size": 30}, "patch_size: (4, 4) does not divide image_size (30, 30): no"),
    (SWIN, {"drop_path": 1.0}, "drop_path: 1.0 is outside [0, 1)"),
    (RESNET, {"patch_size": 2}, "patch_size: (2, 2) is unknown; choose one of 1, 4, for both sides"),
    (RESNET, {"depths": (1, 1)}, "depths: 2 stages, widths has 4"),
    (RESNET, {"widths": (8, 0, 8, 8)}, "widths: [8, 0, 8, 8], every stage needs at least 1"),
    (PVT, {"widths": (8, 8, 8, 8)}, "widths: 8 of stage 2 is not a multiple of its 5 heads"),
    (PVT, {"version": "3"}, "version: '3' is unknown; choose one of 1, 2, 2-linear"),
    (PVT, {"heads": (1, 2)}, "heads: 2 values, expected 4, of 4 stages"),
    (PVT, {"heads": (1, 2, 5, 7)}, "widths: 512 of stage 3 is not a multiple of its 7 heads"),
    (PVT, {"depths": (2, 2, 0, 2)}, "depths: 0 is not above 0"),
    (PVT, {"reductions": (8, 4, 3, 1)}, "reductions: 3 exceeds the 2 x 2 positions of stage 2"),
    (PVT, {"version": "1", "image_size": 34}, "patch_size: (4, 4) does not divide image_size (34, 34)"),
    (PVT, {"version": "1", "reductions": (8, 4, 2, 2), "image_size": 64}, "reductions: 2 in the last stage, whose class token"),
]


@pytest.mark.parametrize(("make", "changes", "message"), CASES)
def test_a_value_out_of_range_is_named_with_its_limit(make: Callable[..., Any], changes: dict[str, Any], message: str) -> None:
    make()
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        make(**changes)
    assert str(caught.value).startswith(message)
