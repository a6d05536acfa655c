"""Columns of the output projection: rows find their tokens, and no unused column can win."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from triptych_serving.decoding.logits_processor import LogitEdits
from triptych_serving.decoding.vocab_subset import NEVER, SMALLEST, Projection, VocabSubset
from triptych_serving.errors import BundleError

VOCABULARY, WIDTH, END = 3_000, 8, 2


def projection() -> Projection:
    rng = np.random.default_rng(1)
    weights = rng.integers(-64, 65, (VOCABULARY, WIDTH)).astype(np.int8)
    return Projection(weights, *rng.random((2, VOCABULARY), np.float32))


WHOLE = projection()


def ids(*tokens: int) -> NDArray[np.int64]:
    return np.array(tokens, np.int64)


def assert_there(columns: VocabSubset, tokens: NDArray[np.int64]) -> None:
    places = np.array([columns.column(int(token)) for token in tokens])
    inputs = columns.inputs
    assert (places >= 0).all()
    assert (inputs["column_tokens"][places] == tokens).all()
    assert np.array_equal(inputs["columns"][:, places].T, WHOLE.weights[tokens])
    assert (inputs["column_scales"][places] == WHOLE.scales[tokens]).all()
    assert (inputs["column_biases"][places] == WHOLE.biases[tokens]).all()


def assert_whole(columns: VocabSubset) -> None:
    """Check that every column has a token of its own, or can never win."""
    inputs = columns.inputs
    assert {len(array) for name, array in inputs.items() if name != "columns"} == {columns.size}
    used = inputs["column_tokens"][inputs["column_biases"] > NEVER]
    assert len(set(used.tolist())) == len(used)
    assert (inputs["column_tokens"][inputs["column_biases"] <= NEVER] == END).all()


shortlists = st.lists(
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=200, unique=True).map(lambda x: ids(*x)),
    min_size=1,
    max_size=12,
)


@given(shortlists)
def test_tokens_of_running_rows_keep_their_columns(lists: list[NDArray[np.int64]]) -> None:
    columns = VocabSubset(WHOLE, END)
    running: list[NDArray[np.int64]] = []
    for wanted in lists:
        columns.admit([wanted], running)
        running = [*running[-4:], wanted]
        for each in running:
            assert_there(columns, each)
        assert_whole(columns)


def test_tokens_that_no_row_needs_make_room() -> None:
    columns = VocabSubset(WHOLE, END)
    for start in range(0, 2_800, 100):
        columns.admit([np.arange(start, start + 100)], [])
    assert columns.size == SMALLEST


def test_more_tokens_take_the_next_size() -> None:
    columns = VocabSubset(WHOLE, END)
    columns.admit([np.arange(1_000)], [])
    assert columns.size == 1_536
    assert_whole(columns)


def test_arrays_are_reused_for_the_same_size() -> None:
    columns = VocabSubset(WHOLE, END)
    first = columns.inputs
    columns.admit([np.arange(1_000)], [])
    columns.admit([np.arange(1_000, 1_600)], [])  # does not fit beside the others, which have left
    assert columns.inputs is not first
    columns.admit([np.arange(1_600, 2_800)], [])
    columns.admit([np.arange(100)], [])
    columns.admit([np.arange(2_800, 3_000)], [])
    columns.admit([np.arange(100, 300)], [])
    assert columns.size == SMALLEST
    assert all(columns.inputs[name] is array for name, array in first.items())


def test_edits_of_tokens_become_edits_of_columns() -> None:
    columns = VocabSubset(WHOLE, END)
    columns.admit([ids(5, 9, 700)], [])
    edits = columns.translate(LogitEdits(ids(9, 40, 5), np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)))
    assert [columns.inputs["column_tokens"][place] for place in edits.tokens] == [9, 5]
    assert edits.factors.tolist() == [1, 3]
    assert edits.offsets.tolist() == [4, 6]


def test_a_projection_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "projection.npz"
    np.savez(path, weights=WHOLE.weights, scales=WHOLE.scales, biases=WHOLE.biases)
    assert (Projection.read(path).weights == WHOLE.weights).all()
    np.savez(path, weights=WHOLE.weights, scales=WHOLE.scales[1:], biases=WHOLE.biases)
    with pytest.raises(BundleError, match="inconsistent shapes or types"):
        Projection.read(path)
    np.savez(path, weights=WHOLE.weights)
    with pytest.raises(BundleError, match="not a projection"):
        Projection.read(path)
    path.write_bytes(b"no archive")
    with pytest.raises(BundleError, match="not a projection"):
        Projection.read(path)
