"""Files that appear whole or not at all."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

UNFINISHED = ".{}.unfinished"  # a killed process leaves it; the next run takes the same name
BLOCK = 1 << 20


def write_whole(path: Path, content: bytes | Iterable[bytes], ready: Callable[[str], None] = lambda _: None) -> None:
    """Write a file beside its place, then put it there: whoever looks finds the old content or the new.

    Args:
        path: its place; the folder is made where it is missing.
        content: whole, or in pieces.
        ready: called with the SHA-256 of all of it before it is put there.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(UNFINISHED.format(path.name))
    hashed = hashlib.sha256()
    with open(unfinished, "wb") as file:
        for piece in [content] if isinstance(content, bytes) else content:
            file.write(piece)
            hashed.update(piece)
        file.flush()
        os.fsync(file.fileno())
    ready(hashed.hexdigest())
    unfinished.replace(path)


def write_json(path: Path, values: object) -> None:
    """For people and programs; half a surrogate pair is written as JSON's escape.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(path, json.dumps(values, ensure_ascii=False, indent=2).encode(errors="backslashreplace") + b"\n")


def read_blocks(path: Path) -> Iterator[bytes]:
    """A file, which may be larger than the memory.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            yield block
