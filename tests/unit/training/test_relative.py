"""T5's relative positions."""

import pytest
import torch

from triptych_training.relative import RelativeBias


def bias(bidirectional: bool = True, buckets: int = 8, max_distance: int = 16) -> RelativeBias:
    torch.manual_seed(1)
    return RelativeBias(3, buckets, max_distance, bidirectional)


def test_near_keys_have_buckets_of_their_own_and_far_ones_share() -> None:
    distances = torch.tensor([-40, -16, -15, -2, -1, 0, 1, 2, 3, 15, 16, 40])
    # Of 8 buckets 4 are for each direction: distances 0 and 1 alone, then 2-5 and from 6 on (2 x 8^(1/2) = 5.7).
    assert bias().bucket(distances).tolist() == [3, 3, 3, 2, 1, 0, 5, 6, 6, 7, 7, 7]


def test_one_direction_has_all_buckets_and_takes_what_follows_for_itself() -> None:
    distances = torch.tensor([-100, -8, -4, -3, -1, 0, 1, 9])
    assert bias(bidirectional=False).bucket(distances).tolist() == [7, 6, 4, 3, 1, 0, 0, 0]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (10, 20), (7, 9)])
def test_buckets_never_leave_the_table(bidirectional: bool, buckets: int, max_distance: int) -> None:
    found = bias(bidirectional, buckets, max_distance).bucket(torch.arange(-300, 301))
    assert (found.min(), found.max()) >= (0, 0)
    assert int(found.max()) == (buckets // 2 * 2 if bidirectional else buckets) - 1
    before = found[:301]
    assert (before.diff() <= 0).all()  # the farther, the higher


@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_step_has_the_last_row_of_the_whole(bidirectional: bool) -> None:
    module = bias(bidirectional)
    whole = module(9, 9)
    assert whole.shape == (1, 3, 9, 9)
    for position in range(9):
        assert torch.equal(module(1, 9, position), whole[:, :, position : position + 1])
    assert len({tuple(row) for row in whole[0, 0].tolist()}) > 4
