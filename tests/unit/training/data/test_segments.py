"""Rows of pre-training: every token once, in rows that keep their budget."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_training.data.documents import Documents
from triptych_training.data.segments import (
    Segments,
    SpecialIds,
    cut_chunks,
    make_row,
    make_rows,
    paired_segments,
    whole_segments,
)

# Tokens of each sentence of each document; some sentences have none.
SIZES = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=8), min_size=1, max_size=8)
BUDGET = st.integers(2, 16)


def make_documents(sizes: list[list[int]]) -> Documents:
    """Every token is its own place."""
    sentences = np.cumsum([0, *(size for document in sizes for size in document)])
    documents = np.cumsum([0, *map(len, sizes)])
    return Documents(np.arange(sentences[-1], dtype=np.int32), sentences, documents)


def seen(rows: Segments) -> list[int]:
    return sorted(place for a, b, c, d in rows.spans.tolist() for place in (*range(a, b), *range(c, d)))


@given(SIZES, BUDGET)
def test_chunks_are_the_text_in_order_within_budget_and_document(sizes: list[list[int]], budget: int) -> None:
    documents = make_documents(sizes)
    chunks = cut_chunks(documents, budget)
    assert [place for chunk in chunks for place in range(chunk[0], chunk[-1])] == documents.ids.tolist()
    borders = documents.sentences[documents.documents].tolist()
    for chunk in chunks:
        assert chunk[-1] - chunk[0] <= budget
        assert all(before < after for before, after in pairwise(chunk.tolist()))
        assert not any(chunk[0] < border < chunk[-1] for border in borders)


@given(SIZES)
def test_sentences_that_fit_are_never_cut(sizes: list[list[int]]) -> None:
    documents = make_documents(sizes)
    ends = set(documents.sentences.tolist())
    assert all(set(chunk.tolist()) <= ends for chunk in cut_chunks(documents, 12))


def test_a_chunk_takes_as_many_sentences_as_fit() -> None:
    chunks = cut_chunks(make_documents([[3, 3, 3, 3], [25, 1]]), 10)
    assert [chunk.tolist() for chunk in chunks] == [[0, 3, 6, 9], [9, 12], [12, 22], [22, 32], [32, 37, 38]]


@given(SIZES, BUDGET)
def test_whole_rows_have_every_token_once(sizes: list[list[int]], budget: int) -> None:
    documents = make_documents(sizes)
    rows = whole_segments(cut_chunks(documents, budget))
    assert seen(rows) == documents.ids.tolist()
    assert (rows.sizes == rows.text_sizes + 2).all()
    assert rows.sizes.max(initial=0) <= budget + 2


@given(SIZES, BUDGET, st.integers(0, 5))
def test_pairs_keep_the_budget_and_have_no_token_twice(sizes: list[list[int]], budget: int, seed: int) -> None:
    documents = make_documents(sizes)
    rows = paired_segments(cut_chunks(documents, budget), budget, seed)
    places = seen(rows)
    assert len(places) == len(set(places))
    assert rows.text_sizes.max(initial=0) <= budget
    # Text is left out only where two sides that do not follow each other are too long together.
    lost = set(documents.ids.tolist()) - set(places)
    assert not lost or bool((~rows.follows & (rows.text_sizes == budget)).any())


@given(SIZES, BUDGET, st.integers(0, 5))
def test_rows_say_whether_the_second_part_follows(sizes: list[list[int]], budget: int, seed: int) -> None:
    chunks = cut_chunks(make_documents(sizes), budget)
    rows = paired_segments(chunks, budget, seed)
    for chunk, (a, b, c, d), follows in zip(chunks, rows.spans.tolist(), rows.follows, strict=True):
        assert a == chunk[0] < b
        if len(chunk) == 2:
            assert (b, c, d, follows) == (chunk[-1], 0, 0, True)
        elif follows:
            assert b == c < d == chunk[-1]
            assert b in chunk
        else:
            assert c < d
            assert not chunk[0] <= c < chunk[-1]


def test_half_of_the_rows_do_not_follow() -> None:
    chunks = cut_chunks(make_documents([[2, 2]] * 1000), 4)
    rows = paired_segments(chunks, 4, seed=1)
    assert 440 < int(rows.follows.sum()) < 560


def test_pairs_depend_on_the_seed_alone() -> None:
    chunks = cut_chunks(make_documents([[2, 3, 4]] * 20), 9)
    first, again, other = (paired_segments(chunks, 9, seed).spans.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_longer_side_is_cut_first() -> None:
    # Two rows that swap their second parts: 1 + 7 and 7 + 1 become 1 + 1 and 7 + 7, of which 10 stay.
    chunks = cut_chunks(make_documents([[1, 7], [7, 1]]), 10)
    rows = next(rows for rows in (paired_segments(chunks, 10, seed) for seed in range(100)) if not rows.follows.any())
    sides = [(b - a, d - c) for a, b, c, d in rows.spans.tolist()]
    assert sides == [(1, 1), (5, 5)]
    assert rows.sizes.tolist() == [5, 13]


@pytest.mark.parametrize(
    ("span", "ids", "segments", "text"),
    [
        ([0, 3, 0, 0], [90, 0, 1, 2, 91], [0] * 5, [1, 2, 3]),
        ([0, 2, 5, 8], [90, 0, 1, 91, 5, 6, 7, 91], [0, 0, 0, 0, 1, 1, 1, 1], [1, 2, 4, 5, 6]),
        ([4, 5, 5, 6], [90, 4, 91, 5, 91], [0, 0, 0, 1, 1], [1, 3]),
    ],
)
def test_a_row_is_framed_by_special_tokens(span: list[int], ids: list[int], segments: list[int], text: list[int]) -> None:
    made = make_row(make_documents([[10]]), np.array(span), SpecialIds(cls=90, sep=91))
    assert [part.tolist() for part in made] == [ids, segments, text]


@pytest.mark.parametrize("seed", range(5))
def test_rows_made_at_once_are_those_made_one_by_one(seed: int) -> None:
    documents, special = make_documents([[3, 4, 1], [7, 2], [5], [1, 1, 1, 9]]), SpecialIds(cls=90, sep=91)
    rows = paired_segments(cut_chunks(documents, 12), 12, seed)
    made = make_rows(documents, rows.spans, special, pad_id=95)
    assert made.ids.shape[1] == rows.sizes.max()
    for row, span in enumerate(rows.spans):
        ids, segments, text = make_row(documents, span, special)
        padding = made.ids.shape[1] - len(ids)
        assert made.ids[row].tolist() == [*ids, *[95] * padding]
        assert made.segments[row].tolist() == [*segments, *[0] * padding]
        assert np.flatnonzero(made.text[row]).tolist() == text.tolist()
