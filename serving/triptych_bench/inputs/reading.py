"""Inputs from files: one line, one input; or one image file, one input."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from triptych_bench.target import Sample, TargetError
from triptych_bench.tasks import Kind

PICTURES = (".jpg", ".jpeg", ".png", ".webp")
TAB = "\t"


def read_inputs(path: Path, kind: Kind, references: Path | None) -> list[Sample]:
    """What is in a file or, of images, in a folder and those below it.

    A text has a line of its own, empty lines are left out. `.tsv` files have the reference of each text behind a tab (of pairs
    behind the second one). An image's reference is the name of its folder, where that is one below `path`. `.gz` is unpacked.

    Args:
        path: the file or folder.
        kind: of the inputs.
        references: a file with a line for each line of `path`.

    Raises:
        TargetError: a file cannot be read, a line is not what `kind` says, or there is nothing in it; names file and line.
    """
    if kind is Kind.TENSORS:
        from triptych_bench.oip import inputdata  # noqa: PLC0415 - what it takes is no concern of the other kinds

        return inputdata.read(path)
    if kind is Kind.IMAGE:
        samples = _images(path)
    else:
        lines = _lines(path)
        known = None if references is None else _references(references, len(lines), path)
        rows = (_sample(f"{path.name}:{number}", line, kind, _is_table(path)) for number, line in enumerate(lines, start=1))
        samples = [_with(sample, known[i] if known else None) for i, sample in enumerate(rows) if sample is not None]
    if not samples:
        raise TargetError(f"{path}: there are no inputs in it")
    return samples


def _with(sample: Sample, reference: str | None) -> Sample:
    return sample if reference is None else Sample(sample.data, sample.name, reference)


def _is_table(path: Path) -> bool:
    return ".tsv" in path.suffixes


def _sample(place: str, line: str, kind: Kind, table: bool) -> Sample | None:
    """None: the line is empty."""
    if not line.strip():
        return None
    fields = line.split(TAB)
    wants_pair = kind is Kind.PAIR or (kind is Kind.TEXT_OR_PAIR and len(fields) > 1)
    if wants_pair and (len(fields) < 2 or not all(field.strip() for field in fields[:2])):
        raise TargetError(f"{place}: not two texts with a tab between them")
    data = (fields[0], fields[1]) if wants_pair else fields[0] if table else line
    behind = fields[2 if wants_pair else 1 :]
    return Sample(data, place, behind[0] if (table or wants_pair) and behind else None)


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


def _images(path: Path) -> list[Sample]:
    try:
        return [_image(file, path) for file in _pictures(path)]
    except OSError as error:
        raise TargetError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from error


def _pictures(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    yield from (file for file in sorted(path.rglob("*")) if file.suffix.lower() in PICTURES and file.is_file())


def _image(file: Path, root: Path) -> Sample:
    within = file.relative_to(root).parts if file != root else ()
    return Sample(file.read_bytes(), str(Path(*within) if within else file.name), within[-2] if len(within) > 1 else None)
