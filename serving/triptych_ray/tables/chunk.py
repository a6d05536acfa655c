"""A part of a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one file that are translated together.

    Args:
        path: of the file.
        number: of the chunk in its file, from 0.
        start: where its first row is: a byte of a file of lines, a row of a Parquet file.
        rows: how many.
    """

    path: str
    number: int
    start: int
    rows: int
