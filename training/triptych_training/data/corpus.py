"""Sentence pairs from files: `source<TAB>target` lines or two aligned files; plain, gzip or xz."""

import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from triptych_text.utf8 import not_utf8
from triptych_training.errors import CorpusError

Item = TypeVar("Item")
Pair = tuple[str, str]
# First bytes of files that are not plain UTF-8.
UTF_16 = "it is UTF-16, which `iconv -f UTF-16 -t UTF-8` converts"
SIGNS = {
    b"\xff\xfe": UTF_16,
    b"\xfe\xff": UTF_16,
    b"\x1f\x8b": "it is compressed: let its name end in .gz",
    b"\xfd7zXZ": "it is compressed: let its name end in .xz",
    b"BZh": "it is compressed with bzip2; decompress it",
}
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def read_pairs(paths: Sequence[str]) -> list[Pair]:
    """Read sentence pairs as `iterate_pairs` does."""
    return list(iterate_pairs(paths))


def iterate_pairs(paths: Sequence[str]) -> Iterator[Pair]:
    """Read sentence pairs one by one; each path is a tab-separated file or `SOURCE::TARGET`, two files aligned line by line.

    Raises:
        CorpusError: a file is missing, empty or not UTF-8, a line is malformed, two aligned files differ in length.
    """
    for path in paths:
        source, separator, target = path.partition("::")
        found = _read_aligned(Path(source), Path(target)) if separator else _read_tabbed(Path(path))
        yield from need_items(found, f"{path}: contains no sentence pairs")


def need_items(items: Iterator[Item], problem: str) -> Iterator[Item]:
    """Yield all items; raises CorpusError, with `problem` as its message, if there are none."""
    empty = True
    for item in items:
        empty = False
        yield item
    if empty:
        raise CorpusError(problem)


def _read_tabbed(path: Path) -> Iterator[Pair]:
    for number, line in read_filled(path):
        fields = line.split("\t")
        if len(fields) != 2:
            remedy = (
                "keep two, as `cut -f1,2` does"
                if len(fields) > 2
                else "put a tab between them, or give two aligned files as SOURCE::TARGET"
            )
            raise CorpusError(f"{path}:{number}: {len(fields)} tab-separated fields, expected 2 (source, target); {remedy}")
        yield _checked(fields[0], fields[1], f"{path}:{number}")


def _read_aligned(source: Path, target: Path) -> Iterator[Pair]:
    for left, right in zip_longest(read_lines(source), read_lines(target)):
        if left is None or right is None:
            (number, _), shorter = (left, target) if right is None else (right, source)
            raise CorpusError(f"{source}::{target}: {shorter} ends after line {number - 1}, the other file goes on")
        yield _checked(left[1], right[1], f"{source}::{target}:{left[0]}")


def _checked(source: str, target: str, where: str) -> Pair:
    source, target = source.strip(), target.strip()
    if not source or not target:
        raise CorpusError(f"{where}: the {'source' if not source else 'target'} side is empty")
    return source, target


def digest(path: str) -> str:
    """Return the SHA-256 of a file, of two aligned files (`SOURCE::TARGET`), or of the names and sizes in a folder.

    Hidden files in a folder, such as macOS' `.DS_Store`, do not count: nothing is trained on them.

    Raises:
        CorpusError: it cannot be read.
    """
    total = sha256()
    for part in map(Path, path.split("::")):
        try:
            if part.is_dir():
                files = [each.relative_to(part) for each in part.rglob("*") if each.is_file()]
                shown = [path for path in files if not any(name.startswith(".") for name in path.parts)]
                inside = sorted(f"{path} {(part / path).stat().st_size}" for path in shown)
                total.update(os.fsencode("\n".join(inside)))  # names may not be UTF-8
                continue
            with open(part, "rb") as file:
                while block := file.read(1 << 20):
                    total.update(block)
        except OSError as error:
            raise CorpusError(f"{part}: cannot be read: {error.strerror or error}") from error
    return total.hexdigest()


def read_filled(path: Path) -> Iterator[tuple[int, str]]:
    """Read lines as `read_lines` does; raises CorpusError also if one is empty."""
    for number, line in read_lines(path):
        if not line.strip():
            raise CorpusError(f"{path}:{number}: the line is empty; remove it")
        yield number, line


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read numbered lines (from 1) of a UTF-8 file, compressed if its name ends in `.gz` or `.xz`, without a byte-order mark.

    Raises:
        CorpusError: the file cannot be opened, is damaged or has a line that is not UTF-8.
    """
    number = 0
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        sign = next((f"; {hint}" for sign, hint in SIGNS.items() if number == 1 and raw.startswith(sign)), "")
        raise CorpusError(f"{path}:{number}: {not_utf8(error, raw)}{sign}") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise CorpusError(f"{path}{f':{number + 1}' if number else ''}: cannot be read: {reason}") from error
