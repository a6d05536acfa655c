"""`--engine ray`: translate tables of texts on a cluster."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triptych.version import __version__
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.options import is_given
from triptych_cli.documents.discovery import SourceFile
from triptych_cli.documents.files import write_json
from triptych_cli.documents.progress import ProgressLine
from triptych_documents.rules import TranslationRules
from triptych_embedded.request import TranslationRequest

if TYPE_CHECKING:
    from triptych_cli.documents.flags import JobFlags
    from triptych_ray.tables.job import TableProgress, TableReport
    from triptych_ray.tables.options import TableOptions

LOCAL, RAY = "local", "ray"
# Flags of jobs in this process.
ONLY_LOCAL = {"server", "memories", "journal", "bilingual", "copy_others", "fail_fast", "dry_run", "concurrency"}
ONLY_LOCAL |= {"server_wait_secs", "encoding", "header", "keys", "skip_keys", "wrapped", "retranslate", "mark_fuzzy"}


@dataclass(frozen=True)
class ClusterFlags:
    """How a job runs on a cluster; the flags of these names."""

    output_column: str
    rows: int
    workers: int
    worker_cpus: int
    ray_address: str

    @classmethod
    def take(cls, values: dict[str, Any]) -> "ClusterFlags":
        """Remove the flags from the values of a command and return them."""
        return cls(**{field.name: values.pop(field.name) for field in fields(cls)})


def check_engine(engine: str) -> None:
    """Raise click.UsageError if a flag of the command line has no effect with this engine."""
    unused = {field.name for field in fields(ClusterFlags)} if engine == LOCAL else ONLY_LOCAL
    for parameter in click.get_current_context().command.params:
        if parameter.name in unused and is_given(parameter.name):
            other = RAY if engine == LOCAL else LOCAL
            raise click.UsageError(f"{parameter.opts[0]} has no effect with --engine {engine}; it is for --engine {other}")


@dataclass(frozen=True)
class TableTexts:
    """Which texts of a table to translate, and how."""

    columns: Sequence[str]
    format: str  # each text is a document of this format
    rules: TranslationRules


def tables_of(found: Sequence[SourceFile], named: Sequence[Path]) -> list[SourceFile]:
    """Return the tables among the files of folders; files that the user named are all taken for tables.

    Raises:
        click.ClickException: Ray is not installed.
    """
    needs("ray.data", "ray")
    from triptych_ray.tables.files import ENDINGS

    return [each for each in found if each.source in named or each.source.suffix.lower() in ENDINGS]


def run_tables(
    found: Sequence[SourceFile],
    out: Path,
    request: TranslationRequest,
    texts: TableTexts,
    cluster: ClusterFlags,
    flags: "JobFlags",
) -> int:
    """Run the job and return the exit code.

    Args:
        found: input files.
        out: folder of the output files.
        request: which model, and how it decodes.
        texts: which texts to translate.
        cluster: how the job runs there.
        flags: `overwrite`, `report` and `progress` are used.

    Raises:
        click.UsageError: there is more than one column.
        DocumentError: the job is impossible.
        ClusterError: the cluster failed.
    """
    from triptych_ray.tables.job import run

    options = _table_options(found, out, request, texts, cluster, flags.overwrite)
    shows = sys.stderr.isatty() if flags.progress is None else flags.progress
    size = sum(each.size for each in found)
    progress = ProgressLine(sys.stderr if shows else None, len(found), size)
    try:
        report = run(options, _show_progress(progress, size))
    finally:
        progress.clear()
    return _show_report(report, flags.report)


def _table_options(
    found: Sequence[SourceFile],
    out: Path,
    request: TranslationRequest,
    texts: TableTexts,
    cluster: ClusterFlags,
    overwrite: bool,
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


def _show_progress(progress: ProgressLine, size: int) -> "Callable[[TableProgress], None]":
    complete = 0

    def show(done: "TableProgress") -> None:
        nonlocal complete
        for _ in range(done.files - complete):
            progress.finish(0)
        complete = done.files
        progress.show(done.rows, size * done.rows / max(1, done.of_rows))

    return show


def _show_report(report: "TableReport", path: Path | None) -> int:
    """Write and print the report; return the exit code."""
    from triptych_cli.documents.report import first_lines

    findings = [(file, finding) for file, found in report.findings.items() for finding in found]
    errors = [
        f"{file}: chunk {finding['chunk']}, row {finding['row']}: {finding['message']}"
        for file, finding in findings
        if finding["severity"] == "error"
    ]
    if path:
        head = {"version": 1, "tool": f"triptych {__version__}", "complete": not report.failed}
        write_json(path, {**head, **asdict(report)})
    for file, problems in report.failed.items():
        click.echo(f"{file}: {problems[0]}", err=True)
    for line in first_lines(errors):
        click.echo(line, err=True)
    click.echo(f"files: {len(report.files):,} translated, {len(report.skipped):,} done before, {len(report.failed):,} failed")
    click.echo(f"rows: {report.rows:,} translated; findings: {len(findings):,}, errors: {len(errors):,}")
    return int(bool(report.failed or errors))
