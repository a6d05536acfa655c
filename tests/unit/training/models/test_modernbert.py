"""ModernBERT: parameters and pooling; tests/parity compares positions and attention windows with transformers."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from triptych_training.models.bert import BertForSequenceClassification
from triptych_training.models.modernbert import ModernBert, ModernBertConfig
from triptych_training.models.rotary import Rotary

IDS = torch.tensor([[2, 9, 12, 7, 3, 0, 0, 0, 0], [2, 8, 3, 20, 21, 22, 23, 24, 3]])
SEGMENTS = torch.zeros_like(IDS)
SHAPE = ModernBertConfig(50, 16, 2, 24, 3, 32, (0,), 2, pad_id=0, cls_id=2, sep_id=3, mask_id=4)


def test_parameters_follow_the_configuration() -> None:
    names = ModernBert(SHAPE).state_dict()
    assert not any("sines" in name for name in names)
    assert "layers.0.attention_residual.norm.weight" not in names
    assert "layers.1.attention_residual.norm.weight" in names
    assert not any(name.endswith("bias") for name in names)
    biased = replace(SHAPE, attention_bias=True, norm_bias=True)
    found = {name.removeprefix("layers.1.") for name, _ in ModernBert(biased).named_parameters() if name.endswith("bias")}
    assert {"attention.output.bias", "feedforward_residual.norm.bias", "norm.bias"} <= found
    assert "feedforward.expand.bias" not in found
    with pytest.raises(ValueError, match="head_dim: 7 is odd"):
        Rotary(4, 7, 100.0)


def test_texts_are_classified_by_their_mean_or_their_first_token() -> None:
    mean, first = (BertForSequenceClassification(replace(SHAPE, pooling=kind), 3).eval() for kind in ("mean", "cls"))
    first.load_state_dict(mean.state_dict())
    assert not torch.allclose(mean(IDS, SEGMENTS), first(IDS, SEGMENTS), atol=1e-6)
    torch.testing.assert_close(mean(IDS, SEGMENTS)[:1], mean(IDS[:1, :5], SEGMENTS[:1, :5]))
    assert isinstance(mean.pooler.norm, nn.LayerNorm)
