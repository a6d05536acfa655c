"""Masking of tokens."""

import numpy as np
import pytest

from triptych_training.data.masking import Masker

MASK, FIRST, SIZE = 4, 5, 1_000
MASKER = Masker(0.15, MASK, FIRST, SIZE)


@pytest.mark.parametrize(("tokens", "count"), [(1, 1), (3, 1), (10, 2), (100, 15)])
def test_a_share_of_the_tokens_but_at_least_one_is_chosen(tokens: int, count: int) -> None:
    assert MASKER.count(tokens) == count
    places = MASKER.mask(np.full(tokens, 7), np.arange(tokens), np.random.default_rng(1))
    assert len(set(places.tolist())) == count


def test_only_text_is_masked() -> None:
    text = np.array([1, 2, 3, 5, 6, 9])
    for seed in range(200):
        ids = np.arange(100, 112)
        places = Masker(0.5, MASK, FIRST, SIZE).mask(ids, text, np.random.default_rng(seed))
        assert set(places.tolist()) <= set(text.tolist())
        assert places.tolist() == sorted(places)
        rest = np.setdiff1d(np.arange(12), places)
        assert ids[rest].tolist() == (100 + rest).tolist()


@pytest.mark.parametrize("rows", [False, True], ids=["row", "rows"])
def test_of_ten_chosen_tokens_eight_are_masked_one_is_random_and_one_stays(rows: bool) -> None:
    ids, masker, rng = np.full((400, 100), 7), Masker(0.5, MASK, FIRST, SIZE), np.random.default_rng(1)
    if rows:
        places = masker.mask_rows(ids, np.ones((400, 100), bool), rng)
        columns = np.bincount(places % 100, minlength=100)
        assert columns.min() > 150  # every position is equally likely
        assert columns.max() < 250
    else:
        places = masker.mask(ids.reshape(-1), np.arange(ids.size), rng)
    shown = ids.reshape(-1)[places]
    assert len(places) == 20_000
    assert np.mean(shown == MASK) == pytest.approx(0.8, abs=0.01)
    assert np.mean(shown == 7) == pytest.approx(0.1, abs=0.01)
    drawn = shown[(shown != MASK) & (shown != 7)]
    assert drawn.min() >= FIRST
    assert drawn.max() < SIZE
    assert len(set(drawn.tolist())) > 500


def test_masks_depend_only_on_the_generator() -> None:
    generators = [np.random.default_rng(seed) for seed in (1, 1, 2)]
    rows = [np.arange(10, 110) for _ in generators]
    places = [MASKER.mask(row, np.arange(100), rng).tolist() for row, rng in zip(rows, generators, strict=True)]
    assert places[0] == places[1] != places[2]
    assert rows[0].tolist() == rows[1].tolist()
    assert MASKER.mask(np.arange(10, 110), np.arange(100), generators[0]).tolist() != places[0]


def test_every_row_gets_its_share_of_masks() -> None:
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
