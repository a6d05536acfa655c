"""Alignments as bytes, exactly: weights are 32-bit numbers already."""

import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import TypeVar

from triptych_documents.sentences import Alignment, Span

HEAD = struct.Struct("<II")  # source tokens, target tokens
FAST = 1  # of zlib

Values = TypeVar("Values", "array[int]", "array[float]")


def pack(alignment: Alignment) -> bytes:
    """For the database: counts, spans, weights; compressed."""
    source, target = alignment.source, alignment.target
    spans = array("I", (edge for span in (*source, *target) for edge in span))
    weights = array("f", (weight for row in alignment.weights for weight in row))
    return zlib.compress(HEAD.pack(len(source), len(target)) + _native(spans).tobytes() + _native(weights).tobytes(), FAST)


def unpack(packed: bytes) -> Alignment:
    """What `pack` was given."""
    raw = zlib.decompress(packed)
    sources, targets = HEAD.unpack_from(raw)
    end = HEAD.size + 8 * (sources + targets)
    edges = _native(array("I", raw[HEAD.size : end]))
    weights = _native(array("f", raw[end:]))
    spans: Sequence[Span] = list(zip(edges[::2], edges[1::2], strict=True))
    rows = [weights[start * sources : (start + 1) * sources].tolist() for start in range(targets)]
    return Alignment(spans[:sources], spans[sources:], rows)


def _native(values: Values) -> Values:
    """Little-endian numbers from those of this machine, or the other way about; in place."""
    if sys.byteorder == "big":
        values.byteswap()
    return values
