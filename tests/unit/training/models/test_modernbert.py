"""ModernBERT: rotary positions, attention windows, heads."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from triptych_training.models.bert import (
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from triptych_training.models.modernbert import ModernBert, ModernBertConfig, Rotary

from ..toy_text import stir

IDS = torch.tensor([[2, 9, 12, 7, 3, 0, 0, 0, 0], [2, 8, 3, 20, 21, 22, 23, 24, 3]])
SEGMENTS = torch.zeros_like(IDS)
SHAPE = ModernBertConfig(50, 16, 2, 24, 3, 32, (0,), 2, pad_id=0, cls_id=2, sep_id=3, mask_id=4)
LOCAL = replace(SHAPE, layers=1, global_layers=())


def make(shape: ModernBertConfig) -> ModernBert:
    model = ModernBert(shape).eval()
    stir(model)
    return model


def test_products_of_rotated_vectors_depend_only_on_their_distance() -> None:
    rotary = Rotary(40, 8, 100.0)
    query, key = torch.randn(8), torch.randn(8)
    queries, keys = (rotary(each.expand(1, 1, 40, 8))[0, 0] for each in (query, key))
    products = queries @ keys.T
    for distance in (0, 1, 7):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-4)
    assert abs(float(products[0, 0] - products[0, 7])) > 1e-3
    torch.testing.assert_close(queries.norm(dim=-1), query.norm().expand(40), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(queries[0], query)


def test_rotary_positions_reject_an_odd_head_dimension() -> None:
    with pytest.raises(ValueError, match="head_dim: 7 is odd"):
        Rotary(4, 7, 100.0)


def test_padding_is_invisible() -> None:
    model = make(SHAPE)
    states = model(IDS, SEGMENTS)
    assert bool(states.isfinite().all())
    torch.testing.assert_close(states[0, :5], model(IDS[:1, :5], SEGMENTS[:1, :5])[0], rtol=1e-5, atol=1e-5)


def test_local_layers_attend_to_a_window_and_global_ones_to_the_whole_text() -> None:
    changed = IDS.clone()
    changed[1, 4] = 30
    near = make(LOCAL)
    moved = (near(changed, SEGMENTS) - near(IDS, SEGMENTS)).abs().amax(-1).detach()[1] > 1e-5
    assert moved.tolist() == [False, False, True, True, True, True, True, False, False]
    whole = make(replace(LOCAL, global_layers=(0,)))
    assert bool(((whole(changed, SEGMENTS) - whole(IDS, SEGMENTS)).abs().amax(-1)[1] > 1e-5).all())


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


def test_bert_s_heads_accept_a_modernbert_encoder() -> None:
    logits, follows = BertForPretraining(SHAPE, next_sentence=False)(IDS, SEGMENTS, torch.tensor([1, 5]))
    assert (logits.shape, follows) == ((2, 50), None)
    assert BertForTokenClassification(SHAPE, 4)(IDS, SEGMENTS).shape == (2, 9, 4)
    assert BertForQuestionAnswering(SHAPE)(IDS, SEGMENTS)[0].shape == (2, 9)
    mean, first = (BertForSequenceClassification(replace(SHAPE, pooling=kind), 3).eval() for kind in ("mean", "cls"))
    first.load_state_dict(mean.state_dict())
    assert not torch.allclose(mean(IDS, SEGMENTS), first(IDS, SEGMENTS), atol=1e-6)
    torch.testing.assert_close(mean(IDS, SEGMENTS)[:1], mean(IDS[:1, :5], SEGMENTS[:1, :5]))
    assert isinstance(mean.pooler.norm, nn.LayerNorm)
