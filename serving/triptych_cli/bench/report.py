"""Write the report of a benchmark."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import click

if TYPE_CHECKING:
    from triptych_bench.results import Report

STDOUT = Path("-")
Writer: TypeAlias = "Callable[[Report, Path], None]"


@dataclass(frozen=True)
class ReportFiles:
    """The files to write."""

    json: Path | None
    csv: Path | None
    html: Path | None

    @classmethod
    def take(cls, values: dict[str, Any]) -> Self:
        """Remove the files from the values of a command and return them."""
        return cls(values.pop("json_file"), values.pop("csv_file"), values.pop("html_file"))

    def check(self) -> None:
        """Check before an hour of measuring that the files can be written.

        Raises:
            click.UsageError: one cannot.
        """
        for path in (self.json, self.csv, self.html):
            if path and path != STDOUT and (why := _obstacle(path)):
                raise click.UsageError(f"{path}: {why}")


def _obstacle(path: Path) -> str:
    """Return why the file cannot be written; empty if it can."""
    try:
        if path.is_dir():
            return "is a folder"
        if path.exists() and not path.is_file():  # a pipe, a device
            return "" if os.access(path, os.W_OK) else "cannot be written"
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}"
        return "" if os.access(path.parent, os.W_OK | os.X_OK) else f"nothing can be written into {path.parent}"
    except OSError as error:
        return error.strerror or str(error)


def show(report: "Report", files: ReportFiles, quiet: bool) -> None:
    """Print the table and write the files; with JSON on standard output the table goes to standard error.

    Raises:
        click.ClickException: some of the files could not be written; the others are.
    """
    from triptych_bench.reports import csvfile, jsonfile, table

    writers: list[tuple[Writer, Path]] = []
    if not quiet:
        click.echo(table.render(report), err=files.json == STDOUT)
    if files.json == STDOUT:
        click.echo(jsonfile.dumps(report), nl=False)
    elif files.json:
        writers.append((jsonfile.write, files.json))
    if files.csv:
        writers.append((csvfile.write, files.csv))
    if files.html:
        from triptych_bench.reports import page

        writers.append((page.write, files.html))
    if problems := [problem for write, path in writers if (problem := _problem(write, report, path))]:
        raise click.ClickException("; ".join(problems))


def _problem(write: "Writer", report: "Report", path: Path) -> str:
    try:
        write(report, path)
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return ""
