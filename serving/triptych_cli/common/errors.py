"""Errors as a command shows them: one line, and an exit code other than 0."""

import importlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import click

from triptych.extras import install_command

SIGNALLED = 128  # plus the signal's number: an exit code, as shells have it
INTERRUPTED = SIGNALLED + signal.SIGINT  # exit code after Ctrl-C


@contextmanager
def one_line(*kinds: type[Exception]) -> Iterator[None]:
    """Turn exceptions of these types into click's `Error: ...` line."""
    try:
        yield
    except kinds as error:
        raise click.ClickException(" ".join(str(error).split())) from error


def needs(module: str, extra: str) -> ModuleType:
    """Import `module`, or name the extra that installs what is missing.

    Raises:
        click.ClickException: a package of the extra is missing.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is not installed; run: {install_command(extra)}") from error
