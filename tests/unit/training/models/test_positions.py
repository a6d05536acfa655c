"""Position tables and relative positions."""

import math

import pytest
import torch

from triptych_training.models.positions import (
    RelativeBias,
    fairseq_sinusoid_table,
    halved_sinusoid_table,
    make_positions,
    sinusoid_table,
)


@pytest.mark.parametrize("width", [6, 5])
def test_sinusoids_follow_the_paper(width: int) -> None:
    table = sinusoid_table(50, width)
    for position in (0, 1, 49):
        for column in range(width):
            angle = position / 10_000 ** (column // 2 * 2 / width)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert table[position, column].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("width", [6, 7])
def test_marian_puts_the_sines_first(width: int) -> None:
    table, halved = sinusoid_table(40, width), halved_sinusoid_table(40, width)
    sines = (width + 1) // 2
    assert torch.equal(halved[:, :sines], table[:, 0::2])
    assert torch.equal(halved[:, sines:], table[:, 1::2])


@pytest.mark.parametrize("width", [8, 9])
def test_fairseq_starts_at_position_two_and_reaches_the_lowest_frequency(width: int) -> None:
    table = fairseq_sinusoid_table(30, width)
    for position in (0, 1, 29):
        for column in range(4):
            angle = (position + 2) / 10_000 ** (column / 3)
            assert table[position, column].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[position, 4 + column].item() == pytest.approx(math.cos(angle), abs=1e-5)
    assert not table[:, 8:].any()


def test_tables_are_made_on_the_cpu_even_for_models_on_the_meta_device() -> None:
    with torch.device("meta"):
        tables = [make_positions(kind, 8, 4) for kind in ("sinusoidal", "sinusoidal-marian", "sinusoidal-fairseq", "learned")]
    assert [table.weight.device.type for table in tables if table] == ["cpu", "cpu", "cpu", "meta"]
    assert make_positions("none", 8, 4) is None


def test_sinusoids_are_not_stored_and_learned_positions_are_trained() -> None:
    assert not make_positions("sinusoidal", 8, 4).state_dict()
    assert not list(make_positions("sinusoidal", 8, 4).parameters())
    assert [p.shape for p in make_positions("learned", 8, 4).parameters()] == [(8, 4)]


def bias(bidirectional: bool = True, buckets: int = 8, max_distance: int = 16) -> RelativeBias:
    torch.manual_seed(1)
    return RelativeBias(3, buckets, max_distance, bidirectional)


def test_near_keys_have_their_own_buckets_and_far_ones_share() -> None:
    distances = torch.tensor([-40, -16, -15, -2, -1, 0, 1, 2, 3, 15, 16, 40])
    # Of 8 buckets each direction has 4: distance 0, distance 1, 2 to 5, and from 6 on (2 x 8^(1/2) = 5.7).
    assert bias().bucket(distances).tolist() == [3, 3, 3, 2, 1, 0, 5, 6, 6, 7, 7, 7]


def test_one_direction_uses_all_buckets_and_counts_later_keys_as_distance_zero() -> None:
    distances = torch.tensor([-100, -8, -4, -3, -1, 0, 1, 9])
    assert bias(bidirectional=False).bucket(distances).tolist() == [7, 6, 4, 3, 1, 0, 0, 0]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (10, 20), (7, 9)])
def test_buckets_never_leave_the_table(bidirectional: bool, buckets: int, max_distance: int) -> None:
    found = bias(bidirectional, buckets, max_distance).bucket(torch.arange(-300, 301))
    assert (found.min(), found.max()) >= (0, 0)
    assert int(found.max()) == (buckets // 2 * 2 if bidirectional else buckets) - 1
    before = found[:301]
    assert (before.diff() <= 0).all()  # bucket numbers grow with the distance


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_single_query_gets_its_row_of_the_whole_bias(bidirectional: bool) -> None:
    module = bias(bidirectional)
    whole = module(9, 9)
    assert whole.shape == (1, 3, 9, 9)
    for position in range(9):
        assert torch.equal(module(1, 9, position), whole[:, :, position : position + 1])
    assert len({tuple(row) for row in whole[0, 0].tolist()}) > 4
