"""Find the documents of a job, and decide where their translations go."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import click

from triptych_documents.errors import UnknownFormatError
from triptych_documents.format import FormatInfo, find_format

STDOUT = "-"
HIDDEN = "."  # files and folders whose names start with it are skipped


@dataclass(frozen=True)
class SourceFile:
    """An input file of a job."""

    source: Path
    name: str  # of its translation below the output folder, with forward slashes
    format: FormatInfo | None  # None: no known format

    @property
    def size(self) -> int:
        """Size in bytes; 0 if the file is not accessible."""
        try:
            return self.source.stat().st_size
        except OSError:
            return 0

    @property
    def format_name(self) -> str:
        """Name of the format; empty if there is none."""
        return self.format.name if self.format else ""


@dataclass(frozen=True)
class Selection:
    """Choice of the files in folders that are translated. In patterns `*` matches anything, including slashes."""

    include: Sequence[str] = ()  # patterns for a file's name or its path below the folder; empty matches all
    exclude: Sequence[str] = ()  # patterns of files to leave out
    format: str = ""  # read all files in this format, whatever their names

    def takes(self, name: str) -> bool:
        """Tell whether a file of a folder is selected."""
        return (not self.include or _matches(name, self.include)) and not _matches(name, self.exclude)


def discover(
    paths: Sequence[Path], out: Path, selection: Selection, takes_others: bool = False, beside: str = "", target_name: str = ""
) -> list[SourceFile]:
    """List files as they are named, and folders with everything below them, sorted by name.

    Args:
        takes_others: files without a known format are written too.
        beside: suffix of the second file that each document gets; empty for none.
        target_name: name of the translation of a file; empty: its own.

    Raises:
        UnknownFormatError: a file of `paths` has no known format, and others are not taken.
        click.UsageError: two files would be written to one place, or a translation would replace its source.
    """
    for path in paths:
        if not path.is_dir() and not takes_others:
            find_format(selection.format, str(path))
    found = [each for path in paths for each in _walk(path, out, selection, target_name)]
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


def _written(found: SourceFile, takes_others: bool, beside: str) -> Iterator[str]:
    """Yield the names of its output files below the output folder."""
    if found.format is not None or takes_others:
        yield found.name
    if found.format is not None and beside:
        yield found.name + beside


def destination(paths: Sequence[Path], out: Path, format_name: str) -> tuple[Path, str]:
    """Return the output folder, and the name of the translation if `out` is a file: of one document, with a document's suffix.

    Raises:
        click.UsageError: `out` is a file or standard output, but there may be several documents, or it has another format.
    """
    one = len(paths) == 1 and not paths[0].is_dir()
    own, other = _format(paths[0], format_name), _format(out, "")
    keeps_suffix = one and out.suffix.lower() == paths[0].suffix.lower() != ""
    is_file = out.is_file() or str(out) == STDOUT or (not out.is_dir() and (other is not None or keeps_suffix))
    if is_file and not one:
        raise click.UsageError(f"--out {out} takes the translation of one document; name a folder for several")
    if is_file and other not in (None, own) and not keeps_suffix:
        raise click.UsageError(f"--out {out} is named as another format than {paths[0]}, and a translation keeps its format")
    return (out.parent, out.name) if is_file else (out, "")


def _walk(path: Path, out: Path, selection: Selection, target_name: str) -> Iterator[SourceFile]:
    if not path.is_dir():
        yield SourceFile(path, target_name or path.name, _format(path, selection.format))
        return
    for folder, folders, files in os.walk(path):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith(HIDDEN) and not _same(here / name, out))
        for link in filter(Path.is_symlink, map(here.joinpath, folders)):
            click.echo(f"{link}: left out, it is a link to a folder", err=True)
        for name in sorted(files):
            file = here / name
            below = file.relative_to(path).as_posix()
            if name.startswith(HIDDEN) or not selection.takes(below):
                continue
            if file.exists() and not file.is_file():  # to read a pipe may take forever
                click.echo(f"{file}: left out, it is not a plain file", err=True)
            else:
                found = _format(file, selection.format)
                is_named = found is None or bool(selection.format) or found.may_be(file)
                yield SourceFile(file, below, found if is_named else None)


def _format(path: Path, name: str) -> FormatInfo | None:
    try:
        return find_format(name, str(path))
    except UnknownFormatError:
        return None


def _matches(name: str, patterns: Sequence[str]) -> bool:
    last = name.rpartition("/")[2]
    return any(fnmatchcase(name, pattern) or fnmatchcase(last, pattern) for pattern in patterns)


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))
