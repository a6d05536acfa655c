"""Inputs of the package, for benchmarks without inputs of the user, and masks in texts."""

import math
import random
import re
import struct
import zlib
from collections.abc import Sequence
from importlib.resources import as_file, files

from triptych_bench.inputs.reading import read_inputs
from triptych_bench.target import Sample
from triptych_bench.tasks import TASKS, InputKind

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
