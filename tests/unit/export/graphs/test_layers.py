"""Tables of relative positions against the bias in training."""

import pytest
import torch

from triptych_export.graphs.layers import DistanceBias
from triptych_training.models.positions import RelativeBias


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (10, 20), (8, 5)])
@torch.inference_mode()
def test_every_distance_has_the_trained_bias(bidirectional: bool, buckets: int, farthest: int) -> None:
    torch.manual_seed(1)
    bias = RelativeBias(3, buckets, farthest, bidirectional)
    table = DistanceBias(bias)
    assert table.table.shape == (farthest * (1 + bidirectional) + 1, 3)
    for length in (1, 4, 3 * farthest):
        torch.testing.assert_close(table(torch.arange(length)), bias(length, length), rtol=0, atol=0)


@torch.inference_mode()
def test_each_row_has_its_own_position() -> None:
    bias = RelativeBias(2, 8, 12, bidirectional=False)
    positions = torch.tensor([0, 29, 7], dtype=torch.int32)
    found = DistanceBias(bias).at(positions, 30)
    assert found.shape == (3, 2, 1, 30)
    for row, position in zip(found, positions.tolist(), strict=True):
        torch.testing.assert_close(row[None, :, :, : position + 1], bias(1, position + 1, position), rtol=0, atol=0)
