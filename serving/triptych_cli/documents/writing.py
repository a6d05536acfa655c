"""Files that appear whole or not at all."""

import os
from collections.abc import Iterable
from pathlib import Path

UNFINISHED = ".{}.unfinished"  # a killed process leaves it; the next run takes the same name


def write_whole(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a file beside its place, then put it there: whoever looks finds the old content or the new.

    Args:
        path: its place; the folder is made where it is missing.
        content: whole, or in pieces.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(UNFINISHED.format(path.name))
    with open(unfinished, "wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
