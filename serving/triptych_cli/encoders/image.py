"""`triptych classify`: classify images."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.errors import one_line
from triptych_cli.common.lines import batches, json_row, open_writer, run_each
from triptych_cli.encoders.backend import IMAGE_CLASSIFICATION, Run, open_encoder
from triptych_cli.encoders.text import label_rows, label_values
from triptych_embedded.request import BackendError, InputError, ModelChoice

BATCH = 16  # images in memory at once
STDIN = "-"
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


@click.command(name="classify")
@click.argument("photos", nargs=-1, metavar="[IMAGE|FOLDER]...")
@options.model_choice
@options.option("--top-k", type=click.IntRange(min=1), default=5, help="Labels for each image.")
@options.json_lines
def command(photos: tuple[str, ...], top_k: int, as_json: bool, **values: Any) -> None:
    """Rank the model's labels for each IMAGE, a JPEG, PNG or WebP file, or for those in a FOLDER; - is standard input.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    if not photos:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("nothing to classify: give image files, or - for standard input")
        photos = (STDIN,)
    bad = False
    opened = open_encoder(ModelChoice(**values), IMAGE_CLASSIFICATION, "classify_image_many")
    with one_line(BackendError), opened as run, open_writer() as output:
        for batch in batches(_files(photos), BATCH):
            for photo, result in zip(batch, _classify(run, batch, top_k), strict=True):
                if isinstance(result, InputError):
                    bad = True
                    click.echo(f"{_name(photo)}: {result}", err=True)
                    rows = [json_row(photo=photo, error=str(result))] if as_json else []
                elif as_json:
                    rows = [json_row(photo=photo, width=result.width, height=result.height, **label_values(result))]
                else:
                    rows = [*label_rows(_name(photo), result.labels)]
                output.writelines(f"{row}\n" for row in rows)
                output.flush()
    if bad:
        click.get_current_context().exit(1)


def _files(photos: Iterable[str]) -> Iterator[str]:
    """Yield the files, in place of a folder the images in it and below it; a folder without images stays, and is an error."""
    for photo in photos:
        found = (path for path in Path(photo).rglob("[!.]*") if path.suffix.lower() in SUFFIXES)
        yield from sorted(map(str, found)) or [photo] if photo != STDIN and Path(photo).is_dir() else [photo]


def _classify(run: Run, photos: Sequence[str], top_k: int) -> list[Any]:
    """Return a result or an InputError for each file: it cannot be read, or is not an image."""
    files = [_read(index, photo) for index, photo in enumerate(photos)]
    images = [file for file in files if isinstance(file, bytes)]
    results = iter(run_each(lambda some: run(some, top_k=top_k), images))
    return [file if isinstance(file, InputError) else next(results) for file in files]


def _read(index: int, photo: str) -> bytes | InputError:
    try:
        return sys.stdin.buffer.read() if photo == STDIN else Path(photo).read_bytes()
    except IsADirectoryError:
        return InputError(index, "a folder without JPEG, PNG or WebP files")
    except OSError as error:
        return InputError(index, f"cannot be read: {error.strerror}")


def _name(photo: str) -> str:
    return "standard input" if photo == STDIN else photo
