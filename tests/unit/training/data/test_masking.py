"""Which tokens are hidden, and behind what."""

import numpy as np
import pytest

from triptych_training.data.masking import Masker

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


def test_rows_masked_at_once_have_the_right_number_of_masks_each_and_only_in_text() -> None:
    text = np.zeros((60, 40), bool)
    for row, size in enumerate(range(1, 61)):
        text[row, 2 : 2 + size] = True
    ids = np.arange(100, 100 + text.size).reshape(text.shape)
    places = MASKER.mask_rows(ids, text, np.random.default_rng(1))
    assert places.tolist() == sorted(set(places.tolist()))
    assert text.reshape(-1)[places].all()
    counts = np.bincount(places // 40, minlength=60)
    assert counts.tolist() == [MASKER.count(size) for size in text.sum(1).tolist()]
    rest = np.setdiff1d(np.arange(text.size), places)
    assert ids.reshape(-1)[rest].tolist() == (100 + rest).tolist()


def test_rows_masked_at_once_are_hidden_as_one_by_one() -> None:
    ids, text = np.full((400, 100), 7), np.ones((400, 100), bool)
    places = Masker(0.5, MASK, FIRST, SIZE).mask_rows(ids, text, np.random.default_rng(1))
    shown = ids.reshape(-1)[places]
    assert len(places) == 20_000
    assert np.mean(shown == MASK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(shown == 7) == pytest.approx(0.1, abs=0.02)
    columns = np.bincount(places % 100, minlength=100)
    assert columns.min() > 150  # every place is as likely
    assert columns.max() < 250
