"""Texts in, results out: one text per line, processed in batches."""

import json
import os
import re
import select
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO, TypeVar, cast

import click

from triptych_embedded.request import InputError
from triptych_text.utf8 import not_utf8

if TYPE_CHECKING:
    from io import BufferedReader

IS_READ = "triptych.standard_input"  # in the meta of a command's context
CHUNK = 1 << 16  # bytes
ESCAPED = "backslashreplace"  # names of files that are not UTF-8 are shown with escapes, which JSON has too

Input = TypeVar("Input")
Result = TypeVar("Result")


@dataclass(frozen=True)
class InputLine:
    """A text and where it comes from, such as `notes.txt:12`."""

    text: str
    origin: str
    problem: str = ""  # why the line cannot be read
    size: int = 0  # bytes of the line in its file
    ends_batch: bool = False  # nothing waits behind it: a program that writes line by line may wait for the result

    @property
    def is_blank(self) -> bool:
        """True if there is nothing to translate, and no problem."""
        return not self.text.strip() and not self.problem


def read_lines(arguments: Sequence[str], file: Path | None) -> Iterator[InputLine]:
    """Read the arguments, else the lines of `file`, else those of standard input, which `-` as the only argument also names.

    A line that is not UTF-8 has a problem.

    Raises:
        click.ClickException: an argument is empty or not UTF-8, or the file cannot be read.
        click.UsageError: there is nothing to read.
    """
    if arguments and file:
        raise click.UsageError("give texts or --input, not both")
    if list(arguments) == ["-"]:
        return _decode(standard_input(), "standard input")
    if arguments:
        for index, text in enumerate(arguments, start=1):
            _check_argument(index, text)
        return (InputLine(text, f"text {index}") for index, text in enumerate(arguments, start=1))
    if file is not None:
        with _readable(str(file)):
            stream = open(file, "rb")  # noqa: SIM115 - now, before a model is loaded for nothing
        return _decode(stream, str(file))
    check_pipe("nothing to read: give texts, --input FILE, or a pipe")
    return _decode(standard_input(), "standard input")


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Raise errors of the operating system as click.ClickException, which names the file."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{name}: cannot be read: {error.strerror}") from error


def standard_input() -> BinaryIO:
    """Return standard input.

    Raises:
        click.ClickException: it is closed.
        click.UsageError: the command reads it for something else already.
    """
    if sys.stdin is None:
        raise click.ClickException("standard input is closed; give it a file or a pipe")
    if context := click.get_current_context(silent=True):
        if context.meta.get(IS_READ):
            raise click.UsageError("standard input would be read twice; name a file for one of the two")
        context.meta[IS_READ] = True
    return sys.stdin.buffer


def read_binary(name: str) -> bytes:
    """Read a file, or standard input if the name is `-`. Raises click.ClickException: it cannot be read."""
    with _readable(name):
        return standard_input().read() if name == "-" else Path(name).read_bytes()


def read_text(name: str) -> str:
    """Read a text as `read_binary`, with lines that end with a newline. Raises click.ClickException: it is not UTF-8."""
    return decode(read_binary(name), "standard input" if name == "-" else name).replace("\r\n", "\n")


def decode(raw: bytes, origin: str) -> str:
    """Decode UTF-8, without a byte order mark. Raises click.ClickException: it is not UTF-8; names the origin."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{origin}: {not_utf8(error, raw)}") from error


def check_pipe(problem: str) -> None:
    """Check that standard input is not a terminal. Raises click.UsageError: it is, or there is none."""
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError(problem)


def split_pair(text: str) -> str | tuple[str, str]:
    """Return a text, or the two texts of a pair, which are separated by a tab."""
    first, tab, second = text.partition("\t")
    return (first, second) if tab else text


def _check_argument(index: int, text: str) -> None:
    if not text.strip():
        raise click.ClickException(f"text {index}: the text is empty")
    decode(text.encode(errors="surrogatepass"), f"text {index}")


def _decode(stream: BinaryIO, name: str) -> Iterator[InputLine]:
    with stream, _readable(name):
        for number, (raw, ends_batch) in enumerate(_split(stream), start=1):
            origin = f"{name}:{number}"
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield InputLine(text.rstrip("\r\n"), origin, "", len(raw), ends_batch)
            except UnicodeDecodeError as error:
                yield InputLine("", origin, not_utf8(error, raw), len(raw), ends_batch)


def _split(stream: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield the lines, and of each whether nothing can be read behind it for now."""
    begun: list[bytes] = []  # parts of a line
    while chunk := cast("BufferedReader", stream).read1(CHUNK):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            lines = [b"".join(begun), *others[:-1]]
            begun = [others[-1]]
            yield from ((line + b"\n", False) for line in lines[:-1])
            yield lines[-1] + b"\n", _is_idle(stream)
    if line := b"".join(begun):
        yield line, True


def _is_idle(stream: BinaryIO) -> bool:
    """Return True if a pipe is open and empty."""
    try:
        return not select.select([stream], [], [], 0)[0]
    except (OSError, ValueError):  # no file, or a system that asks sockets only
        return False


def batches(inputs: Iterable[Input], size: int) -> Iterator[list[Input]]:
    """Yield lists of at most `size` inputs, in order. An `InputLine` may end one."""
    batch: list[Input] = []
    for each in inputs:
        batch.append(each)
        if len(batch) == size or (isinstance(each, InputLine) and each.ends_batch):
            yield batch
            batch = []
    if batch:
        yield batch


def run_each(run: Callable[[Sequence[Input]], Sequence[Result]], inputs: Sequence[Input]) -> list[Result | InputError]:
    """Return the result or the error of each input: run all at once, and again without an input that is bad."""
    outcomes: dict[int, Result | InputError] = {}
    left = list(range(len(inputs)))
    while left:
        try:
            outcomes |= dict(zip(left, run([inputs[index] for index in left]), strict=True))
            break
        except InputError as error:
            outcomes[left.pop(error.index)] = error
    return [outcomes[index] for index in range(len(inputs))]


def run_valid(
    run: Callable[[Sequence[Input]], Sequence[Result | InputError]], inputs: Sequence[Input | InputError]
) -> list[Result | InputError]:
    """Run the inputs that are not errors; return their outcomes and the errors in order."""
    valid = [each for each in inputs if not isinstance(each, InputError)]
    outcomes = iter(run(valid) if valid else ())
    return [each if isinstance(each, InputError) else next(outcomes) for each in inputs]


fail_fast = click.option("--fail-fast", is_flag=True, help="Stop at the first input that cannot be used.")


@contextmanager
def reported_failures(fail_fast: bool) -> Iterator[Callable[[str, object], None]]:
    """Yield a function that reports the origin and the problem of a bad input on standard error. At the end the exit code is 1.

    With `fail_fast` it raises click.ClickException instead.
    """
    failures = 0

    def report(origin: str, problem: object) -> None:
        nonlocal failures
        if fail_fast:
            raise click.ClickException(f"{origin}: {problem}")
        click.echo(f"{origin}: {problem}", err=True)
        failures += 1

    yield report
    if failures:
        click.get_current_context().exit(1)


def check_stdout() -> None:
    """Check that there is standard output. Raises click.ClickException: it is closed."""
    if sys.stdout is None:
        raise click.ClickException("standard output is closed; redirect it to a file, or to /dev/null")


@contextmanager
def open_writer(target: Path | None = None, resume: bool | None = None) -> Iterator[TextIO]:
    """Open the file, else standard output, in UTF-8 whatever the locale.

    The file is written under the name of `unfinished` and renamed at the end. After a failure that file stays, or is removed if
    `resume` is None: the command cannot continue it.

    Raises:
        click.ClickException: it is closed or cannot be written.
    """
    if target is None:
        check_stdout()
    part = unfinished(target) if target else None
    path = part or target
    try:
        file = path or sys.stdout.fileno()
        with open(file, "a" if resume else "w", encoding="utf-8", errors=ESCAPED, closefd=path is not None) as output:
            yield output
        if part and target:
            part.replace(target.resolve())
    except BrokenPipeError:  # the reader has seen enough
        raise
    except BaseException as error:
        if part and os.access(part, os.F_OK):  # no error if its name is too long
            if resume is not None and part.stat().st_size:
                click.echo(f"what is done is kept in {part}; the same command with --resume continues", err=True)
            else:
                part.unlink()
        if not isinstance(error, OSError):
            raise
        raise click.ClickException(f"{target or 'standard output'}: cannot be written: {error.strerror}") from error


def unfinished(target: Path) -> Path | None:
    """Return the name of a file while it is written, beside the file that a link leads to; None for a pipe or a device.

    A killed process leaves that file behind.
    """
    if target.exists() and not target.is_file():
        return None
    target = target.resolve()
    return target.with_name(f".{target.name}.unfinished")


def count_finished(part: Path) -> int:
    """Return the number of whole lines of an unfinished file, and remove what follows them."""
    count = end = 0
    with open(part, "r+b") as file:
        for line in file:
            if line.endswith(b"\n"):
                count, end = count + 1, end + len(line)
        file.truncate(end)
    return count


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
    """Format a probability, cosine or logit for users: "0.9132", "-2.7183", or "1.2e-06" if it is near 0."""
    return f"{score:.4f}" if abs(score) >= 0.0001 or score == 0 else f"{score:.1e}"


def score_number(score: float) -> float:
    """Round for JSON to the digits that a float32 has."""
    return float(f"{score:.7g}")
