"""`triptych train translation` on the command line."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from triptych_cli.main import cli
from triptych_training.checkpoints.translation import load_checkpoint

from .toy import PAIRS, write_pairs

TINY = (
    "--source-language en --target-language xx --vocabulary-size 290 --batch-tokens 200 --epochs 1 --devices 1 "
    "--model-dim 16 --heads 2 --feedforward-dim 24 --encoder-layers 1 --decoder-layers 1 --max-positions 32"
)


def train(folder: Path, *options: str, pairs: Any = PAIRS) -> Result:
    data = write_pairs(folder / "pairs.tsv", pairs)
    files = ["--train", data, "--valid", data, "--out", str(folder / "run")]
    return CliRunner().invoke(cli, ["train", "translation", *files, *TINY.split(), *options])


def test_a_training_prints_the_path_of_its_checkpoint(tmp_path: Path) -> None:
    result = train(tmp_path, "--norm", "pre", "--no-tie-embeddings")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path / 'run/model'}\n"
    config = load_checkpoint(tmp_path / "run/model").model.config
    assert (config.norm, config.tie_embeddings, config.decoder_layers) == ("pre", False, 1)


@pytest.mark.parametrize(
    ("options", "pairs", "message"),
    [
        ((), [("one", "two"), ("three", "")], "pairs.tsv:2: the target side is empty"),
        (("--heads", "3"), PAIRS, "heads: 3 does not divide model_dim 16"),
        (("--learning-rate", "0"), PAIRS, "learning_rate: 0.0 is not above 0"),
        (("--valid", "none.tsv"), PAIRS, "none.tsv: cannot be read: No such file or directory"),
        (("--devices", "some"), PAIRS, "devices: 'some' cannot be used"),
    ],
    ids=["data", "shape", "recipe", "file", "devices"],
)
def test_an_error_is_printed_as_one_line(tmp_path: Path, options: tuple[str, ...], pairs: Any, message: str) -> None:
    result = train(tmp_path, *options, pairs=pairs)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_folder_with_a_training_needs_resume(tmp_path: Path) -> None:
    assert train(tmp_path).exit_code == 0
    again = train(tmp_path)
    assert again.exit_code == 1
    assert "contains a training; continue it with --resume" in again.stderr
    assert train(tmp_path, "--resume", "--epochs", "2").exit_code == 0
