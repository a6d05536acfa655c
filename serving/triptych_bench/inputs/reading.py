"""Inputs of benchmarks with their references: from files, one per line or one per image file, or from the package."""

import gzip
import math
import random
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

from triptych_bench.target import Sample, TargetError
from triptych_bench.tasks import TASKS, InputKind

PICTURES = (".jpg", ".jpeg", ".png", ".webp")


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
            files = [path]
            if path.is_dir():
                files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in PICTURES and file.is_file()]
            samples = [_image(file, path) for file in files]
        except OSError as error:
            raise TargetError(f"{error.filename or path}: cannot be read: {error.strerror or error}") from error
    else:
        lines = _lines(path)
        known = None if references is None else _lines(references)
        if known is not None and len(known) != len(lines):
            raise TargetError(f"{references}: {len(known)} references for the {len(lines)} lines of {path}")
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
    fields = line.split("\t")
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
        line = error.object.count(b"\n", 0, error.start) + 1  # the place counts from behind a byte order mark
        raise TargetError(f"{path}:{line}: not UTF-8") from error
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def _image(file: Path, root: Path) -> Sample:
    within = file.relative_to(root).parts if file != root else ()
    return Sample(file.read_bytes(), str(Path(*within) if within else file.name), within[-2] if len(within) > 1 else None)


IMAGES = 8
SIDE = 256  # pixels
WAVE = bytes(int(127 + 110 * math.sin(math.tau * place / SIDE)) for place in range(SIDE))
NOISE = int.from_bytes(b"\x03" * (3 * SIDE))  # random bits of a row
FILES = {"score": "translations.tsv", "answer": "questions.tsv", "classify-text": "pairs.tsv"}
SENTENCES = "sentences.txt"
WORD = re.compile(r"\b[^\W\d_]+\b")


def bundled(task: str, takes_pairs: bool = True) -> list[Sample]:
    """Return English sentences of 2 to 30 words, pairs of them, questions with texts, or images.

    Args:
        task: A key of TASKS, not "infer".
        takes_pairs: For "classify-text": the model takes pairs.
    """
    kind = TASKS[task].kind
    if kind is InputKind.IMAGE:
        return [Sample(_picture(seed), f"generated {seed}") for seed in range(IMAGES)]
    name = FILES.get(task, SENTENCES)
    if task == "classify-text" and not takes_pairs:
        name = SENTENCES
    with as_file(files("triptych_bench.inputs") / "samples" / name) as path:
        return [Sample(sample.data, sample.name) for sample in read_inputs(path, kind, None)]


def _picture(seed: int) -> bytes:
    """Generate a PNG file: waves of colour with some noise, so that it is neither empty nor pure noise for the decoder."""
    rng = random.Random(seed)
    waves = [(rng.randrange(1, 6), rng.randrange(1, 6), rng.randrange(SIDE)) for _ in range(3)]
    rows = bytearray()
    for y in range(SIDE):
        row = bytearray(3 * SIDE)
        for channel, (across, down, phase) in enumerate(waves):
            start = (down * y + phase) % SIDE
            row[channel::3] = (WAVE * (across + 1))[start : start + across * SIDE : across]
        noise = int.from_bytes(rng.randbytes(len(row))) & NOISE
        rows += b"\0" + (int.from_bytes(row) ^ noise).to_bytes(len(row))  # 0: no filter
    # PNG specification, 11.2: width, height, 8 bits, colour type 2 (RGB), default methods, not interlaced.
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(bytes(rows), 6)) + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def masked(samples: Sequence[Sample], mask: str, seed: int) -> list[Sample]:
    """Replace a random word of each text by a mask and make the word the reference; texts with a mask stay as they are.

    Args:
        samples: Texts; those without a word are left out.
    """
    rng = random.Random(seed)
    return [sample if mask in sample.data else _mask(sample, mask, rng) for sample in samples if WORD.search(sample.data)]


def _mask(sample: Sample, mask: str, rng: random.Random) -> Sample:
    text: str = sample.data
    found = rng.choice(list(WORD.finditer(text)))
    return Sample(text[: found.start()] + mask + text[found.end() :], sample.name, found[0])
