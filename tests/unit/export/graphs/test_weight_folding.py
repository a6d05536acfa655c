"""Weight folding before tracing: folded scales and padded heads do not change results."""

import copy
from typing import Any

import pytest
import torch

from triptych_export.graphs.weight_folding import (
    RmsNorm,
    cache_scales,
    fold_cache_scales,
    fold_scales,
    fuse_norms,
    head_dim,
    set_cache_scales,
)
from triptych_training.models.attention import CrossAttention, SelfAttention
from triptych_training.models.transformer import Transformer, TransformerConfig

from ....fixtures.noise import stir

VARIANTS: dict[str, dict[str, Any]] = {
    "heads of 8": {},
    "heads of 6": {"heads": 4},
    "heads of 5, no biases": {"heads": 3, "head_dim": 5, "bias": False},
    "decoder of its own": {"decoder_heads": 4},
    "unscaled": {"scaled_attention": False, "head_dim": 12},
    "scaled projection": {"projection_scale": 0.3, "final_norm": True},
    "scaled projection, rms norm": {"projection_scale": 0.3, "final_norm": True, "norm_kind": "rms"},
    "scaled projection, no norm": {"projection_scale": 0.3},
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request: pytest.FixtureRequest) -> Transformer:
    shape = {"vocabulary_size": 40, "model_dim": 24, "heads": 3, "feedforward_dim": 32, "encoder_layers": 2}
    return stir(Transformer(TransformerConfig(**{**shape, "decoder_layers": 2, **request.param})))


@torch.inference_mode()
def test_a_folded_decoder_gives_the_same_results_without_scales(model: Transformer) -> None:
    source, target = torch.randint(3, 40, (2, 9)), torch.randint(3, 40, (2, 6))
    folded = fold_scales(model)
    torch.testing.assert_close(folded(source, target), model(source, target), rtol=1e-4, atol=1e-5)
    attentions = [module for module in folded.decoder.modules() if isinstance(module, SelfAttention | CrossAttention)]
    assert len(attentions) == 4
    for attention in attentions:
        assert attention.scale == 1.0
        assert attention.output.in_features == attention.heads * head_dim(model)
    assert head_dim(model) % 8 == 0


@torch.inference_mode()
def test_keys_and_values_are_padded_with_zeros(model: Transformer) -> None:
    memory = torch.randn(2, 5, 24)
    size = model.config.decoder_block.attention.head_dim
    pairs = zip(fold_scales(model).decoder.project_memory(memory), model.decoder.project_memory(memory), strict=True)
    for filled, plain in pairs:
        for mine, theirs in zip(filled, plain, strict=True):
            torch.testing.assert_close(mine[..., :size], theirs)
            assert mine.shape[-1] == head_dim(model)
            assert not mine[..., size:].any()


@torch.inference_mode()
def test_the_source_is_projected_in_units_of_the_caches_scales(model: Transformer) -> None:
    memory, folded = torch.randn(2, 5, 24), fold_scales(model)
    attentions = [each for each in folded.decoder.modules() if isinstance(each, SelfAttention | CrossAttention)]
    for attention in attentions:
        width = attention.heads * model.config.decoder_block.attention.head_dim
        set_cache_scales(attention, 127 * torch.rand(2 * width))
    scaled = fold_cache_scales(folded)
    sources = [each for each in scaled.decoder.modules() if isinstance(each, CrossAttention)]
    for attention, mine, theirs in zip(
        sources, scaled.decoder.project_memory(memory), folded.decoder.project_memory(memory), strict=True
    ):
        for part, whole, scale in zip(mine, theirs, cache_scales(attention), strict=True):
            torch.testing.assert_close(part * scale.view(attention.heads, 1, -1), whole)


def test_folding_does_not_change_the_original(model: Transformer) -> None:
    before = copy.deepcopy(model.state_dict())
    folded = fold_scales(model.train())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert model.training
    assert not folded.training


def test_only_changed_weights_are_copied(model: Transformer) -> None:
    folded = dict(fold_scales(model).named_parameters())
    own = {name for name, parameter in model.named_parameters() if folded[name] is not parameter}
    assert all("attention" in name or name.startswith("decoder.norm.") for name in own)
    assert not any(name.startswith("encoder.") for name in own)
    fused = fuse_norms(model)
    assert {id(parameter) for parameter in fused.parameters()} == {id(parameter) for parameter in model.parameters()}


def test_rms_norms_become_operators(model: Transformer) -> None:
    fused = fuse_norms(model)
    kinds = [type(module) for module in fused.modules()]
    assert torch.nn.RMSNorm not in kinds
    assert (RmsNorm in kinds) == (model.config.norm_kind == "rms")
    assert (torch.nn.RMSNorm in map(type, model.modules())) == (model.config.norm_kind == "rms")
