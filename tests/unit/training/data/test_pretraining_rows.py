"""Rows for pre-training contain every token once and keep their budget."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_training.data.documents import Documents
from triptych_training.data.pretraining_rows import Masker, Segments, cut_chunks, make_rows, paired_segments, whole_segments

# Tokens of each sentence of each document; some sentences have none.
SIZES = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=8), min_size=1, max_size=8)
BUDGET = st.integers(2, 16)


def make_documents(sizes: list[list[int]]) -> Documents:
    """Make documents whose token ids are their own positions."""
    sentences = np.cumsum([0, *(size for document in sizes for size in document)])
    documents = np.cumsum([0, *map(len, sizes)])
    return Documents(np.arange(sentences[-1], dtype=np.int32), sentences, documents)


def tokens(rows: Segments) -> list[int]:
    return sorted(position for a, b, c, d in rows.spans.tolist() for position in (*range(a, b), *range(c, d)))


@given(SIZES, BUDGET)
def test_chunks_and_whole_rows_are_in_order_and_keep_budget_and_document_borders(sizes: list[list[int]], budget: int) -> None:
    documents = make_documents(sizes)
    chunks = cut_chunks(documents, budget)
    assert [position for chunk in chunks for position in range(chunk[0], chunk[-1])] == documents.ids.tolist()
    borders = documents.sentences[documents.documents].tolist()
    for chunk in chunks:
        assert chunk[-1] - chunk[0] <= budget
        assert all(before < after for before, after in pairwise(chunk.tolist()))
        assert not any(chunk[0] < border < chunk[-1] for border in borders)
    ends = set(documents.sentences.tolist())
    assert all(set(chunk.tolist()) <= ends for chunk in cut_chunks(documents, 12))  # sentences that fit are never cut
    rows = whole_segments(chunks)
    assert tokens(rows) == documents.ids.tolist()
    assert (rows.sizes == rows.text_sizes + 2).all()
    assert rows.sizes.max(initial=0) <= budget + 2


def test_chunks_and_rows_are_cut_where_they_must() -> None:
    chunks = cut_chunks(make_documents([[3, 3, 3, 3], [25, 1]]), 10)
    assert [chunk.tolist() for chunk in chunks] == [[0, 3, 6, 9], [9, 12], [12, 22], [22, 32], [32, 37, 38]]
    chunks = cut_chunks(make_documents([[1, 7], [7, 1]]), 10)
    spans = {tuple(rows.follows): rows.spans.tolist() for rows in (paired_segments(chunks, seed) for seed in range(20))}
    assert spans == {(True, True): [[0, 1, 1, 2], [8, 15, 15, 16]], (False, False): [[0, 1, 15, 16], [8, 15, 1, 2]]}


def test_lengths_and_ends_of_sentences_do_not_tell_whether_the_second_span_follows() -> None:
    rng = np.random.default_rng(0)
    documents = make_documents([rng.integers(1, 15, rng.integers(2, 30)).tolist() for _ in range(1500)])
    rows = paired_segments(cut_chunks(documents, 24), 1)
    two = rows.spans[:, 3] > 0
    spans, follows, ends = rows.spans[two], rows.follows[two], np.isin(rows.spans[two, 3], documents.sentences)
    for clue in (spans[:, 1] - spans[:, 0], spans[:, 3] - spans[:, 2], rows.text_sizes[two], ends.astype(int)):
        counts = np.stack([np.bincount(clue[follows == label], minlength=25) for label in (False, True)]).astype(float)
        assert counts.max(0).sum() / counts.sum() < 0.53  # accuracy of the best guess for each value


@given(SIZES, BUDGET, st.integers(0, 5))
def test_pairs_keep_the_budget_repeat_no_token_and_know_what_follows(sizes: list[list[int]], budget: int, seed: int) -> None:
    chunks = cut_chunks(make_documents(sizes), budget)
    rows = paired_segments(chunks, seed)
    positions = tokens(rows)
    assert len(positions) == len(set(positions))
    assert rows.text_sizes.max(initial=0) <= budget
    for chunk, (a, b, c, d), follows in zip(chunks, rows.spans.tolist(), rows.follows, strict=True):
        assert a == chunk[0] < b
        if len(chunk) == 2:
            assert (b, c, d, follows) == (chunk[-1], 0, 0, True)
        elif follows:
            assert b == c < d <= chunk[-1]
            assert b in chunk
        else:
            assert c < d
            assert not chunk[0] <= c < chunk[-1]


def test_half_of_the_rows_do_not_follow_and_the_seed_decides_which() -> None:
    chunks = cut_chunks(make_documents([[2, 2]] * 1000), 4)
    rows = paired_segments(chunks, seed=1)
    assert 440 < int(rows.follows.sum()) < 560
    chunks = cut_chunks(make_documents([[2, 3, 4]] * 20), 9)
    first, again, other = (paired_segments(chunks, seed).spans.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_rows_are_framed_by_special_tokens_and_padded() -> None:
    spans = np.array([[0, 3, 0, 0], [0, 2, 5, 8], [4, 5, 5, 6]])
    rows = make_rows(make_documents([[10]]), spans, cls_id=90, sep_id=91, pad_id=95)
    assert rows.ids.tolist() == [
        [90, 0, 1, 2, 91, 95, 95, 95],
        [90, 0, 1, 91, 5, 6, 7, 91],
        [90, 4, 91, 5, 91, 95, 95, 95],
    ]
    assert rows.segments.tolist() == [[0] * 8, [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]]
    assert [np.flatnonzero(text).tolist() for text in rows.text] == [[1, 2, 3], [1, 2, 4, 5, 6], [1, 3]]


MASK, FIRST, SIZE = 4, 5, 1_000
DRAWN = np.arange(FIRST, SIZE)
MASKER = Masker(0.15, MASK, DRAWN)


def test_a_share_of_the_text_but_at_least_one_token_is_masked_and_nothing_else() -> None:
    for size, count in ((1, 1), (3, 1), (10, 2), (100, 15)):
        assert MASKER.count(size) == count
        assert len(set(MASKER.mask(np.full(size, 7), np.arange(size), np.random.default_rng(1)).tolist())) == count
    text = np.array([1, 2, 3, 5, 6, 9])
    for seed in range(200):
        ids = np.arange(100, 112)
        places = Masker(0.5, MASK, DRAWN).mask(ids, text, np.random.default_rng(seed))
        assert set(places.tolist()) <= set(text.tolist())
        assert places.tolist() == sorted(places)
        rest = np.setdiff1d(np.arange(12), places)
        assert ids[rest].tolist() == (100 + rest).tolist()


@pytest.mark.parametrize("rows", [False, True], ids=["row", "rows"])
def test_of_ten_chosen_tokens_eight_are_masked_one_is_random_and_one_stays(rows: bool) -> None:
    ids, masker, rng = np.full((400, 100), 7), Masker(0.5, MASK, DRAWN), np.random.default_rng(1)
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
