"""The choice of answers among all spans of a context."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych_serving.encoding.text_runner import END, START
from triptych_serving.models.text.question_answering import ExtractedAnswer, _answers, _softmax
from triptych_serving.scheduling.request import Item

FIRST = 4  # token of the context


def window(sizes: list[int]) -> tuple[str, Any, list[tuple[int, int]]]:
    """Return a context of words with so many tokens, its encoding, and the first and last token of each token's word."""
    words, offsets, spans, at = [], [], [], 0
    for number, size in enumerate(sizes):
        spans += [(len(words), len(words) + size - 1)] * size
        for _ in range(size):
            words.append(number)
            offsets.append((at, at + 2))
            at += 2
        at += 1
    context = " ".join("ab" * size for size in sizes)
    encoding = SimpleNamespace(
        sequence_ids=[None, 0, 0, None, *[1] * len(words), None],
        ids=[0] * (FIRST + len(words) + 1),
        word_ids=[None, 0, 1, None, *words, None],
        offsets=[(0, 0)] * FIRST + offsets + [(0, 0)],
    )
    return context, encoding, spans


def expected(starts: Any, ends: Any, spans: list[tuple[int, int]], k: int, length: int) -> list[tuple[int, int]]:
    """Look at every span, the likeliest first; return first and last tokens."""
    tokens = range(len(starts))
    every = [(-float(starts[i] * ends[j]), i, j) for i in tokens for j in tokens[i : i + length]]
    taken: list[tuple[int, int]] = []
    for _, i, j in sorted(every):
        left, right = spans[i][0], spans[j][1]
        if len(taken) < k and all(right < first or left > last for first, last in taken):
            taken.append((left, right))
    return taken


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.integers(1, 100),
    st.integers(1, 50) | st.just(2**32 - 1),
    st.integers(),
)
def test_answers_are_the_likeliest_spans_that_do_not_overlap(sizes: list[int], k: int, length: int, seed: int) -> None:
    context, encoding, spans = window(sizes)
    rng = np.random.default_rng(abs(seed))
    logits = {name: rng.normal(size=len(encoding.offsets)).astype(np.float32) * 3 for name in (START, END)}
    item = Item(None, len(encoding.offsets))
    item.result = logits
    found = _answers(item, context, encoding, k, length)
    places = [0, *range(FIRST, FIRST + len(spans))]  # [CLS] and the context
    starts, ends = (_softmax(logits[name][places])[1:] for name in (START, END))
    ranges = [
        (encoding.offsets[FIRST + i][0], encoding.offsets[FIRST + j][1]) for i, j in expected(starts, ends, spans, k, length)
    ]
    assert [(answer.start, answer.end) for answer in found] == ranges
    assert [answer.text for answer in found] == [context[start:end] for start, end in ranges]
    assert all(isinstance(answer, ExtractedAnswer) and answer.score > 0 for answer in found)
    best = max(float(starts[i] * ends[j]) for i in range(len(spans)) for j in range(i, min(i + length, len(spans))))
    assert found[0].score == pytest.approx(best)


def test_answers_are_neither_white_space_nor_whole_runs_of_scripts_without_spaces() -> None:
    encoding: Any = SimpleNamespace(
        sequence_ids=[None, 0, None, 1, 1, 1, 1, 1, None],
        ids=range(9),
        word_ids=[None, 0, None, 0, 1, 2, 2, 2, None],
        offsets=[(0, 0), (0, 5), (0, 0), (0, 2), (2, 3), (3, 4), (4, 6), (6, 7), (0, 0)],
    )
    item = Item(None, 9)
    item.result = dict.fromkeys((START, END), np.array([0, 0, 0, 1, 7, 2, 5, 3, 0], np.float32))
    found = _answers(item, "in  北京市", encoding, 3, 1)
    assert [(answer.text, answer.start, answer.end) for answer in found] == [("北京", 4, 6), ("市", 6, 7), ("in", 0, 2)]
