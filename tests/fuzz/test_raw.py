"""Damaged and arbitrary bytes: parsers accept them or raise the documented error."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .messages import damaged
from .targets import TARGETS, seeds

FEW, MANY = 100, 10_000
SETTINGS = settings(derandomize=False, suppress_health_check=list(HealthCheck), database=None)
# Inputs that once revealed faults.
FOUND = {"manifest": [b"[" * 100_000, b'{"format":' * 100_000]}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_damaged_input(name: str, count: int) -> None:
    target = TARGETS[name]

    @settings(SETTINGS, max_examples=count, derandomize=count == FEW)
    @given(st.one_of(damaged(seeds(name)), st.binary(max_size=100)))
    def each(data: bytes) -> None:
        target(data)

    for data in (*seeds(name), *FOUND.get(name, ())):
        each = example(data)(each)
    each()
