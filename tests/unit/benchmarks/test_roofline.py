"""Floors, from ceilings that were measured."""

from dataclasses import replace

import pytest
import torch
from report.work import Work
from roofline import TINY, Ceilings, describe, measure

CEILINGS = Ceilings("GPU", 1e12, 1e10, 1e14, 4e-6, 1e-6, 1e-5)


def test_the_larger_of_bytes_and_operations_counts() -> None:
    assert CEILINGS.floor(Work(2e12, 1e14, 0)) == 2
    assert CEILINGS.floor(Work(1e12, 3e14, 0)) == 3


def test_launches_come_on_top() -> None:
    assert CEILINGS.floor_with_launches(Work(1e12, 0, 5e5)) == pytest.approx(1.5)


def test_a_rehearsal_measures_something() -> None:
    found = measure(torch.device("cpu"), replace(TINY, copy=1 << 12, side=8))
    assert found.copy_bytes > 0
    assert found.matmul_flops > 0
    assert found.launch_seconds > 0
    assert describe(found).startswith("CPU: copies ")
