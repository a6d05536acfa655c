"""Training with two processes under torch's launcher."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ..runs import records
from ..toy import PAIRS, write_pairs

pytestmark = pytest.mark.full
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
COMMAND = ["-m", "triptych_cli", "train", "translation", "--source-language", "en", "--target-language", "xx"]
TINY = "--model-dim 16 --heads 2 --feedforward-dim 24 --encoder-layers 1 --decoder-layers 1 --max-positions 32 --dropout 0"
BRIEF = "--vocabulary-size 290 --batch-tokens 18 --epochs 2 --optimizer muon --warmup-steps 4 --precision fp32"
# A limit that is never reached; the processes must agree on the remaining time.
TIMED = "--schedule linear --max-minutes 600"


def train(launcher: list[str], folder: Path, out: str, *options: str) -> str:
    data = write_pairs(folder / "pairs.tsv")
    files = ["--train", data, "--valid", data, "--out", str(folder / out)]
    command = [*launcher, *COMMAND, *files, *TINY.split(), *BRIEF.split(), *options]
    # One thread, as torchrun sets it: another order of sums changes key biases, whose gradients are only rounding errors.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def weights(run: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(run / "state.pt", weights_only=True)["model"]
    return state


@pytest.mark.parametrize("devices", ["2", "auto"])
def test_two_processes_take_the_same_steps_as_one_that_accumulates(tmp_path: Path, devices: str) -> None:
    printed = train(LAUNCH, tmp_path, "two", "--devices", devices)
    train([sys.executable], tmp_path, "one", "--accumulate", "2", "--devices", "1")
    assert printed == f"{tmp_path / 'two/model'}\n"
    two, one = weights(tmp_path / "two"), weights(tmp_path / "one")
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=1e-4)
    for line, expected in zip(records(tmp_path / "two"), records(tmp_path / "one"), strict=True):
        for name in expected.keys() & {"step", "train_loss", "valid_loss", "valid_tokens", "valid_pairs"}:
            assert line[name] == pytest.approx(expected[name], rel=1e-3), name


def test_two_processes_resume_the_training_of_one(tmp_path: Path) -> None:
    train([sys.executable], tmp_path, "run", "--accumulate", "2", "--devices", "1", *TIMED.split())
    train(LAUNCH, tmp_path, "run", "--devices", "2", "--resume", "--epochs", "3", *TIMED.split())
    assert (tmp_path / "run/checkpoints/epoch-0003/model.safetensors").exists()
    assert len(PAIRS) == json.loads((tmp_path / "run/model/config.json").read_text())["provenance"]["training_pairs"]
