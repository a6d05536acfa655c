"""The kit from end to end on the CPU, with everything as small as can be; minutes, so in the longer tier."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .stages import ROOT


@pytest.mark.full
def test_every_stage_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu.kit", "--work", str(tmp_path), "--device", "cpu", "--tiny", "--seconds", "3000"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert {stage["status"] for stage in content["stages"].values()} == {"done"}
    assert {"offline", "offline-torch", "offline-beam", "server", "bert", "vit", "kernels", "ceilings"} <= set(
        content["results"]
    )
    offline = content["results"]["offline-torch"]
    assert {row["candidate"] for row in offline["results"]} == {"Triptych", "PyTorch compiled", "transformers"}
    assert offline["refused"] == {}
