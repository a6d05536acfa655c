"""Steps of beam search: the library of kernels and numpy rank and extend hypotheses equally."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator

from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.beams import BeamStep, Fork
from triptych_serving.decoding.hypotheses import HypothesisGroup
from triptych_serving.runtime.native.library import LEVEL, beam_step
from triptych_serving.runtime.session import Array
from triptych_serving.scheduling.request import Row

SLOTS, LONGEST, VOCABULARY = 24, 6, 40

pytestmark = pytest.mark.skipif(beam_step() is None, reason="the library of kernels is not installed")


@dataclass
class Case:
    """Hypotheses of some texts after `length` tokens, in slots in any order, and the graph's best tokens."""

    widths: list[int]
    fresh: list[bool]  # one hypothesis so far
    columns: int
    ends: list[int]
    length: int
    random: Generator
    groups: list[HypothesisGroup] = field(init=False)

    def __post_init__(self) -> None:
        places = self.random.permutation(SLOTS).tolist()
        self.groups = []
        for width, fresh in zip(self.widths, self.fresh, strict=True):
            row = Row([3, 2], 3 * LONGEST, SearchParams(beam_size=width))
            group = HypothesisGroup(row, 0, None, len(self.ends))
            group.slots, places = places[: 1 if fresh else width], places[width:]
            group.length = self.length
            self.groups.append(group)
        coarse = self.random.integers(-3, 0, (2, SLOTS, self.columns)) / 2  # so that many are equal
        self.top: Mapping[str, Array] = {
            "top_log_probabilities": np.sort(coarse[0], axis=1)[:, ::-1].astype(np.float32),
            "top_tokens": np.array([self.random.permutation(VOCABULARY)[: self.columns] for _ in range(SLOTS)], np.int64),
        }
        self.hypotheses = SimpleNamespace(
            count=SLOTS,
            so_far=coarse[1, :, 0].astype(np.float64),
            tokens=np.zeros(SLOTS, np.int64),
            positions=np.full(SLOTS, self.length, np.int32),
            history=self.random.integers(3, VOCABULARY, (SLOTS, LONGEST)),
            ends=np.array(self.ends, np.int64),
        )

    def rank(self, fork: Fork) -> dict[int, list[tuple[int, int, float]]]:
        """Return the continuations of groups, by their numbers, that do not go on in the library."""
        step = BeamStep(self.hypotheses, self.top)  # type: ignore[arg-type]
        numbers = {id(group): number for number, group in enumerate(self.groups)}
        return {numbers[id(group)]: list(best) for group, best in step.rank(self.groups, fork)}


def refuse(_: Array) -> None:
    pytest.fail("numpy forks nothing")


@given(
    st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=3),
    st.sampled_from([1, 2, 8, 16]),
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=3, unique=True),
    st.integers(1, LONGEST - 1),
    st.integers(0, 2**32),
)
def test_the_library_ranks_and_extends_as_numpy_does(
    texts: list[tuple[int, bool]], columns: int, ends: list[int], length: int, seed: int
) -> None:
    widths, fresh = map(list, zip(*texts, strict=True))
    native, numpy = (Case(widths, fresh, columns, ends, length, np.random.default_rng(seed)) for _ in range(2))  # type: ignore[arg-type]
    before = native.hypotheses.history.copy()
    forks: list[list[int]] = []
    left = native.rank(lambda found: forks.extend(found.tolist()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LEVEL, "off")
        expected = numpy.rank(refuse)
    assert sorted(expected) == [*range(len(texts))]
    for number, group in enumerate(native.groups):
        best = expected[number]
        width = group.width
        goes_on = len(numpy.groups[number].slots) == width <= len(best) and not {token for _, token, _ in best[:width]} & set(
            ends
        )
        if not goes_on:
            assert left[number] == best
            assert (group.slots, group.length) == (numpy.groups[number].slots, length)
            continue
        assert number not in left
        assert group.length == length + 1
        assert sorted(group.slots) == sorted(numpy.groups[number].slots)
        kept = [slot for slot, _, _ in best[:width]]
        for slot, (source, token, total) in zip(group.slots, best, strict=False):
            hypotheses = native.hypotheses
            assert hypotheses.history[slot, :length].tolist() == before[source, :length].tolist()
            assert hypotheses.history[slot, length] == hypotheses.tokens[slot] == token
            assert hypotheses.so_far[slot] == total
            if slot != source:
                assert slot not in kept
                [(start, also, count)] = [
                    (start, also, count) for row, start, target, also, count in forks if (row, target) == (source, slot)
                ]
                same = (before[source, :length] == before[slot, :length]).tolist()
                assert start == also == (same.index(False) if False in same else length) + 1
                assert start + count == length + 1
