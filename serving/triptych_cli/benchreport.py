"""Where a benchmark's report goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

if TYPE_CHECKING:
    from triptych_bench.results import Report

STDOUT = Path("-")


@dataclass(frozen=True)
class Files:
    """To be written."""

    json: Path | None
    csv: Path | None
    html: Path | None

    @classmethod
    def take(cls, values: dict[str, Any]) -> Self:
        """Of a command's values, which lose them."""
        return cls(values.pop("json_file"), values.pop("csv_file"), values.pop("html_file"))


def show(report: "Report", files: Files, quiet: bool) -> None:
    """The table, and every file that was asked for; with JSON on standard output the table goes to standard error."""
    from triptych_bench.reports import csvfile, jsonfile, table

    if not quiet:
        click.echo(table.render(report), err=files.json == STDOUT)
    if files.json == STDOUT:
        click.echo(jsonfile.dumps(report), nl=False)
    elif files.json:
        jsonfile.write(report, files.json)
    if files.csv:
        csvfile.write(report, files.csv)
    if files.html:
        from triptych_bench.reports import page

        page.write(report, files.html)
