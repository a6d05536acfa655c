"""Packing and joining checkpoints."""

import json
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from triptych_training.checkpoints.packing import join_checkpoint, pack_checkpoint
from triptych_training.checkpoints.translation import Checkpoint, load_checkpoint, save_checkpoint
from triptych_training.errors import CheckpointError, RecipeError, TrainingError

from ..toy import PAIRS, TOKENIZER, make_model

PIECE = 0.005  # MiB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = make_model(vocabulary_size=290)
    save_checkpoint(Checkpoint(model, TOKENIZER, "en", "de", {"epochs": 3}, PAIRS[:5]), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_joining_a_pack_restores_the_checkpoint(tmp_path: Path, folder: Path, precision: str) -> None:
    listing, *pieces = pack_checkpoint(folder, tmp_path / "carried/small", precision, PIECE)
    assert [path.name for path in pieces] == [f"small.{number:02d}" for number in range(1, len(pieces) + 1)]
    assert len(pieces) > 2
    assert all(path.stat().st_size <= PIECE * 2**20 for path in pieces)
    out = join_checkpoint(listing, tmp_path / "joined")
    before, after = load_checkpoint(folder), load_checkpoint(out)
    assert (after.provenance, list(after.samples)) == (before.provenance, list(before.samples))
    rounding = {"fp32": 0.0, "fp16": 2**-11, "bf16": 2**-8}[precision]
    for (name, tensor), (_, expected) in zip(after.model.state_dict().items(), before.model.state_dict().items(), strict=True):
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, expected, rtol=rounding if tensor.ndim > 1 else 0, atol=1e-7, msg=name)


def test_packing_is_reproducible_and_keeps_what_overflows(tmp_path: Path, folder: Path) -> None:
    first = pack_checkpoint(folder, tmp_path / "a/pack", "fp16", PIECE)
    second = pack_checkpoint(folder, tmp_path / "b/pack", "fp16", PIECE)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    weights = load_file(str(folder / "model.safetensors"))
    weights["encoder.embedding.tokens.weight"][0, 0] = 1e6
    save_file(weights, str(folder / "model.safetensors"))
    assert len(pack_checkpoint(folder, tmp_path / "pack", piece_mib=float("inf"))) == 2
    joined = load_file(str(join_checkpoint(tmp_path / "pack.json", tmp_path / "joined") / "model.safetensors"))
    assert torch.equal(joined["encoder.embedding.tokens.weight"], weights["encoder.embedding.tokens.weight"])
    assert joined["encoder.layers.0.feedforward.expand.weight"].dtype == torch.float16
    assert joined["encoder.layers.0.feedforward.expand.bias"].dtype == torch.float32


def test_faulty_packs_are_named(tmp_path: Path, folder: Path) -> None:
    listing, first, second, *_ = pack_checkpoint(folder, tmp_path / "pack", "fp16", PIECE)
    first.unlink()
    second.write_bytes(b"x" + second.read_bytes()[1:])
    with pytest.raises(CheckpointError) as caught:
        join_checkpoint(listing, tmp_path / "joined")
    assert str(caught.value) == f"{first}: missing; {second}: damaged, or part of another pack"
    assert not (tmp_path / "joined").exists()
    listing, piece, *_ = pack_checkpoint(folder, tmp_path / "pack")
    with pytest.raises(CheckpointError, match=r"pack\.01: not the list of a pack, the \.json file \(UnicodeDecodeError\)$"):
        join_checkpoint(piece, tmp_path / "joined")
    content = json.loads(listing.read_text())
    content["pieces"][0]["file"] = "../../etc/passwd"
    listing.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=f"{tmp_path / 'passwd'}: missing"):
        join_checkpoint(listing, tmp_path / "joined")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": 2, "pieces": []}', *(f'{{"format": 1, "pieces": [{piece}]}}' for piece in ("1", "{}"))],
)
def test_an_invalid_list_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "pack.json").write_text(content)
    with pytest.raises(TrainingError, match=r"pack\.json: (not the list of a pack|format 2; supported: 1)"):
        join_checkpoint(tmp_path / "pack.json", tmp_path / "joined")


def test_invalid_arguments_are_rejected(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(RecipeError, match="precision: 'int4' is unknown"):
        pack_checkpoint(folder, tmp_path / "pack", "int4")
    with pytest.raises(RecipeError, match="piece_mib: 0 is not above 0"):
        pack_checkpoint(folder, tmp_path / "pack", "fp16", 0)
    with pytest.raises(CheckpointError, match="not a checkpoint folder"):
        pack_checkpoint(tmp_path, tmp_path / "pack")
    with pytest.raises(CheckpointError, match="exists already"):
        join_checkpoint(tmp_path / "pack.json", folder)


def test_a_smaller_pack_replaces_a_larger_one(tmp_path: Path, folder: Path) -> None:
    assert len(pack_checkpoint(folder, tmp_path / "pack", "fp16", PIECE)) > 3
    other = tmp_path / "pack.99"
    other.touch()  # of something else
    files = pack_checkpoint(folder, tmp_path / "pack")
    assert {*tmp_path.iterdir()} == {*files, folder, other}
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"other\.json: not the list of a pack"):
        pack_checkpoint(folder, tmp_path / "other")


def test_interrupted_and_failed_joins_leave_nothing_behind(tmp_path: Path, folder: Path) -> None:
    listing, piece = pack_checkpoint(folder, tmp_path / "pack")
    (tmp_path / "joined.partial").mkdir()
    (tmp_path / "joined.partial/generation_config.json").write_text("{}")
    joined = join_checkpoint(listing, tmp_path / "joined")
    assert not (joined / "generation_config.json").exists()
    shutil.rmtree(joined)
    content = json.loads(listing.read_text())
    piece.write_bytes(bytes(20_480))  # an empty archive
    content["pieces"][0]["sha256"] = sha256(piece.read_bytes()).hexdigest()
    listing.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="not a checkpoint folder"):
        join_checkpoint(listing, tmp_path / "joined")
    assert {*tmp_path.iterdir()} == {listing, piece, folder}


@pytest.mark.parametrize(("name", "kind"), [("../x", tarfile.REGTYPE), ("/x", tarfile.REGTYPE), ("x", tarfile.SYMTYPE)])
def test_files_outside_of_the_folder_are_refused(name: str, kind: bytes, tmp_path: Path, folder: Path) -> None:
    listing, piece = pack_checkpoint(folder, tmp_path / "pack")
    with tarfile.open(piece, "w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    content = json.loads(listing.read_text())
    content["pieces"][0]["sha256"] = sha256(piece.read_bytes()).hexdigest()
    listing.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=f"its pieces have '{name}', which is no file of a checkpoint"):
        join_checkpoint(listing, tmp_path / "joined")
    assert {*tmp_path.iterdir()} == {listing, piece, folder}
