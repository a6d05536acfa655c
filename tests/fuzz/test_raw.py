"""Damaged and arbitrary bytes: parsers accept them or raise the documented error."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .messages import damaged
from .targets import TARGETS, seeds

FEW, MANY = 100, 10_000
SETTINGS = settings(derandomize=False, suppress_health_check=list(HealthCheck), database=None)
SECONDS = 20  # of each target
# Inputs that once revealed faults.
FOUND = {
    "image": [],
    "text": [],
    "sentences": [],
    "manifest": [b"[" * 100_000, b'{"format":' * 100_000],
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.full)])
def test_damaged_input(name: str, count: int) -> None:
    target = TARGETS[name]

    @settings(SETTINGS, max_examples=count, derandomize=count == FEW)
    @given(st.one_of(damaged(seeds(name)), st.binary(max_size=100)))
    def each(data: bytes) -> None:
        target(data)

    for data in (*seeds(name), *FOUND[name]):
        each = example(data)(each)
    each()


@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("name", TARGETS)
def test_guided(name: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    flags = f"-max_total_time={SECONDS}", "-rss_limit_mb=4096", "-timeout=30", f"-artifact_prefix={tmp_path}/"
    command = [sys.executable, "-m", "tests.fuzz.guided", name, *flags]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-5_000:]
