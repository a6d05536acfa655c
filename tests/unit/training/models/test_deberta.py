"""DeBERTa: padding and distances; tests/parity compares with transformers."""

import torch

from triptych_training.models.deberta import Deberta, DebertaConfig

IDS = torch.tensor([[1, 9, 12, 7, 2, 0, 0, 0, 0], [1, 8, 3, 20, 21, 22, 23, 24, 2]])
SEGMENTS = torch.zeros_like(IDS)
SHAPE = DebertaConfig(50, 16, 2, 24, 2, 32, position_buckets=8, max_distance=32, embedding_dim=12, mask_id=4)


def test_near_distances_have_their_own_vectors_and_far_ones_share() -> None:
    rows = Deberta(SHAPE).rows(torch.tensor([-99, -31, -30, -5, -4, 0, 4, 5, 6, 7, 31, 99])).tolist()
    assert rows == [0, 1, 1, 3, 4, 8, 12, 13, 13, 13, 15, 15]


def test_padding_and_order() -> None:
    encoder = Deberta(SHAPE).eval()
    states = encoder(IDS, SEGMENTS)
    torch.testing.assert_close(states[:1, :5], encoder(IDS[:1, :5], SEGMENTS[:1, :5]))
    turned = encoder(IDS[1:].flip(1), SEGMENTS[1:]).flip(1)
    assert not torch.allclose(turned, states[1:], atol=1e-3)
    with torch.no_grad():
        encoder.distances.weight.zero_()
        encoder.distance_norm.get_parameter("bias").zero_()
        encoder.layers[0].attention.query_key_value.bias.zero_()  # type: ignore[union-attr]
        encoder.layers[1].attention.query_key_value.bias.zero_()  # type: ignore[union-attr]
    torch.testing.assert_close(encoder(IDS[1:].flip(1), SEGMENTS[1:]).flip(1), encoder(IDS[1:], SEGMENTS[1:]))
