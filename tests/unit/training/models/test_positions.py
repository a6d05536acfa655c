"""Position tables and relative positions; tests/parity compares those of every family with transformers."""

import math

import pytest
import torch

from triptych_training.models.positions import RelativeBias, make_positions, sinusoid_table


@pytest.mark.parametrize("width", [6, 5])
def test_sinusoids_follow_the_paper(width: int) -> None:
    table = sinusoid_table(50, width)
    for position in (0, 1, 49):
        for column in range(width):
            angle = position / 10_000 ** (column // 2 * 2 / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[position, column].item() == pytest.approx(expected, abs=1e-6)


def test_positions_of_every_kind() -> None:
    with torch.device("meta"):
        tables = [make_positions(kind, 8, 4) for kind in ("sinusoidal", "sinusoidal-marian", "sinusoidal-fairseq", "learned")]
    assert [table.weight.device.type for table in tables if table] == ["cpu", "cpu", "cpu", "meta"]
    assert make_positions("none", 8, 4) is None
    assert not make_positions("sinusoidal", 8, 4).state_dict()
    assert not list(make_positions("sinusoidal", 8, 4).parameters())
    assert [p.shape for p in make_positions("learned", 8, 4).parameters()] == [(8, 4)]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (10, 20), (7, 9)])
def test_buckets_never_leave_the_table(bidirectional: bool, buckets: int, max_distance: int) -> None:
    found = RelativeBias(3, buckets, max_distance, bidirectional).bucket(torch.arange(-300, 301))
    assert int(found.min()) == 0
    assert int(found.max()) == (buckets // 2 * 2 if bidirectional else buckets) - 1
    before = found[:301]
    assert (before.diff() <= 0).all()  # bucket numbers grow with the distance
