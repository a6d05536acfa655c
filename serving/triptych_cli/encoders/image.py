"""`triptych classify`: classify images."""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.lines import (
    batches,
    check_pipe,
    fail_fast,
    json_row,
    open_writer,
    reported_failures,
    run_valid,
    standard_input,
)
from triptych_cli.encoders.backend import IMAGE_CLASSIFICATION, open_encoder
from triptych_cli.encoders.text import label_rows, label_values
from triptych_embedded.request import InputError, ModelChoice

BATCH = 16  # images in memory at once
STDIN = "-"
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


@click.command(name="classify")
@click.argument("photos", nargs=-1, metavar="[IMAGE|FOLDER]...")
@options.model_choice
@options.option("--top-k", type=click.IntRange(min=1), default=5, help="Labels for each image.")
@options.json_lines
@fail_fast
def command(photos: tuple[str, ...], top_k: int, as_json: bool, fail_fast: bool, **values: Any) -> None:
    """Rank the model's labels for each IMAGE, a JPEG, PNG or WebP file, or for those in a FOLDER; - is standard input.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model. That one knows ten classes:
    airplane, automobile, bird, cat, deer, dog, frog, horse, ship and truck. Whatever the image shows, it answers with these.
    """
    if not photos:
        check_pipe("nothing to classify: give image files, or - for standard input")
        photos = (STDIN,)
    choice = ModelChoice(**values)
    opened = open_encoder(choice, IMAGE_CLASSIFICATION, "classify_image_many")
    answered = False
    with reported_failures(fail_fast) as report, opened as run, open_writer() as output:
        for batch in batches(_files(photos), BATCH):
            images = [_read(index, photo) for index, photo in enumerate(batch)]
            for photo, result in zip(batch, run_valid(partial(run, top_k=top_k), images), strict=True):
                if isinstance(result, InputError):
                    report(_name(photo), result)
                    rows = [json_row(photo=photo, error=str(result))] if as_json else []
                elif as_json:
                    rows = [json_row(photo=photo, width=result.width, height=result.height, **label_values(result))]
                else:
                    rows = [*label_rows(_name(photo), result.labels)]
                answered = answered or not isinstance(result, InputError)
                output.writelines(f"{row}\n" for row in rows)
                output.flush()
        if answered and choice.models is None and not as_json and not options.asks_server():
            click.echo("the embedded model knows ten classes only; triptych classify --help names them", err=True)


def _files(photos: Iterable[str]) -> Iterator[str]:
    """Yield the files; in place of a folder, the visible images in and below it. A folder without images stays: an error."""
    for photo in photos:
        found = (path for path in Path(photo).rglob("*") if path.suffix.lower() in SUFFIXES)
        shown = (path for path in found if not any(part.startswith(".") for part in path.relative_to(photo).parts))
        is_folder = photo != STDIN and os.path.isdir(photo)  # noqa: PTH112 - pathlib's raises errors, such as EACCES
        yield from sorted(map(str, shown)) or [photo] if is_folder else [photo]


def _read(index: int, photo: str) -> bytes | InputError:
    try:
        return standard_input().read() if photo == STDIN else Path(photo).read_bytes()
    except IsADirectoryError:
        return InputError(index, "a folder without JPEG, PNG or WebP files")
    except OSError as error:
        return InputError(index, f"cannot be read: {error.strerror}")


def _name(photo: str) -> str:
    return "standard input" if photo == STDIN else photo
