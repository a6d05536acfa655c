"""`triptych classify`: what is on a photo."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import click

from triptych_cli.common import options
from triptych_cli.common.batch import batches, run_each
from triptych_cli.common.errors import one_line
from triptych_cli.common.writer import open_writer
from triptych_cli.encoders.backends import ClassifiedImage, Encoders, open_encoders
from triptych_cli.encoders.texts import json_row, label_rows, label_values
from triptych_embedded.request import BackendError, InputError, Place

BATCH = 16  # photos held at once
STDIN = "-"


@click.command(name="classify")
@click.argument("photos", nargs=-1, metavar="[PHOTO]...")
@options.models
@options.model
@options.server
@options.running
@options.option("--top-k", type=click.IntRange(min=1), default=5, help="Labels of each photo.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(photos: tuple[str, ...], top_k: int, as_json: bool, **asked: str) -> None:
    """Rank the model's labels for each PHOTO, a JPEG, PNG or WebP file; - is standard input.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    if not photos:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("nothing to classify: give photos, or - for standard input")
        photos = (STDIN,)
    bad = False
    with one_line(BackendError), open_encoders(Place(**asked), "image-classification") as models, open_writer() as output:  # type: ignore[arg-type]
        for batch in batches(photos, BATCH):
            for photo, result in zip(batch, _classify(models, batch, top_k), strict=True):
                _write(output, _json(photo, result) if as_json else _table(photo, result))
                if isinstance(result, InputError):
                    bad = True
                    click.echo(f"{_name(photo)}: {result}", err=True)
    if bad:
        click.get_current_context().exit(1)


def _classify(models: Encoders, photos: Sequence[str], top_k: int) -> "list[ClassifiedImage | InputError]":
    """A file that cannot be read has its own error, as one that is no image."""
    files = [_read(index, photo) for index, photo in enumerate(photos)]
    images = [file for file in files if isinstance(file, bytes)]
    results = iter(run_each(lambda some: models.classify_images(some, top_k), images))
    return [file if isinstance(file, InputError) else next(results) for file in files]


def _read(index: int, photo: str) -> bytes | InputError:
    try:
        return sys.stdin.buffer.read() if photo == STDIN else Path(photo).read_bytes()
    except OSError as error:
        return InputError(index, f"cannot be read: {error.strerror}")


def _name(photo: str) -> str:
    return "standard input" if photo == STDIN else photo


def _write(output: TextIO, rows: Iterator[str]) -> None:
    output.writelines(f"{row}\n" for row in rows)
    output.flush()


def _table(photo: str, result: "ClassifiedImage | InputError") -> Iterator[str]:
    return iter(()) if isinstance(result, InputError) else label_rows(_name(photo), result.labels)


def _json(photo: str, result: "ClassifiedImage | InputError") -> Iterator[str]:
    if isinstance(result, InputError):
        yield json_row(photo=photo, error=str(result))
    else:
        yield json_row(photo=photo, width=result.width, height=result.height, labels=label_values(result.labels))
