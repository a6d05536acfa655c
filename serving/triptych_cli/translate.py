"""`triptych translate`: text, a file or a pipe."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

import click

from triptych_cli import options
from triptych_cli.backend import Backend, BackendError, InputError, Request, Translated, open_backend
from triptych_cli.failure import one_line
from triptych_cli.lines import Line, read_lines
from triptych_cli.writer import open_writer


@click.command(name="translate")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("-i", "--input", "source", type=click.Path(path_type=Path, dir_okay=False), help="Read lines from this file.")
@click.option("-o", "--output", "target", type=click.Path(path_type=Path, dir_okay=False), help="Write lines to this file.")
@options.models
@options.model
@options.server
@options.precision
@options.option("--source-language", default="", help="Such as en.  [default: the model's only one]", show_default=False)
@options.option("--target-language", default="", help="Such as de.  [default: the model's only one]", show_default=False)
@options.option(
    "--max-length",
    type=click.IntRange(min=1),
    default=None,
    help="Most tokens of a translation.  [default: the model's]",
    show_default=False,
)
@click.option("--stream", is_flag=True, help="Show text while it is decoded.")
def command(texts: tuple[str, ...], source: Path | None, target: Path | None, stream: bool, **asked: str) -> None:
    """Translate each TEXT, or each line of a file or a pipe: one line in, one line out.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    if source and target and target.exists() and source.exists() and target.samefile(source):
        raise click.UsageError("--output is the --input file, which would be emptied before it is read")
    lines = read_lines(texts, source)
    request = Request(**asked)  # type: ignore[arg-type]
    with one_line(BackendError), open_backend(request) as backend, open_writer(target) as output:
        for line, translated in _stream(backend, lines, output) if stream else _translate(backend, lines, output):
            if translated.truncated:
                click.echo(f"{line.place}: the translation reached its length limit and is incomplete", err=True)


def _translate(backend: Backend, lines: Iterable[Line], output: TextIO) -> Iterator[tuple[Line, Translated]]:
    """Translate batch after batch; blank lines stay blank."""
    remaining = iter(lines)
    while batch := list(islice(remaining, backend.batch)):
        full = [line for line in batch if line.text.strip()]
        try:
            results = iter(backend.translate([line.text for line in full]) if full else [])
        except InputError as error:
            raise click.ClickException(f"{full[error.index].place}: {error}") from error
        for line in batch:
            translated = next(results) if line.text.strip() else Translated("", False)
            output.write(_one_line(translated.text) + "\n")
            yield line, translated
        output.flush()


def _stream(backend: Backend, lines: Iterable[Line], output: TextIO) -> Iterator[tuple[Line, Translated]]:
    for line in lines:
        try:
            for event in backend.stream(line.text) if line.text.strip() else ():
                if isinstance(event, Translated):
                    yield line, event
                else:
                    output.write(_one_line(event))
                    output.flush()
        except InputError as error:
            raise click.ClickException(f"{line.place}: {error}") from error
        output.write("\n")


def _one_line(text: str) -> str:
    """One line in, one line out, whatever the model says."""
    return text.replace("\r", " ").replace("\n", " ")
