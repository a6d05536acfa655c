"""Activations and what float16 can hold."""

import pytest
import torch
from torch import nn

from triptych_export.errors import RangeError
from triptych_export.quantization.float16_ranges import within_half


def layers(*factors: float) -> nn.Sequential:
    """Each multiplies by a factor."""
    module = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in factors))
    with torch.no_grad():
        for layer, factor in zip(module, factors, strict=True):
            layer.weight.fill_(factor)
    return module


def test_what_fits_passes_and_no_hook_is_left() -> None:
    module = layers(1_000, 65)
    with within_half(module):
        module(torch.ones(1, 1))
        module(torch.tensor([[-1.0]]))
    assert not any(layer._forward_hooks for layer in module)


def test_the_first_layer_beyond_is_named_with_the_largest_number() -> None:
    module = layers(10, 10_000, 2)
    with pytest.raises(RangeError) as caught, within_half(module):
        module(torch.tensor([[1.0], [-12.0], [3.0]]))
    assert str(caught.value) == (
        "fp16: activations of 1 reach 1,200,000, float16 allows at most 65,504; export this model without --precision fp16"
    )


def test_what_goes_into_a_layer_counts_too() -> None:
    """Sums between layers are nobody's output."""
    norm = nn.LayerNorm(2)
    with pytest.raises(RangeError, match="activations of 0 reach 70,000"), within_half(nn.Sequential(norm)):
        nn.Sequential(norm)(torch.tensor([[0.0, 70_000.0]]))


def test_masks_and_whole_numbers_are_no_activations() -> None:
    module = nn.Sequential(nn.Embedding(80_000, 1))
    with within_half(module), torch.no_grad():
        module[0].weight.fill_(-torch.inf)
        module(torch.tensor([79_999]))


def test_another_error_goes_through_and_hooks_go_all_the_same() -> None:
    module = layers(100_000)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), within_half(module):
        module(torch.ones(1, 2))
    assert not module[0]._forward_hooks
