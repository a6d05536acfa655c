"""Which tokens are hidden, and behind what."""

import numpy as np
import pytest

from triptych_training.masking import Masker

MASK, FIRST, SIZE = 4, 5, 1_000
MASKER = Masker(0.15, MASK, FIRST, SIZE)


@pytest.mark.parametrize(("tokens", "count"), [(1, 1), (3, 1), (10, 2), (100, 15)])
def test_a_share_of_the_tokens_is_chosen_and_at_least_one(tokens: int, count: int) -> None:
    assert MASKER.count(tokens) == count
    places = MASKER.mask(np.full(tokens, 7), np.arange(tokens), np.random.default_rng(1))
    assert len(set(places.tolist())) == count


def test_only_text_is_ever_touched() -> None:
    text = np.array([1, 2, 3, 5, 6, 9])
    for seed in range(200):
        ids = np.arange(100, 112)
        places = Masker(0.5, MASK, FIRST, SIZE).mask(ids, text, np.random.default_rng(seed))
        assert set(places.tolist()) <= set(text.tolist())
        assert places.tolist() == sorted(places)
        rest = np.setdiff1d(np.arange(12), places)
        assert ids[rest].tolist() == (100 + rest).tolist()


def test_of_ten_chosen_tokens_eight_are_masked_one_is_random_and_one_stays() -> None:
    ids = np.full(40_000, 7)
    places = Masker(0.5, MASK, FIRST, SIZE).mask(ids, np.arange(len(ids)), np.random.default_rng(1))
    shown = ids[places]
    assert np.mean(shown == MASK) == pytest.approx(0.8, abs=0.01)
    assert np.mean(shown == 7) == pytest.approx(0.1, abs=0.01)
    drawn = shown[(shown != MASK) & (shown != 7)]
    assert drawn.min() >= FIRST
    assert drawn.max() < SIZE
    assert len(set(drawn.tolist())) > 500


def test_masks_depend_on_the_generator_alone() -> None:
    rows = [np.arange(10, 110) for _ in range(3)]
    places = [MASKER.mask(row, np.arange(100), np.random.default_rng(s)) for row, s in zip(rows, (1, 1, 2), strict=True)]
    assert places[0].tolist() == places[1].tolist()
    assert rows[0].tolist() == rows[1].tolist()
    assert places[0].tolist() != places[2].tolist()


def test_every_call_masks_anew() -> None:
    rng = np.random.default_rng(1)
    first, second = (MASKER.mask(np.arange(10, 110), np.arange(100), rng).tolist() for _ in range(2))
    assert first != second
