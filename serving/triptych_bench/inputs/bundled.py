"""Inputs that come with the package, for when there are none of the user's."""

import math
import random
import struct
import zlib
from importlib.resources import as_file, files

from triptych_bench.inputs.reading import read_inputs
from triptych_bench.target import Sample
from triptych_bench.tasks import TASKS, Kind

IMAGES = 8
SIDE = 256  # pixels
WAVE = bytes(int(127 + 110 * math.sin(math.tau * place / SIDE)) for place in range(SIDE))
NOISE = int.from_bytes(b"\x03" * (3 * SIDE))  # the bits of a row that are random
FILES = {"score": "translations.tsv", "answer": "questions.tsv", "classify-text": "pairs.tsv"}
SENTENCES = "sentences.txt"


def bundled(task: str, takes_pairs: bool = True) -> list[Sample]:
    """English sentences of 2 to 30 words, pairs of them, questions with their texts, or images.

    Args:
        task: a key of TASKS, not "infer".
        takes_pairs: of "classify-text": the model's inputs are pairs.
    """
    kind = TASKS[task].kind
    if kind is Kind.IMAGE:
        return [Sample(_picture(seed), f"made up {seed}") for seed in range(IMAGES)]
    name = FILES.get(task, SENTENCES)
    if task == "classify-text" and not takes_pairs:
        name = SENTENCES
    with as_file(files("triptych_bench.inputs") / "samples" / name) as path:
        return [Sample(sample.data, sample.name) for sample in read_inputs(path, kind, None)]


def _picture(seed: int) -> bytes:
    """A PNG file: waves of colour with some noise, so that it is neither empty nor pure noise for the decoder."""
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
    # PNG specification, 11.2: width, height, 8 bits, colour type 2 (RGB), the only methods there are, not interlaced.
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(bytes(rows), 6)) + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
