"""Inputs from files: one per line, or one per image file."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from triptych_bench.target import Sample, TargetError
from triptych_bench.tasks import InputKind

PICTURES = (".jpg", ".jpeg", ".png", ".webp")
TAB = "\t"


def read_inputs(path: Path, kind: InputKind, references: Path | None) -> list[Sample]:
    """Read the inputs from a file or, for images, from a folder and its subfolders.

    Each line is a text; empty lines are left out. In `.tsv` files the reference follows after a tab (for pairs, after the
    second one). The reference of an image is the name of its subfolder of `path`. `.gz` files are unpacked.

    Args:
        references: A file with a line for each line of `path`.

    Raises:
        TargetError: A file cannot be read or is empty, or a line does not fit the kind; the message names file and line.
    """
    if kind is InputKind.TENSORS:
        from triptych_bench.oip import inputdata  # noqa: PLC0415 - not needed for the other kinds

        return inputdata.read(path)
    if kind is InputKind.IMAGE:
        try:
            samples = [_image(file, path) for file in _pictures(path)]
        except OSError as error:
            raise TargetError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from error
    else:
        lines = _lines(path)
        known = None if references is None else _references(references, len(lines), path)
        is_table = ".tsv" in path.suffixes
        rows = (_sample(f"{path.name}:{number}", line, kind, is_table) for number, line in enumerate(lines, start=1))
        samples = [replace(row, reference=known[i]) if known else row for i, row in enumerate(rows) if row is not None]
    if not samples:
        raise TargetError(f"{path}: no inputs")
    return samples


def _sample(place: str, line: str, kind: InputKind, table: bool) -> Sample | None:
    """Parse a line; None if it is empty."""
    if not line.strip():
        return None
    fields = line.split(TAB)
    wants_pair = kind is InputKind.PAIR or (kind is InputKind.TEXT_OR_PAIR and len(fields) > 1)
    if wants_pair and (len(fields) < 2 or not all(field.strip() for field in fields[:2])):
        raise TargetError(f"{place}: expected two texts separated by a tab")
    data = (fields[0], fields[1]) if wants_pair else fields[0] if table else line
    rest = fields[2 if wants_pair else 1 :]
    return Sample(data, place, rest[0] if (table or wants_pair) and rest else None)


def _lines(path: Path) -> list[str]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            raw = file.read()
    except (OSError, EOFError, zlib.error) as error:
        raise TargetError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise TargetError(f"{path}:{line}: not UTF-8") from error
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def _references(path: Path, count: int, inputs: Path) -> Sequence[str]:
    lines = _lines(path)
    if len(lines) != count:
        raise TargetError(f"{path}: {len(lines)} references for the {count} lines of {inputs}")
    return lines


def _pictures(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    yield from (file for file in sorted(path.rglob("*")) if file.suffix.lower() in PICTURES and file.is_file())


def _image(file: Path, root: Path) -> Sample:
    within = file.relative_to(root).parts if file != root else ()
    return Sample(file.read_bytes(), str(Path(*within) if within else file.name), within[-2] if len(within) > 1 else None)
