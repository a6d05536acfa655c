"""`--engine ray`: tables of texts on a cluster."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from triptych.version import __version__
from triptych_cli.common.errors import needs, one_line
from triptych_cli.documents.discovery import Found
from triptych_cli.documents.progress import Progress
from triptych_cli.documents.writing import write_json
from triptych_documents.rules import TranslationRules
from triptych_embedded.request import Request

if TYPE_CHECKING:
    from triptych_cli.documents.flags import Running
    from triptych_ray.tables.job import Progress as Done
    from triptych_ray.tables.job import TableReport
    from triptych_ray.tables.options import TableOptions

LOCAL, RAY = "local", "ray"
# Flags of jobs in this process.
ONLY_LOCAL = {"server", "memories", "journal", "bilingual", "copy_others", "fail_fast", "dry_run", "concurrency"}
ONLY_LOCAL |= {"server_wait_secs", "encoding", "header", "keys", "skip_keys", "wrapped", "retranslate", "mark_fuzzy"}
SHOWN = 20  # findings on the terminal


@dataclass(frozen=True)
class Cluster:
    """How a job runs on a cluster; as the flags of these names."""

    output_column: str
    rows: int
    workers: int
    worker_cpus: int
    ray_address: str

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Cluster":
        """Out of a command's values."""
        return cls(**{field.name: values.pop(field.name) for field in fields(cls)})


def check_engine(engine: str) -> None:
    """Raises click.UsageError: a flag of the command line has no effect with this engine."""
    context = click.get_current_context()
    unused = {field.name for field in fields(Cluster)} if engine == LOCAL else ONLY_LOCAL
    for parameter in context.command.params:
        given = parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if given and parameter.name in unused:
            other = RAY if engine == LOCAL else LOCAL
            raise click.UsageError(f"{parameter.opts[0]} has no effect with --engine {engine}; it is for --engine {other}")


@dataclass(frozen=True)
class Texts:
    """What of a table is translated, and how."""

    columns: Sequence[str]
    format: str  # each text is a document of this kind
    rules: TranslationRules


def tables_of(found: Sequence[Found], named: Sequence[Path]) -> list[Found]:
    """The tables among files of folders; files that were named are all taken for tables.

    Raises:
        click.ClickException: Ray is not installed.
    """
    needs("ray.data", "ray")
    from triptych_ray.tables.files import ENDINGS

    return [each for each in found if each.source in named or each.source.suffix.lower() in ENDINGS]


def run_tables(found: Sequence[Found], out: Path, request: Request, texts: Texts, cluster: Cluster, running: "Running") -> int:
    """Returns the exit code.

    Args:
        found: input files.
        out: folder of the output files.
        request: which model, and how it decodes.
        texts: what of them is translated.
        cluster: how the job runs there.
        running: `overwrite`, `report` and `progress` are looked at.

    Raises:
        click.UsageError: there is more than one column.
        DocumentError: the job cannot be done at all.
        ClusterError: the cluster failed.
    """
    from triptych_ray.tables.job import run

    options = _table_options(found, out, request, texts, cluster, running.overwrite)
    shows = sys.stderr.isatty() if running.progress is None else running.progress
    size = sum(each.size for each in found)
    progress = Progress(sys.stderr if shows else None, len(found), size)
    try:
        report = run(options, _showing(progress, size))
    finally:
        progress.clear()
    return _tell(report, running.report)


def _table_options(
    found: Sequence[Found], out: Path, request: Request, texts: Texts, cluster: Cluster, overwrite: bool
) -> "TableOptions":
    from triptych_ray.tables.options import TableOptions

    if len(texts.columns) > 1:
        raise click.UsageError(f"--column is given {len(texts.columns)} times; --engine ray translates one column")
    with one_line(ValueError):
        return TableOptions(
            files=tuple((str(each.source.absolute()), each.name) for each in found),
            out=str(out.absolute()),
            column=texts.columns[0],
            output_column=cluster.output_column,
            format=texts.format,
            rows=cluster.rows,
            workers=cluster.workers,
            cpus=cluster.worker_cpus,
            address=cluster.ray_address,
            overwrite=overwrite,
            rules=texts.rules,
            request=replace(request, models=request.models.absolute() if request.models else None),
        )


def _showing(progress: Progress, size: int) -> "Callable[[Done], None]":
    complete = 0

    def show(done: "Done") -> None:
        nonlocal complete
        for _ in range(done.files - complete):
            progress.finish(0)
        complete = done.files
        progress.show(done.rows, size * done.rows / max(1, done.of_rows))

    return show


def _tell(report: "TableReport", path: Path | None) -> int:
    """Write and show it; returns the exit code."""
    findings = [(file, finding) for file, found in report.findings.items() for finding in found]
    errors = [(file, finding) for file, finding in findings if finding["severity"] == "error"]
    if path:
        told = {"version": 1, "tool": f"triptych {__version__}", "complete": not report.failed, **asdict(report)}
        write_json(path, told)
    for file, problems in report.failed.items():
        click.echo(f"{file}: {problems[0]}", err=True)
    for file, finding in errors[:SHOWN]:
        click.echo(f"{file}: chunk {finding['chunk']}, row {finding['row']}: {finding['message']}", err=True)
    if len(errors) > SHOWN:
        click.echo(f"... and {len(errors) - SHOWN:,} more; --report has them all", err=True)
    click.echo(f"files: {len(report.files):,} translated, {len(report.skipped):,} done before, {len(report.failed):,} failed")
    click.echo(f"rows: {report.rows:,} translated; findings: {len(findings):,}, errors: {len(errors):,}")
    return int(bool(report.failed or errors))
