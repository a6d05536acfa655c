"""What is prepared before tracing: folded scales, an arg-max in two stages."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from triptych_export.graphs import _blocked, fold_scales, two_stage_argmax
from triptych_training.transformer import Transformer, TransformerConfig


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(3)
    shape = TransformerConfig(vocabulary_size=40, model_dim=24, heads=3, feedforward_dim=32, encoder_layers=2, decoder_layers=2)
    model = Transformer(shape).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@torch.inference_mode()
def test_a_folded_decoder_needs_no_scale_in_its_attention(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = torch.randint(3, 40, (2, 9)), torch.randint(3, 40, (2, 6))
    memory = model.encoder(source, None)
    expected = model.decoder(target, memory, None)
    unscaled = partial(functional.scaled_dot_product_attention, scale=1.0)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", unscaled)
    torch.testing.assert_close(fold_scales(model).decoder(target, memory, None), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model.decoder(target, memory, None), expected, atol=1e-2)


def test_folding_leaves_the_original_as_it_was(model: Transformer) -> None:
    before = copy.deepcopy(model.state_dict())
    folded = fold_scales(model.train())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
    assert not folded.training


@st.composite
def logits_in_blocks(draw: st.DrawFn) -> tuple[NDArray[np.float32], int]:
    """Few different values, so that ties are common."""
    rows, blocks, columns = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 6))
    values = st.sampled_from([-1e9, -1.0, 0.0, 0.5, 2.0])
    return draw(arrays(np.float32, (rows, blocks * columns), elements=values)), columns


@given(logits_in_blocks())
def test_two_stages_choose_as_one_and_the_first_of_equals(case: tuple[NDArray[np.float32], int]) -> None:
    logits, columns = case
    assert two_stage_argmax(torch.from_numpy(logits), columns).tolist() == np.argmax(logits, axis=1).tolist()


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("size", [1, 7, 256, 257, 331, 340, 1_000, 8_000, 8_011])
@torch.inference_mode()
def test_any_vocabulary_falls_into_equal_blocks_with_the_same_choice(size: int, bias: bool) -> None:
    torch.manual_seed(size)
    projection = nn.Linear(8, size, bias=bias)
    blocked, columns = _blocked(projection)
    assert blocked.out_features % columns == 0
    assert blocked.out_features - size < columns
    hidden = torch.randn(200, 8) * 100
    chosen = two_stage_argmax(blocked(hidden), columns)
    assert torch.equal(chosen, projection(hidden).argmax(-1))
    torch.testing.assert_close(blocked(hidden)[:, :size], projection(hidden))


@torch.inference_mode()
def test_what_fills_the_vocabulary_up_is_never_chosen() -> None:
    projection = nn.Linear(4, 331, bias=False)
    projection.weight.fill_(-1.0)
    blocked, columns = _blocked(projection)
    assert blocked.out_features > 331
    assert two_stage_argmax(blocked(torch.full((1, 4), 1e6)), columns).tolist() == [0]


def test_a_vocabulary_that_needs_no_filling_keeps_its_projection() -> None:
    projection = nn.Linear(4, 8_000, bias=False)
    assert _blocked(projection) == (projection, 80)
