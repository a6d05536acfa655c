"""Packed checkpoints: smaller, and split into pieces for channels that limit the size of files.

A pack is `<name>.01`, `<name>.02`, ... and `<name>.json`, which lists the pieces with their sha256. Joined, the pieces are a
tar file of the checkpoint folder. Matrices may be stored in 16 bits; readers of checkpoints always compute in float32.
"""

import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from triptych_training.checkpoints.folder import CONFIG, WEIGHTS, need_files, read_weights
from triptych_training.data.files import replace_text, replacing
from triptych_training.errors import CheckpointError, RecipeError

FORMAT = 1
MEBIBYTE = 2**20
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def pack_checkpoint(folder: Path, out: Path, precision: str = "fp16", piece_mib: float = 15.0) -> list[Path]:
    """Write a pack; `out` is its path without suffix. Returns the files, the list of pieces first.

    It replaces an older pack of that name, whose other pieces are removed.

    Raises:
        CheckpointError: `folder` is not a checkpoint, or `<out>.json` is not the list of a pack.
        RecipeError: an option is out of range.
    """
    if precision not in DTYPES:
        raise RecipeError(f"precision: {precision!r} is unknown; choose one of {', '.join(DTYPES)}")
    if not piece_mib > 0:
        raise RecipeError(f"piece_mib: {piece_mib} is not above 0")
    need_files(folder, (CONFIG, WEIGHTS))
    out.parent.mkdir(parents=True, exist_ok=True)
    listing = out.with_name(f"{out.name}.json")
    old = {path for path, _ in _read_listing(listing)} if listing.exists() else set[Path]()
    content = _archive(folder, precision)
    size = max(1, int(min(len(content), piece_mib * MEBIBYTE)))
    paths, pieces = [], list[dict[str, Any]]()
    for number, start in enumerate(range(0, len(content), size), start=1):
        piece, path = content[start : start + size], out.with_name(f"{out.name}.{number:02d}")
        with replacing(path) as partial:
            partial.write_bytes(piece)
        paths.append(path)
        pieces.append({"file": path.name, "bytes": len(piece), "sha256": sha256(piece).hexdigest()})
    replace_text(listing, json.dumps({"format": FORMAT, "precision": precision, "pieces": pieces}, indent=2) + "\n")
    for path in old - set(paths):
        path.unlink(missing_ok=True)
    return [listing, *paths]


def join_checkpoint(listing: Path, out: Path) -> Path:
    """Write the checkpoint folder `out`, which must not exist, from the pack with the list `listing` (`<name>.json`).

    Raises:
        CheckpointError: lists all missing and damaged pieces.
    """
    if out.exists():
        raise CheckpointError(f"{out}: exists already")
    pieces, faults = [], []
    for path, expected in _read_listing(listing):
        data = path.read_bytes() if path.is_file() else None
        if data is None:
            faults.append(f"{path}: missing")
        elif sha256(data).hexdigest() != expected:
            faults.append(f"{path}: damaged, or part of another pack")
        pieces.append(data or b"")
    if faults:
        raise CheckpointError("; ".join(faults))
    _unpack(b"".join(pieces), out, listing)
    return out


def _read_listing(path: Path) -> list[tuple[Path, str]]:
    """Read paths and digests of a pack's pieces, which lie beside the list whatever it says."""
    try:
        listing = json.loads(path.read_text(encoding="utf-8"))
        if listing["format"] != FORMAT:
            raise CheckpointError(f"{path}: format {listing['format']!r}; supported: {FORMAT}")
        names = [(PurePosixPath(str(piece["file"])).name, str(piece["sha256"])) for piece in listing["pieces"]]
        return [(path.with_name(name), expected) for name, expected in names]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: not the list of a pack, the .json file ({type(error).__name__})") from error


def _archive(folder: Path, precision: str) -> bytes:
    """Make a reproducible tar file of the folder, the weights last."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    weights = {name: _round(tensor, DTYPES[precision]) for name, tensor in read_weights(folder / WEIGHTS).items()}
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in sorted(names, key=lambda name: (name == WEIGHTS, name)):
                data = save(weights, {"format": "pt"}) if name == WEIGHTS else (folder / name).read_bytes()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return file.getvalue()


def _round(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Round a matrix to `dtype` unless it overflows; norms, biases and counters are small and stay as they are."""
    if tensor.ndim < 2 or not tensor.is_floating_point():
        return tensor
    rounded = tensor.to(dtype)
    return rounded if bool(rounded.isfinite().all()) else tensor


def _unpack(content: bytes, out: Path, origin: Path) -> None:
    with replacing(out) as partial:
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for member in archive:  # not `extractall`, whose safe filter Python 3.11.2 of Debian 12 lacks
                    name, file = PurePosixPath(member.name), archive.extractfile(member) if member.isfile() else None
                    if file is None or name.is_absolute() or ".." in name.parts:
                        raise CheckpointError(f"{origin}: its pieces have {member.name!r}, which is no file of a checkpoint")
                    (partial / name).parent.mkdir(parents=True, exist_ok=True)
                    (partial / name).write_bytes(file.read())
        except tarfile.TarError as error:
            raise CheckpointError(f"{origin}: its pieces are no archive ({error})") from error
        need_files(partial, (CONFIG, WEIGHTS))
