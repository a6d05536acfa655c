"""Texts from the command line, a file or a pipe: one line, one text."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click


@dataclass(frozen=True)
class Line:
    """A text and where it stands, such as `notes.txt:12`."""

    text: str
    place: str


def read_lines(arguments: Sequence[str], file: Path | None) -> Iterator[Line]:
    """The arguments, else the lines of `file`, else those of standard input.

    Raises:
        click.ClickException: a text is empty, the file cannot be read, or a line is not UTF-8; names file and line.
        click.UsageError: there is nothing to read.
    """
    if arguments and file:
        raise click.UsageError("give texts or --input, not both")
    if arguments:
        for index, text in enumerate(arguments, start=1):
            _check_argument(index, text)
        return (Line(text, f"text {index}") for index, text in enumerate(arguments, start=1))
    if file is not None:
        return _from_file(file)
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("nothing to read: give texts, --input FILE, or a pipe")
    return _decode(sys.stdin.buffer, "standard input")


def parts(text: str) -> str | tuple[str, str]:
    """A text, or the two of a pair, which have a tab between them."""
    first, tab, second = text.partition("\t")
    return (first, second) if tab else text


def _check_argument(index: int, text: str) -> None:
    if not text.strip():
        raise click.ClickException(f"text {index}: the text is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.ClickException(f"text {index}: not UTF-8") from error


def _from_file(file: Path) -> Iterator[Line]:
    try:
        stream = open(file, "rb")  # noqa: SIM115 - now, before a model is loaded for nothing
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be read: {error.strerror}") from error
    return _close_after(stream, _decode(stream, str(file)))


def _close_after(stream: BinaryIO, lines: Iterator[Line]) -> Iterator[Line]:
    with stream:
        yield from lines


def _decode(stream: BinaryIO, name: str) -> Iterator[Line]:
    for number, raw in enumerate(stream, start=1):
        place = f"{name}:{number}"
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise click.ClickException(f"{place}: not UTF-8 ({error.reason} at byte {error.start})") from error
        yield Line(text.rstrip("\r\n"), place)
