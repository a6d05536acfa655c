"""`triptych translate-docs`: documents in, documents out."""

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from triptych_cli.common import options
from triptych_cli.common.decoding import search_options, take_decoding
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.languages import language_options
from triptych_cli.documents import flags
from triptych_cli.documents.cluster import RAY, Cluster, Texts, check_engine, run_tables, tables_of
from triptych_cli.documents.database import Database, StoreError
from triptych_cli.documents.discovery import discover
from triptych_cli.documents.flags import Running
from triptych_cli.documents.stopping import Stopping
from triptych_documents.errors import DocumentError
from triptych_embedded.repository import embedded_repository
from triptych_embedded.request import BackendError, Request

if TYPE_CHECKING:
    from triptych_cli.documents.job import Job
    from triptych_embedded.translating import Translating

JOURNAL = ".triptych-journal"  # in the output folder
IN_MEMORY = Path(":memory:")  # as SQLite calls a database without a file
FOLDER = click.Path(path_type=Path, file_okay=False)
EXISTING = click.Path(path_type=Path, exists=True)


@click.command(name="translate-docs")
@click.argument("paths", nargs=-1, required=True, type=EXISTING, metavar="PATH...")
@click.option("-o", "--out", type=FOLDER, required=True, help="Folder of the translations.")
@options.models
@options.model
@options.server
@options.running
@language_options
@flags.selection
@flags.reading
@flags.keeping
@flags.running
@flags.cluster
@search_options
def command(paths: tuple[Path, ...], out: Path, **asked: Any) -> None:
    """Translate documents: text, Markdown, HTML, DOCX, ODT, SRT, VTT, PO, XLIFF, JSON, YAML, CSV and TSV.

    Folders are translated with all that is below them. What ended early goes on where it was when it is run again.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.

    Exit codes: 0, everything is translated; 1, something is not; 2, the command line is wrong; 130 and 143, stopped by Ctrl-C
    and by SIGTERM.
    """
    needs("triptych_documents.translation.units", "documents")
    check_engine(asked["engine"])
    cluster = Cluster.of(asked)
    with one_line(DocumentError, StoreError, BackendError):
        code = _translate_tables(paths, out, cluster, asked) if asked.pop("engine") == RAY else _translate(paths, out, asked)
    click.get_current_context().exit(code)


def _translate_tables(paths: tuple[Path, ...], out: Path, cluster: Cluster, asked: dict[str, Any]) -> int:
    """Returns the exit code."""
    running, selection, reading = flags.take_running(asked), flags.take_selection(asked), flags.take_reading(asked)
    rules = flags.take_rules(asked)
    found = tables_of(discover(paths, out, replace(selection, format=""), takes_others=True), paths)
    request = Request(decoding=take_decoding(asked), **asked)
    texts = Texts(reading.columns or ("text",), selection.format or "text", rules)
    return run_tables(found, out, request, texts, cluster, running)


def _translate(paths: tuple[Path, ...], out: Path, asked: dict[str, Any]) -> int:
    """Returns the exit code."""
    from triptych_cli.documents.desk import DeskRules
    from triptych_cli.documents.job import Job

    with ExitStack() as stack:
        running = flags.take_running(asked)
        beside = running.pairs.suffix if running.pairs else ""
        found = discover(paths, out, flags.take_selection(asked), running.copy_others, beside)
        desk = DeskRules(out, flags.take_reading(asked), running.pairs, running.copy_others, running.overwrite)
        rules = flags.take_rules(asked)
        request = Request(decoding=take_decoding(asked), **asked)
        stopping = stack.enter_context(Stopping())
        journal = stack.enter_context(_journal(running, out))
        memory = stack.enter_context(_memory(running)) if running.memory else None
        job = Job(found, desk, rules, journal, memory, running.tmx, running.fail_fast)
        return (_count if running.dry_run else _run)(job, request, running, stopping)


def _run(job: "Job", request: Request, running: Running, stopping: Stopping) -> int:
    """Returns the exit code."""
    from triptych_cli.documents.job import run_job
    from triptych_cli.documents.progress import Progress
    from triptych_cli.documents.report import lines, problems, write_report

    shows = sys.stderr.isatty() if running.progress is None else running.progress
    size = sum(found.size for found in job.documents)
    progress = Progress(sys.stderr if shows else None, len(job.documents), size)
    with _translating(request, running) as translating:
        outcome = run_job(job, translating, progress, lambda: stopping.signal is not None)
    if running.report:
        write_report(running.report, outcome)
    for problem in problems(outcome):
        click.echo(problem, err=True)
    for line in lines(outcome):
        click.echo(line)
    if stopping.signal is not None:
        click.echo("stopped; the same command goes on from here", err=True)
        return stopping.exit_code
    return int(bool(outcome.errors))


def _count(job: "Job", request: Request, running: Running, stopping: Stopping) -> int:
    """Returns the exit code. Without a journal and a memory nothing was done before, whatever the model."""
    from triptych_cli.documents.counting import count_job
    from triptych_cli.documents.report import plan_lines, write_plan

    with ExitStack() as stack:
        knows = job.journal.path != IN_MEMORY or job.memory is not None
        identity = stack.enter_context(_translating(request, running)).identity if knows else None
        languages = request.source_language, request.target_language
        planned = count_job(job, identity, languages, lambda: stopping.signal is None)
    if running.report:
        write_plan(running.report, planned)
    for line in plan_lines(planned):
        click.echo(line)
    return int(bool(planned.failed)) if stopping.signal is None else stopping.exit_code


def _journal(running: Running, out: Path) -> Database:
    path = running.journal or out / JOURNAL
    if running.dry_run and not path.exists():
        return Database(IN_MEMORY)
    if not running.dry_run:
        out.mkdir(parents=True, exist_ok=True)
    return Database(path, alone=True)


def _memory(running: Running) -> Database:
    assert running.memory is not None
    return Database(IN_MEMORY if running.dry_run and not running.memory.exists() else running.memory)


def _translating(request: Request, running: Running) -> "Translating":
    if options.asks_server():
        from triptych_cli.documents.remote import RemoteTranslating

        return RemoteTranslating(request, running.concurrency, running.server_wait_secs)
    context = click.get_current_context()
    for name in ("concurrency", "server_wait_secs"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is for a server: name it with --server")
    needs("triptych_serving.repository.registry", "serve")
    from triptych_embedded.sentence_translator import EmbeddedTranslating

    return EmbeddedTranslating(request, request.models or embedded_repository())
