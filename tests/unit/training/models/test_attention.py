"""Attention's choice of kernels."""

import pytest
import torch

from triptych_training.models.attention import SHORT, AttentionShape, CrossAttention, SelfAttention, kernels


@pytest.mark.parametrize("positions", [7, SHORT + 1])
def test_gradients_in_bfloat16_are_those_of_float32(positions: int) -> None:
    torch.manual_seed(3)
    shape = AttentionShape(model_dim=16, heads=2, head_dim=8)
    own, cross, x = SelfAttention(shape), CrossAttention(shape), torch.randn(2, positions, 16)

    def gradients(bfloat16: bool) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            y = own(x, causal=True) + cross(x, cross.project_memory(x))
        parameters = [*own.parameters(), *cross.parameters()]
        return list(torch.autograd.grad(y.float().square().mean(), parameters))

    for half, full in zip(gradients(True), gradients(False), strict=True):
        assert half.sub(full).norm() < 0.02 * full.norm() + 1e-4


def test_plain_operators_are_chosen_for_training_on_short_bfloat16_sequences() -> None:
    def fused(query: torch.Tensor) -> bool:
        with kernels(query):
            return torch.backends.cuda.flash_sdp_enabled()  # applies to CPUs too

    short = torch.zeros(1, 1, SHORT, 8, dtype=torch.bfloat16)
    assert not fused(short)
    assert fused(short.float())
    assert fused(torch.zeros(1, 1, SHORT + 1, 8, dtype=torch.bfloat16))
    with torch.inference_mode():
        assert fused(short)
