"""Errors as a command shows them: one line, and an exit code that is not 0."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import click


@contextmanager
def one_line(*kinds: type[Exception]) -> Iterator[None]:
    """Turn the named exceptions into click's `Error: ...` line."""
    try:
        yield
    except kinds as error:
        raise click.ClickException(" ".join(str(error).split())) from error


def needs(module: str, extra: str) -> ModuleType:
    """Import `module`, or say which extra brings it.

    Raises:
        click.ClickException: a package that the extra installs is missing.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise click.ClickException(f'{error.name} is not installed; run: pip install "triptych[{extra}]"') from error
