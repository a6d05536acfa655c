"""Rows for pre-training contain every token once and keep their budget."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from triptych_training.data.documents import Documents
from triptych_training.data.segments import (
    Segments,
    SpecialIds,
    cut_chunks,
    make_rows,
    paired_segments,
    whole_segments,
)

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
def test_chunks_are_in_order_and_keep_budget_and_document_borders(sizes: list[list[int]], budget: int) -> None:
    documents = make_documents(sizes)
    chunks = cut_chunks(documents, budget)
    assert [position for chunk in chunks for position in range(chunk[0], chunk[-1])] == documents.ids.tolist()
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
    assert tokens(rows) == documents.ids.tolist()
    assert (rows.sizes == rows.text_sizes + 2).all()
    assert rows.sizes.max(initial=0) <= budget + 2


@given(SIZES, BUDGET, st.integers(0, 5))
def test_pairs_keep_the_budget_and_have_no_token_twice(sizes: list[list[int]], budget: int, seed: int) -> None:
    documents = make_documents(sizes)
    rows = paired_segments(cut_chunks(documents, budget), budget, seed)
    positions = tokens(rows)
    assert len(positions) == len(set(positions))
    assert rows.text_sizes.max(initial=0) <= budget
    # Text is left out only if two spans that do not follow each other are too long together.
    lost = set(documents.ids.tolist()) - set(positions)
    assert not lost or bool((~rows.follows & (rows.text_sizes == budget)).any())


@given(SIZES, BUDGET, st.integers(0, 5))
def test_rows_know_whether_the_second_span_follows(sizes: list[list[int]], budget: int, seed: int) -> None:
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


def test_pairs_depend_only_on_the_seed() -> None:
    chunks = cut_chunks(make_documents([[2, 3, 4]] * 20), 9)
    first, again, other = (paired_segments(chunks, 9, seed).spans.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_longer_side_is_cut_first() -> None:
    # Two rows that exchange their second spans: 1 + 7 and 7 + 1 become 1 + 1 and 7 + 7, the latter cut to 10.
    chunks = cut_chunks(make_documents([[1, 7], [7, 1]]), 10)
    rows = next(rows for rows in (paired_segments(chunks, 10, seed) for seed in range(100)) if not rows.follows.any())
    sides = [(b - a, d - c) for a, b, c, d in rows.spans.tolist()]
    assert sides == [(1, 1), (5, 5)]
    assert rows.sizes.tolist() == [5, 13]


def test_rows_are_framed_by_special_tokens_and_padded() -> None:
    spans = np.array([[0, 3, 0, 0], [0, 2, 5, 8], [4, 5, 5, 6]])
    rows = make_rows(make_documents([[10]]), spans, SpecialIds(cls=90, sep=91), pad_id=95)
    assert rows.ids.tolist() == [
        [90, 0, 1, 2, 91, 95, 95, 95],
        [90, 0, 1, 91, 5, 6, 7, 91],
        [90, 4, 91, 5, 91, 95, 95, 95],
    ]
    assert rows.segments.tolist() == [[0] * 8, [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0]]
    assert [np.flatnonzero(text).tolist() for text in rows.text] == [[1, 2, 3], [1, 2, 4, 5, 6], [1, 3]]
