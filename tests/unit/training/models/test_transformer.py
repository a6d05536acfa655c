"""The Transformer computes the same teacher-forced, step by step, alone and padded."""

from typing import Any

import pytest
import torch

from triptych_training.data.batches import pad
from triptych_training.models.transformer import Transformer

from ..toy import SHAPE, make_ids, make_model

# Every option at least once, as the paper, BART, M2M100, Marian and T5 combine them.
VARIANTS: list[dict[str, Any]] = [
    {"norm": "post", "activation": "relu"},
    {"norm": "pre", "activation": "gelu", "tie_embeddings": False},
    {"norm": "post", "positions": "learned", "activation": "silu", "tie_embeddings": False},
    {"norm": "pre", "positions": "learned", "activation": "gelu_tanh"},
    {"positions": "sinusoidal-marian", "decoder_heads": 4, "decoder_feedforward_dim": 20, "projection_bias": True},
    {"positions": "sinusoidal-fairseq", "norm": "pre", "norm_epsilon": 1e-3, "tie_projection": False},
    {"positions": "learned", "embedding_norm": True, "scaled_embedding": False, "final_norm": True},
    {"source_vocabulary_size": 57, "tie_projection": True, "head_dim": 5},
    {
        **{"positions": "none", "norm": "pre", "norm_kind": "rms", "bias": False, "gated": True, "activation": "gelu_tanh"},
        **{"head_dim": 6, "scaled_attention": False, "scaled_embedding": False, "projection_scale": 0.25},
        **{"relative_buckets": 6, "relative_distance": 10},
    },
    {"positions": "none", "relative_buckets": 6, "relative_distance": 10, "relative_by_layer": True, "decoder_heads": 4},
]


@torch.inference_mode()
def step_by_step(model: Transformer, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    mask = model.source_mask(source)
    memory = model.decoder.project_memory(model.encoder(source, mask))
    past, logits = None, []
    for position in range(target.shape[1]):
        hidden, past = model.decoder.step(target[:, position : position + 1], position, memory, mask, past)
        logits.append(model.projection(hidden))
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
@torch.inference_mode()
def test_cached_steps_equal_the_teacher_forced_pass_and_source_padding_is_invisible(variant: dict[str, Any]) -> None:
    model = make_model(**variant)
    sources, target = make_ids(9, 3, 6), pad(make_ids(7, 7, 7), 0)
    together = model(pad(sources, 0), target)
    torch.testing.assert_close(step_by_step(model, pad(sources, 0), target), together, rtol=1e-4, atol=1e-4)
    for row, source in enumerate(sources):
        alone = model(torch.tensor([source]), target[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_target_position_does_not_attend_to_later_ones() -> None:
    model = make_model()
    source, target = pad(make_ids(6), 0), pad(make_ids(8), 0)
    changed = target.clone()
    changed[:, 5:] = 9
    torch.testing.assert_close(model(source, target)[:, :5], model(source, changed)[:, :5])
    assert not torch.allclose(model(source, target)[:, 5:], model(source, changed)[:, 5:])


def test_embeddings_are_tied_as_configured() -> None:
    tied, untied = make_model(), make_model(tie_embeddings=False)
    size = SHAPE.vocabulary_size * SHAPE.model_dim
    assert tied.projection.weight is tied.encoder.embedding.tokens.weight is tied.decoder.embedding.tokens.weight
    assert sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in tied.parameters()) == 2 * size
    projection = make_model(tie_embeddings=False, tie_projection=True)
    assert projection.projection.weight is projection.decoder.embedding.tokens.weight
    assert projection.encoder.embedding.tokens.weight is not projection.projection.weight
    sides = make_model(tie_projection=False)
    assert sides.encoder.embedding.tokens.weight is sides.decoder.embedding.tokens.weight
    assert sides.projection.weight is not sides.decoder.embedding.tokens.weight
    vocabularies = make_model(source_vocabulary_size=57)
    assert vocabularies.encoder.embedding.tokens.weight.shape == (57, SHAPE.model_dim)
    assert vocabularies.projection.weight is vocabularies.decoder.embedding.tokens.weight


def test_dropout_and_padding_in_training() -> None:
    model = make_model(dropout=0.5)
    source, target = pad(make_ids(6), 0), pad(make_ids(6), 0)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.equal(model(source, target), model(source, target))
    model = make_model(tie_embeddings=False)
    model(pad(make_ids(6, 2), 0), pad(make_ids(6, 2), 0)).sum().backward()
    gradient = model.encoder.embedding.tokens.weight.grad
    assert gradient is not None
    assert not gradient[SHAPE.pad_id].any()
