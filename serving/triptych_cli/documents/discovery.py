"""Which documents a job has, and where their translations go."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import click

from triptych_documents.errors import UnknownFormatError
from triptych_documents.format import FormatInfo, find_format

HIDDEN = "."  # files and folders whose names begin so are left alone


@dataclass(frozen=True)
class Found:
    """A file that a job was given."""

    source: Path
    name: str  # of its translation below the output folder, with forward slashes
    kind: FormatInfo | None  # None: no format is known that reads it

    @property
    def size(self) -> int:
        """Bytes; 0 of what cannot be looked at."""
        try:
            return self.source.stat().st_size
        except OSError:
            return 0


@dataclass(frozen=True)
class Selection:
    """Which files of folders are meant. Patterns as of a shell, where `*` stands for anything, slashes too.

    Args:
        include: match a file's name or its path below the folder; without any, all do.
        exclude: match what is left out all the same.
        format: read all of them so, whatever their names.
    """

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    format: str = ""

    def takes(self, name: str) -> bool:
        """Whether a file of a folder is meant."""
        return (not self.include or _matches(name, self.include)) and not _matches(name, self.exclude)


def discover(
    paths: Sequence[Path], out: Path, selection: Selection, takes_others: bool = False, beside: str = ""
) -> list[Found]:
    """Files as they are named, folders with all that is below them, in order of their names.

    Args:
        paths: that were named.
        out: where translations go.
        selection: which files of folders are meant, and what they are.
        takes_others: files that no format reads are written, too.
        beside: each document gets a second file, with this behind its name.

    Raises:
        UnknownFormatError: no format reads a file that was named, and others are not taken.
        click.UsageError: two files would be written to one place, or a translation would replace its source.
    """
    for path in paths:
        if not path.is_dir() and not takes_others:
            find_format(selection.format, str(path))
    found = [each for path in paths for each in _walk(path, out, selection)]
    taken: dict[str, Path] = {}
    for each in found:
        for name in _written(each, takes_others, beside):
            other = taken.setdefault(name, each.source)
            if not _same(other, each.source):
                raise click.UsageError(f"{other} and {each.source} would both become {out / name}")
            if _same(out / name, each.source):
                raise click.UsageError(f"{each.source} would be replaced by its own translation; choose another --out")
    unique = {each.name if each.name in taken else str(each.source): each for each in found}
    return list(unique.values())


def _written(found: Found, takes_others: bool, beside: str) -> Iterator[str]:
    """Names of files below the output folder."""
    if found.kind is not None or takes_others:
        yield found.name
    if found.kind is not None and beside:
        yield found.name + beside


def _walk(path: Path, out: Path, selection: Selection) -> Iterator[Found]:
    if not path.is_dir():
        yield Found(path, path.name, _kind(path, selection.format))
        return
    for folder, folders, files in os.walk(path):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN) and not _same(here / name, out))
        for name in sorted(files):
            file = here / name
            below = file.relative_to(path).as_posix()
            if not name.startswith(HIDDEN) and selection.takes(below):
                yield Found(file, below, _kind(file, selection.format))


def _kind(path: Path, name: str) -> FormatInfo | None:
    try:
        return find_format(name, str(path))
    except UnknownFormatError:
        return None


def _matches(name: str, patterns: Sequence[str]) -> bool:
    last = name.rpartition("/")[2]
    return any(fnmatchcase(name, pattern) or fnmatchcase(last, pattern) for pattern in patterns)


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))
