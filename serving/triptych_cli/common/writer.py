"""Where a command's output goes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import click


@contextmanager
def open_writer(target: Path | None = None) -> Iterator[TextIO]:
    """The file, else standard output, in UTF-8 whatever the locale.

    Raises:
        click.ClickException: it cannot be written.
    """
    try:
        with open(target or sys.stdout.fileno(), "w", encoding="utf-8", closefd=target is not None) as output:
            yield output
    except BrokenPipeError:  # whoever read has seen enough
        raise
    except OSError as error:
        raise click.ClickException(f"{target or 'standard output'}: cannot be written: {error.strerror}") from error
