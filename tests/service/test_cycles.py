"""Models that come and go leave nothing behind."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..fixtures.toy import MODELS
from .cycles import Holdings
from .processes import PATIENCE_SECONDS, clean_environment

ROOT = Path(__file__).parents[2]
ENCODERS = ROOT / "tests" / "fixtures" / "encoder_models"
SETTLING = 4  # rounds until arenas and thread pools have their size
LAST = 3  # rounds
GROWTH_BYTES = 12 << 20  # of the process, all in all; each round maps and allocates 40 MB and more
GROWING_THREADS = 4  # a pool's, which are made one by one


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for family in (MODELS, ENCODERS):
        shutil.copytree(family, tmp_path, dirs_exist_ok=True)
    return tmp_path


def holdings(models: Path, rounds: int) -> list[Holdings]:
    command = [sys.executable, "-m", "tests.service.cycles", str(models), str(rounds)]
    result = subprocess.run(
        command, cwd=ROOT, env=clean_environment(), capture_output=True, text=True, timeout=20 * PATIENCE_SECONDS, check=False
    )
    assert result.returncode == 0, result.stderr
    return [Holdings(**json.loads(line)) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("rounds", [10, pytest.param(100, marks=pytest.mark.full)])
def test_loading_and_unloading_leaves_nothing_behind(models: Path, rounds: int) -> None:
    found = holdings(models, rounds)
    assert len(found) == rounds
    first, later = found[SETTLING], found[SETTLING:]
    # A file may be open for a moment; one that leaks stays.
    assert min(each.files for each in later[-LAST:]) <= first.files
    assert min(each.maps for each in later[-LAST:]) <= first.maps
    assert later[-1].threads <= first.threads + GROWING_THREADS
    half = len(later) // 2
    assert max(each.resident_bytes for each in later[half:]) - first.resident_bytes < GROWTH_BYTES * (1 + rounds // 100)
