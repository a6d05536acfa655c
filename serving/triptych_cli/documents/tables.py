"""`--engine ray`: translate tables of texts on a cluster."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.options import STDOUT, is_given
from triptych_cli.documents.discovery import SourceFile
from triptych_cli.documents.files import write_json
from triptych_embedded.request import TranslationRequest

if TYPE_CHECKING:
    from triptych_cli.common.progress import ProgressLine
    from triptych_cli.documents.flags import JobFlags
    from triptych_ray.tables.job import TableProgress, TableReport

LOCAL, RAY = "local", "ray"
# Flags of jobs on a cluster, and the options of TableOptions that they set.
CLUSTER = {
    "output_column": "output_column",
    "rows": "rows",
    "workers": "workers",
    "worker_cpus": "cpus",
    "ray_address": "address",
}
# Flags of jobs in this process.
ONLY_LOCAL = {"server", "memories", "journal", "bilingual", "copy_others", "fail_fast", "dry_run", "concurrency"}
ONLY_LOCAL |= {"server_wait_secs", "encoding", "header", "translate_header", "keys", "skip_keys", "wrapped", "retranslate"}
ONLY_LOCAL |= {"mark_fuzzy"}


def take_cluster(values: dict[str, Any]) -> dict[str, Any]:
    """Remove the flags of jobs on a cluster from the values of a command; return them as options of TableOptions."""
    return {option: values.pop(flag) for flag, option in CLUSTER.items()}


def check_engine(engine: str) -> None:
    """Raise click.UsageError if a flag of the command line has no effect with this engine."""
    unused = set(CLUSTER) if engine == LOCAL else ONLY_LOCAL
    for parameter in click.get_current_context().command.params:
        if parameter.name in unused and is_given(parameter.name):
            other = RAY if engine == LOCAL else LOCAL
            raise click.UsageError(f"{parameter.opts[0]} has no effect with --engine {engine}; it is for --engine {other}")


def tables_of(found: Sequence[SourceFile], named: Sequence[Path]) -> list[SourceFile]:
    """Return the tables among the files of folders; files that the user named are all taken for tables.

    Raises:
        click.ClickException: Ray is not installed.
    """
    needs("ray.data", "ray")
    from triptych_ray.tables.files import ENDINGS

    return [each for each in found if each.source in named or each.source.suffix.lower() in ENDINGS]


def run_tables(
    found: Sequence[SourceFile], request: TranslationRequest, columns: Sequence[str], flags: "JobFlags", **options: Any
) -> int:
    """Run the job and return the exit code.

    Raises:
        click.UsageError: there is more than one column.
        DocumentError: the job is impossible.
        ClusterError: the cluster failed.
    """
    from triptych_ray.tables.job import run
    from triptych_ray.tables.options import TableOptions

    if len(columns) > 1:
        raise click.UsageError(f"--column is given {len(columns)} times; --engine ray translates one column")
    with one_line(ValueError):
        table_options = TableOptions(
            files=tuple((str(each.source.absolute()), each.name) for each in found),
            column=columns[0] if columns else "text",
            overwrite=flags.overwrite,
            request=replace(request, models=request.models.absolute() if request.models else None),
            **options,
        )
    progress = flags.progress_line(found)
    try:
        report = run(table_options, _show_progress(progress, sum(each.size for each in found)))
    finally:
        progress.clear()
    return _show_report(report, flags.report)


def _show_progress(progress: "ProgressLine", size: int) -> "Callable[[TableProgress], None]":
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
    from triptych_cli.documents.report import HEAD, first_lines

    findings = [(file, finding) for file, found in report.findings.items() for finding in found]
    errors = [
        f"{file}: chunk {finding['chunk']}, row {finding['row']}: {finding['message']}"
        for file, finding in findings
        if finding["severity"] == "error"
    ]
    if path:
        write_json(path, {**HEAD, "complete": not report.failed, **asdict(report)})
    for file, problems in report.failed.items():
        click.echo(f"{file}: {problems[0]}", err=True)
    for line in first_lines(errors):
        click.echo(line, err=True)
    files = f"{len(report.files):,} translated, {len(report.skipped):,} done before, {len(report.failed):,} failed"
    click.echo(f"files: {files}", err=path in STDOUT)
    click.echo(f"rows: {report.rows:,} translated; findings: {len(findings):,}, errors: {len(errors):,}", err=path in STDOUT)
    return int(bool(report.failed or errors))
