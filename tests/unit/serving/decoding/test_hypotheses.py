"""Hypotheses of one text, running and finished."""

import numpy as np

from triptych_serving.bundle.search_params import SearchParams
from triptych_serving.decoding.hypotheses import HypothesisGroup
from triptych_serving.scheduling.request import Row


def test_a_patient_search_keeps_only_hypotheses_that_can_be_returned() -> None:
    search = SearchParams(beam_size=2, num_hypotheses=3, patience=1_000, alignment=True)
    group = HypothesisGroup(Row([3, 2], 100, search), 0, None)
    for number in range(50):
        group.finish([number], True, -float(number % 7), np.ones((2, 2), np.float32))
        assert len(group.finished) == min(3, number + 1)
    assert not group.is_done
    group.close()
    assert [hypothesis.tokens for hypothesis in group.row.hypotheses] == [(0,), (7,), (14,)]  # of equal ones, the first
