"""`triptych distill` and `triptych checkpoint` on the command line."""

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from triptych_cli.main import cli
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint, save_checkpoint
from triptych_training.data.corpus import read_pairs
from triptych_training.data.tokenizer import train_tokenizer
from triptych_training.decoding.greedy import greedy

from .toy import PAIRS, make_model, write_pairs

TOKENIZER = train_tokenizer([text for pair in PAIRS for text in pair], 290)


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    save_checkpoint(Checkpoint(make_model(vocabulary_size=290), TOKENIZER, "en", "de"), tmp_path / "teacher")
    return tmp_path / "teacher"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def assert_failed(result: Result, message: str) -> None:
    """Check that the command failed with a single line."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_distillation_prints_the_path_of_its_pairs(tmp_path: Path, teacher: Path) -> None:
    pairs, out = write_pairs(tmp_path / "pairs.tsv"), tmp_path / "out.tsv"
    result = invoke("distill", teacher, "--pairs", pairs, "--out", out, "--beam-size", 2, "--max-length", 9, "--chunk", 20)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out}\n"
    assert result.stderr.splitlines()[-1].startswith(f"{len(read_pairs([str(out)]))} pairs, ")
    assert set(PAIRS) <= set(read_pairs([str(out)]))


def test_only_the_last_shard_prints_the_path(tmp_path: Path, teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("distill", teacher, "--pairs", write_pairs(tmp_path / "pairs.tsv"), "--out", tmp_path / "out.tsv", "--chunk", 20)
    command = (*command, "--beam-size", 1, "--max-length", 6, "--pick", "best")
    first = invoke(*command, "--shard", "1/2")
    assert (first.exit_code, first.stdout) == (0, "")
    assert first.stderr.splitlines()[-1] == "1 of 3 chunks done; the others belong to other processes"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert invoke(*command).stdout == f"{tmp_path / 'out.tsv'}\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shard", "2/2"), "shard: 2 is outside 0 to 1"),
        (("--beam-size", "0"), "beam_size: 0 is below 1"),
        (("--target-language", "fr"), "target_language: the model does not translate to 'fr'; set one of de"),
        (("--pairs", "none.tsv"), "none.tsv: cannot be read: No such file or directory"),
    ],
)
def test_a_distillation_error_is_printed_as_one_line(
    tmp_path: Path, teacher: Path, options: tuple[str, ...], message: str
) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv")
    assert_failed(invoke("distill", teacher, "--pairs", pairs, "--out", tmp_path / "out.tsv", *options), message)


def test_a_malformed_shard_is_a_usage_error(tmp_path: Path, teacher: Path) -> None:
    result = invoke("distill", teacher, "--text", "x", "--out", tmp_path / "out.tsv", "--shard", "half")
    assert result.exit_code == 2
    assert "'half' is not of the form 0/4" in result.stderr


def test_a_checkpoint_is_packed_and_joined(tmp_path: Path, teacher: Path) -> None:
    packed = invoke("checkpoint", "pack", teacher, tmp_path / "small", "--piece-mib", "0.01")
    assert packed.exit_code == 0, packed.output
    listing, *pieces = packed.stdout.splitlines()
    assert listing == str(tmp_path / "small.json")
    assert len(pieces) > 1
    joined = invoke("checkpoint", "join", listing, tmp_path / "joined")
    assert joined.stdout == f"{tmp_path / 'joined'}\n"
    before, after = (load_checkpoint(path).model.projection.weight for path in (teacher, tmp_path / "joined"))
    assert torch.allclose(before, after, rtol=1e-3, atol=1e-6)
    assert_failed(invoke("checkpoint", "join", listing, tmp_path / "joined"), "exists already")
    assert_failed(invoke("checkpoint", "pack", tmp_path, tmp_path / "x"), "not a checkpoint folder")
    assert_failed(invoke("checkpoint", "pack", teacher, tmp_path / "x", "--piece-mib", "0"), "piece_mib: 0.0 is not above 0")


def test_a_checkpoint_is_scored_in_both_conventions(tmp_path: Path, teacher: Path) -> None:
    pairs, out = write_pairs(tmp_path / "pairs.tsv", PAIRS[:9]), tmp_path / "out.txt"
    result = invoke("checkpoint", "score", teacher, pairs, "--beam-size", 2, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found.keys() == {"bleu", "signature", "sentences", "literature", "literature_signature"}
    assert found["sentences"] == len(out.read_text().splitlines()) == 9
    shown = invoke("checkpoint", "score", teacher, pairs, "--beam-size", 2).stdout.splitlines()
    assert shown[0] == f"BLEU {found['bleu']:.2f}  (9 sentences; {found['signature']})"
    assert shown[1] == f"BLEU {found['literature']:.2f}  ({found['literature_signature']})"


def test_translations_can_be_written(tmp_path: Path, teacher: Path) -> None:
    out = tmp_path / "out.txt"
    invoke("checkpoint", "score", teacher, write_pairs(tmp_path / "pairs.tsv", PAIRS[:9]), "--beam-size", 1, "--out", out)
    sources = [TOKENIZER.encode(source).ids for source, _ in PAIRS[:9]]
    texts = TOKENIZER.decode_batch(greedy(load_checkpoint(teacher).model, sources, 31))
    assert out.read_text() == "".join(f"{' '.join(text.split())}\n" for text in texts)


def test_a_scoring_error_is_printed_as_one_line(tmp_path: Path, teacher: Path) -> None:
    long = write_pairs(tmp_path / "long.tsv", [(" ".join(["three"] * 40), "long")])
    assert_failed(invoke("checkpoint", "score", teacher, long), "the model takes at most 32")
    save_file({"x": torch.zeros(1)}, str(teacher / "model.safetensors"))
    assert_failed(invoke("checkpoint", "score", teacher, write_pairs(tmp_path / "pairs.tsv")), "unexpected x")
