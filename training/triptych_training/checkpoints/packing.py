"""Checkpoint folders made small, and cut into pieces for channels that carry no large files.

A pack is `<name>.01`, `<name>.02`, ... and `<name>.json`, which names the pieces with their sha256; put together, the pieces
are a tar file of the folder. Matrices are stored in 16 bits if that is asked for; what reads a checkpoint computes in float32.
"""

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from triptych_training.checkpoints.config import CONFIG, need_files
from triptych_training.checkpoints.weights import WEIGHTS, read_weights
from triptych_training.errors import CheckpointError, RecipeError

FORMAT = 1
MEBIBYTE = 2**20
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def pack_checkpoint(folder: Path, out: Path, precision: str = "fp16", piece_mib: float = 15.0) -> list[Path]:
    """Write the pack `out` (a path and the beginning of the names); returns its files, the list of pieces first.

    Raises:
        CheckpointError: `folder` is no checkpoint.
        RecipeError: options are out of range.
    """
    if precision not in DTYPES:
        raise RecipeError(f"precision: {precision!r} is unknown; choose one of {', '.join(DTYPES)}")
    if not piece_mib > 0:
        raise RecipeError(f"piece_mib: {piece_mib} is not above 0")
    need_files(folder, (CONFIG, WEIGHTS))
    out.parent.mkdir(parents=True, exist_ok=True)
    content, size = _archive(folder, precision), max(1, int(piece_mib * MEBIBYTE))
    pieces: list[dict[str, Any]] = []
    for number, start in enumerate(range(0, len(content), size), start=1):
        piece, path = content[start : start + size], out.with_name(f"{out.name}.{number:02d}")
        path.write_bytes(piece)
        pieces.append({"file": path.name, "bytes": len(piece), "sha256": sha256(piece).hexdigest()})
    listing = out.with_name(f"{out.name}.json")
    listing.write_text(json.dumps({"format": FORMAT, "precision": precision, "pieces": pieces}, indent=2) + "\n", "utf-8")
    return [listing, *(out.with_name(str(piece["file"])) for piece in pieces)]


def join_checkpoint(listing: Path, out: Path) -> Path:
    """Put a pack together again into the checkpoint folder `out`, which must not exist.

    Args:
        listing: the pack's `<name>.json`; its pieces lie beside it.
        out: folder to write.

    Raises:
        CheckpointError: pieces are missing or damaged; all of them are named.
    """
    if out.exists():
        raise CheckpointError(f"{out}: exists already")
    pieces, faults = [], []
    for piece in _read_listing(listing):
        path = listing.with_name(PurePosixPath(str(piece.get("file", ""))).name)
        data = path.read_bytes() if path.is_file() else None
        if data is None:
            faults.append(f"{path}: missing")
        elif sha256(data).hexdigest() != piece.get("sha256"):
            faults.append(f"{path}: damaged, or of another pack")
        pieces.append(data or b"")
    if faults:
        raise CheckpointError("; ".join(faults))
    _unpack(b"".join(pieces), out, listing)
    return out


def _read_listing(path: Path) -> Sequence[Mapping[str, Any]]:
    try:
        listing = json.loads(path.read_text(encoding="utf-8"))
        if listing["format"] != FORMAT:
            raise CheckpointError(f"{path}: format {listing['format']!r}; supported: {FORMAT}")
        pieces: Sequence[Mapping[str, Any]] = [dict(piece) for piece in listing["pieces"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: not the list of a pack ({error!r})") from error
    return pieces


def _archive(folder: Path, precision: str) -> bytes:
    """A tar file of the folder's files, the same one for the same files; the weights last."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    weights = {name: _smaller(tensor, DTYPES[precision]) for name, tensor in read_weights(folder / WEIGHTS).items()}
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in sorted(names, key=lambda name: (name == WEIGHTS, name)):
                data = save(weights, {"format": "pt"}) if name == WEIGHTS else (folder / name).read_bytes()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return file.getvalue()


def _smaller(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Matrices in `dtype`, where they fit; norms, biases and counters are small, and keep what they have."""
    if tensor.ndim < 2 or not tensor.is_floating_point():
        return tensor
    smaller = tensor.to(dtype)
    return smaller if bool(smaller.isfinite().all()) else tensor


def _unpack(content: bytes, out: Path, origin: Path) -> None:
    partial = out.with_name(f"{out.name}.partial")
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(partial, filter="data")
    except (tarfile.TarError, OSError) as error:
        raise CheckpointError(f"{origin}: its pieces are no archive ({error})") from error
    need_files(partial, (CONFIG, WEIGHTS))
    partial.replace(out)
