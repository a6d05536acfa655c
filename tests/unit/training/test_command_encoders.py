"""`triptych train` for BERT, heads and ViT on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from triptych_cli.main import cli
from triptych_training.checkpoints.encoder import load_bert_checkpoint, load_vit_checkpoint

from .toy_pictures import write_pictures
from .toy_text import write, write_documents, write_encoder, write_labelled, write_questions, write_words

BRIEF = "--epochs 1 --max-steps 2 --devices 1 --precision fp32"
TINY = "--model-dim 16 --heads 2 --feedforward-dim 24 --layers 1"
WRITERS: dict[str, Callable[[Path], str]] = {
    "text-classification": write_labelled,
    "token-classification": write_words,
    "question-answering": write_questions,
}


def train(verb: str, folder: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["train", verb, "--out", str(folder / "run"), *BRIEF.split(), *options])


def bert(folder: Path, *options: str) -> Result:
    text = write_documents(folder / "text.txt", repeat=3)
    fixed = f"{TINY} --max-positions 48 --sequence-length 32 --batch-tokens 160 --vocabulary-size 120"
    return train("bert", folder, "--train", text, "--valid", text, *fixed.split(), *options)


def head(name: str, folder: Path, *options: str) -> Result:
    data, encoder = WRITERS[name](folder / "data"), write_encoder(folder / "encoder")
    return train(name, folder, "--train", data, "--valid", data, "--encoder", encoder, "--stride", "4", *options)


def vit(folder: Path, *options: str) -> Result:
    fixed = f"{TINY} --image-size 8 --patch-size 4 --hold-out 6 --batch-images 4"
    return train("vit", folder, "--train", write_pictures(folder / "pictures"), *fixed.split(), *options)


def assert_failed(result: Result, message: str) -> None:
    """Check that the command failed with a single line."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_bert_prints_the_path_of_its_checkpoint(tmp_path: Path) -> None:
    result = bert(tmp_path, "--norm", "pre", "--no-next-sentence", "--no-lowercase")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path / 'run/model'}\n"
    checkpoint = load_bert_checkpoint(tmp_path / "run/model")
    assert (checkpoint.head, checkpoint.model.config.norm, checkpoint.model.config.layers) == ("pretraining", "pre", 1)
    recipe = checkpoint.provenance["recipe"]
    assert (recipe["next_sentence"], recipe["lowercase"], recipe["schedule"]) == (False, False, "linear")


@pytest.mark.parametrize("name", WRITERS)
def test_a_head_prints_the_path_of_its_checkpoint(tmp_path: Path, name: str) -> None:
    result = head(name, tmp_path, "--dropout", "0.2")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path / 'run/model'}\n"
    checkpoint = load_bert_checkpoint(tmp_path / "run/model")
    assert (checkpoint.head, checkpoint.model.config.dropout) == (name, 0.2)
    assert checkpoint.provenance["recipe"]["learning_rate"] == 5e-5


def test_vit_prints_the_path_of_its_checkpoint(tmp_path: Path) -> None:
    result = vit(tmp_path, "--stem", "convolution", "--cutmix", "1", "--no-flip")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path / 'run/model'}\n"
    checkpoint = load_vit_checkpoint(tmp_path / "run/model")
    assert (checkpoint.model.config.stem, checkpoint.model.config.classes) == ("convolution", 3)
    recipe = checkpoint.provenance["recipe"]
    assert (recipe["flip"], recipe["cutmix"], recipe["ema_decay"]) == (False, 1.0, 0.999)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--heads", "3"), "heads: 3 does not divide model_dim 16"),
        (("--sequence-length", "64"), "sequence_length: 64 is above max_positions 48"),
        (("--mask-share", "1"), "mask_share: 1.0 is outside [0, 1)"),
        (("--train", "none.txt"), "none.txt: cannot be read: No such file or directory"),
        (("--tokenizer", "none.json"), "none.json: not a tokenizer"),
    ],
)
def test_an_error_of_bert_is_printed_as_one_line(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    assert_failed(bert(tmp_path, *options), message)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("text-classification", "one\tyes\ntwo\n", "bad:2: 1 tab-separated fields"),
        ("token-classification", "The O\nBerlin\n", "bad:2: 'Berlin' has no label"),
        ("question-answering", "{}", "bad: not SQuAD's JSON"),
    ],
)
def test_malformed_data_of_a_head_is_printed_as_one_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    assert_failed(head(name, tmp_path, "--train", write(tmp_path / "bad", content)), message)


def test_a_missing_encoder_is_printed_as_one_line(tmp_path: Path) -> None:
    result = head("text-classification", tmp_path, "--encoder", str(tmp_path))
    assert_failed(result, f"{tmp_path}: not a checkpoint folder, missing config.json, model.safetensors, tokenizer.json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--patch-size", "3"), "patch_size: 3 does not divide image_size 8"),
        (("--drop-path", "1"), "drop_path: 1.0 is outside [0, 1)"),
        (("--hold-out", "18"), "hold_out: 6 images a class, but the smallest class has 6"),
        (("--randaugment-magnitude", "2"), "randaugment_magnitude: 2.0 is outside [0, 1]"),
        (("--valid", "nowhere"), "nowhere: no such folder"),
    ],
)
def test_an_error_of_vit_is_printed_as_one_line(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    assert_failed(vit(tmp_path, *options), message)


def test_a_damaged_image_is_printed_as_one_line(tmp_path: Path) -> None:
    write_pictures(tmp_path / "pictures")
    (tmp_path / "pictures/red/zz.jpg").write_bytes(b"no image")
    result = vit(tmp_path)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"Error: {tmp_path}/pictures/red/zz.jpg: cannot be used as an image: ")


@pytest.mark.parametrize("run", [bert, vit, lambda folder, *options: head("text-classification", folder, *options)])
def test_a_folder_with_a_training_needs_resume(tmp_path: Path, run: Any) -> None:
    assert run(tmp_path).exit_code == 0
    assert_failed(run(tmp_path), "contains a training; continue it with --resume")
    assert run(tmp_path, "--resume", "--epochs", "2", "--max-steps", "4").exit_code == 0
    assert_failed(run(tmp_path, "--resume", "--learning-rate", "0.5"), "was started with other options: learning_rate was ")
