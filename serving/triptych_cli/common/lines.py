"""Texts in, results out: one text per line, processed in batches."""

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

import click

from triptych_embedded.request import InputError

Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True)
class InputLine:
    """A text and where it comes from, such as `notes.txt:12`."""

    text: str
    origin: str


def read_lines(arguments: Sequence[str], file: Path | None) -> Iterator[InputLine]:
    """Read the arguments, else the lines of `file`, else those of standard input.

    Raises:
        click.ClickException: a text is empty, the file cannot be read, or a line is not UTF-8; names file and line.
        click.UsageError: there is nothing to read.
    """
    if arguments and file:
        raise click.UsageError("give texts or --input, not both")
    if arguments:
        for index, text in enumerate(arguments, start=1):
            _check_argument(index, text)
        return (InputLine(text, f"text {index}") for index, text in enumerate(arguments, start=1))
    if file is not None:
        try:
            stream = open(file, "rb")  # noqa: SIM115 - now, before a model is loaded for nothing
        except OSError as error:
            raise click.ClickException(f"{file}: cannot be read: {error.strerror}") from error
        return _close_after(stream, _decode(stream, str(file)))
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("nothing to read: give texts, --input FILE, or a pipe")
    return _decode(sys.stdin.buffer, "standard input")


def split_pair(text: str) -> str | tuple[str, str]:
    """Return a text, or the two texts of a pair, which are separated by a tab."""
    first, tab, second = text.partition("\t")
    return (first, second) if tab else text


def _check_argument(index: int, text: str) -> None:
    if not text.strip():
        raise click.ClickException(f"text {index}: the text is empty")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise click.ClickException(f"text {index}: not UTF-8") from error


def _close_after(stream: BinaryIO, lines: Iterator[InputLine]) -> Iterator[InputLine]:
    with stream:
        yield from lines


def _decode(stream: BinaryIO, name: str) -> Iterator[InputLine]:
    for number, raw in enumerate(stream, start=1):
        origin = f"{name}:{number}"
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise click.ClickException(f"{origin}: not UTF-8 ({error.reason} at byte {error.start})") from error
        yield InputLine(text.rstrip("\r\n"), origin)


def batches(inputs: Iterable[Input], size: int) -> Iterator[list[Input]]:
    """Yield lists of at most `size` inputs, in order."""
    remaining = iter(inputs)
    while batch := list(islice(remaining, size)):
        yield batch


def run_each(run: Callable[[Sequence[Input]], Sequence[Result]], inputs: Sequence[Input]) -> list[Result | InputError]:
    """Return the result or the error of each input: run all at once, then one by one if one of them is bad."""
    if not inputs:
        return []
    try:
        return list(run(inputs))
    except InputError as error:
        if len(inputs) == 1:
            return [error]
    return [outcome for each in inputs for outcome in run_each(run, [each])]


@contextmanager
def open_writer(target: Path | None = None) -> Iterator[TextIO]:
    """Open the file, else standard output, in UTF-8 whatever the locale. Raises click.ClickException: it cannot be written."""
    try:
        with open(target or sys.stdout.fileno(), "w", encoding="utf-8", closefd=target is not None) as output:
            yield output
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise click.ClickException(f"{target or 'standard output'}: cannot be written: {error.strerror}") from error


def json_row(**values: object) -> str:
    """Return one line of JSON."""
    return json.dumps(values, ensure_ascii=False)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows with aligned columns; long cells are wrapped, so that the table fits the terminal, or 80 columns."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(part) for cell in column for part in re.split(r"(?<=-)| ", cell)) for column in columns]
    for _ in range(sum(widths) + 2 * len(widths) - 2 - shutil.get_terminal_size().columns):
        widest = max(range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index]))
        widths[widest] = max(widths[widest] - 1, least[widest])
    for row in rows:
        cells = [textwrap.wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            click.echo("  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip())


def score_text(score: float) -> str:
    """Format a probability for users: "0.9132", or "1.2e-06" if it is small."""
    return f"{score:.4f}" if score >= 0.0001 or score == 0 else f"{score:.1e}"


def score_number(score: float) -> float:
    """Round for JSON to the digits that a float32 has."""
    return float(f"{score:.7g}")
