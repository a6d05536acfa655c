"""`triptych translate-docs`: translate documents."""

import signal
import sys
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from triptych.signals import handled_signals
from triptych_cli.common import options
from triptych_cli.common.decoding import search_options, take_decoding
from triptych_cli.common.errors import SIGNALLED, needs, one_line
from triptych_cli.common.lines import check_stdout
from triptych_cli.documents import flags
from triptych_cli.documents.discovery import STDOUT, destination, discover
from triptych_cli.documents.flags import JobFlags
from triptych_cli.documents.stored import Database, DatabaseError
from triptych_cli.documents.tables import RAY, check_engine, run_tables, tables_of, take_cluster
from triptych_documents.errors import DocumentError
from triptych_documents.format import find_format
from triptych_embedded.request import BackendError, TranslationRequest

if TYPE_CHECKING:
    from triptych_cli.documents.job import DocumentJob
    from triptych_embedded.sentences import SentenceTranslator

JOURNAL = ".triptych-journal"  # in the output folder
IN_MEMORY = Path(":memory:")  # SQLite's name of a database without a file
EXISTING = click.Path(path_type=Path, exists=True)


@click.command(name="translate-docs")
@click.argument("paths", nargs=-1, required=True, type=EXISTING, metavar="PATH...")
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, allow_dash=True),
    required=True,
    metavar="FOLDER|FILE|-",
    help="Folder of the translations. For one document it may be a file, or - for standard output.",
)
@options.model_choice
@options.languages
@flags.selection
@flags.reading
@flags.keeping
@flags.running
@flags.cluster
@search_options
def command(paths: tuple[Path, ...], out: Path, **values: Any) -> None:
    """Translate documents.

    Formats: text, Markdown, HTML, DOCX, PPTX, XLSX, ODT, ODP, ODS, EPUB, SRT, VTT, PO, XLIFF, JSON, JSON lines, YAML, CSV, TSV,
    .properties, .resx, .strings, .stringsdict, .xcstrings, .ts of Qt and strings.xml of Android.

    Folders are translated with everything below them. A job that was interrupted continues when the command is run again.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.

    Exit codes: 0, everything is translated; 1, something is not; 2, the command line is wrong; 130 and 143, stopped by Ctrl-C
    and by SIGTERM.
    """
    needs("triptych_documents.driver", "documents")
    check_engine(values["engine"])
    cluster = take_cluster(values)
    with one_line(DocumentError, DatabaseError, BackendError):
        if values.pop("engine") == RAY:
            if out.is_file() or str(out) == STDOUT:
                raise click.UsageError(f"--engine ray writes a folder, and --out {out} is none")
            code = _translate_tables(paths, out, cluster, values)
        elif str(out) == STDOUT:
            code = _translate_to_stdout(paths, out, values)
        else:
            code = _translate(paths, *destination(paths, out, values["format"] or ""), values)
    click.get_current_context().exit(code)


@dataclass
class StopSignal:
    """The signal that stops a job, if one came; a second one ends the process at once."""

    number: int = 0

    @property
    def exit_code(self) -> int:
        """Exit code of a job that was stopped."""
        return SIGNALLED + self.number

    def note(self, number: int) -> None:
        if self.number:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.number = number


def _translate_tables(paths: tuple[Path, ...], out: Path, cluster: dict[str, Any], values: dict[str, Any]) -> int:
    """Translate tables on a cluster; return the exit code."""
    job_flags, selection, reading = flags.take_job_flags(values), flags.take_selection(values), flags.take_reading(values)
    rules = flags.take_rules(values)
    found = tables_of(discover(paths, out, replace(selection, format=""), takes_others=True), paths)
    request = TranslationRequest(decoding=take_decoding(values), **values)
    text_format = selection.format or "text"
    return run_tables(
        found, request, reading.columns, job_flags, out=str(out.absolute()), format=text_format, rules=rules, **cluster
    )


def _translate_to_stdout(paths: tuple[Path, ...], out: Path, values: dict[str, Any]) -> int:
    """Translate a document and write it to standard output, everything else to standard error; return the exit code."""
    destination(paths, out, "")  # checks that there is one document
    if values["report"] in options.STDOUT:
        raise click.UsageError("--report and --out are both -; name a file for one of them")
    if values["bilingual"]:
        raise click.UsageError("--bilingual writes a second file, and --out - has no place for it")
    check_stdout()
    if sys.stdout.isatty() and find_format(values["format"] or "", str(paths[0])).zipped:
        raise click.UsageError(f"the translation of {paths[0]} cannot be shown on a terminal; redirect it, or name a file")
    with TemporaryDirectory(prefix="triptych-") as folder:
        code = _translate(paths, Path(folder), paths[0].name, values, quiet=True)
        translated = Path(folder, paths[0].name)
        if translated.exists():
            sys.stdout.buffer.write(translated.read_bytes())
            sys.stdout.buffer.flush()
    return code


def _translate(paths: tuple[Path, ...], out: Path, name: str, values: dict[str, Any], quiet: bool = False) -> int:
    """Translate documents in this process or with a server; return the exit code.

    Args:
        name: of the translation of a single document; empty: the document's own.
        quiet: print the summary on standard error.
    """
    from triptych_cli.documents.document_files import FilePolicy
    from triptych_cli.documents.job import DocumentJob

    with ExitStack() as stack:
        job_flags = flags.take_job_flags(values)
        beside = job_flags.bilingual.suffix if job_flags.bilingual else ""
        found = discover(paths, out, flags.take_selection(values), job_flags.copy_others, beside, name)
        policy = FilePolicy(out, flags.take_reading(values), job_flags.bilingual, job_flags.copy_others, job_flags.overwrite)
        rules = flags.take_rules(values)
        request = TranslationRequest(decoding=take_decoding(values), **values)
        stop = StopSignal()
        stack.enter_context(handled_signals(stop.note))
        # Before the output folder is made, which a job that cannot start would leave behind.
        translator = None if job_flags.dry_run else stack.enter_context(_open_translator(request, job_flags))
        journal = stack.enter_context(_journal(job_flags, out))
        memory = None
        if path := job_flags.memory:
            memory = stack.enter_context(Database(IN_MEMORY if job_flags.dry_run and not path.exists() else path))
        quiet = quiet or job_flags.report in options.STDOUT
        job = DocumentJob(found, policy, rules, journal, memory, job_flags.tmx, job_flags.fail_fast)
        if translator is None:
            return _count(job, request, job_flags, stop, quiet)
        return _run(job, translator, job_flags, stop, quiet)


def _run(job: "DocumentJob", translator: "SentenceTranslator", job_flags: JobFlags, stop: StopSignal, quiet: bool) -> int:
    from triptych_cli.documents.job import run_job
    from triptych_cli.documents.report import error_lines, result_lines, write_report

    result = run_job(job, translator, job_flags.progress_line(job.documents), lambda: bool(stop.number))
    if job_flags.report:
        write_report(job_flags.report, result)
    for line in error_lines(result.documents):
        click.echo(line, err=True)
    for line in result_lines(result):
        click.echo(line, err=quiet)
    if stop.number:
        click.echo("stopped; run the same command again to continue", err=True)
        return stop.exit_code
    return int(bool(result.errors))


def _count(job: "DocumentJob", request: TranslationRequest, job_flags: JobFlags, stop: StopSignal, quiet: bool) -> int:
    from triptych_cli.documents.dry_run import count_job
    from triptych_cli.documents.report import error_lines, plan_lines, write_plan

    with ExitStack() as stack:
        # Without a journal and a memory nothing has been translated, whatever the model.
        knows = job.journal.path != IN_MEMORY or job.memory is not None
        identity = stack.enter_context(_open_translator(request, job_flags)).identity if knows else None
        planned = count_job(job, identity, (request.source_language, request.target_language), lambda: not stop.number)
    if job_flags.report:
        write_plan(job_flags.report, planned)
    for line in error_lines(planned.failures):
        click.echo(line, err=True)
    for line in plan_lines(planned):
        click.echo(line, err=quiet)
    return stop.exit_code if stop.number else int(bool(planned.failed))


def _journal(job_flags: JobFlags, out: Path) -> Database:
    path = job_flags.journal or out / JOURNAL
    if job_flags.dry_run and not path.exists():
        return Database(IN_MEMORY)
    if not job_flags.dry_run:
        out.mkdir(parents=True, exist_ok=True)
    return Database(path, alone=True)


def _open_translator(request: TranslationRequest, job_flags: JobFlags) -> "AbstractContextManager[SentenceTranslator]":
    if options.asks_server():
        from triptych_cli.documents.remote import RemoteSentenceTranslator

        return RemoteSentenceTranslator(request, job_flags.concurrency, job_flags.server_wait_secs)
    for name in ("concurrency", "server_wait_secs"):
        if options.is_given(name):
            raise click.UsageError(f"--{name.replace('_', '-')} is for a server: name it with --server")
    needs("triptych_serving.repository.registry", "serve")
    from triptych_embedded.engine import open_sentence_translator

    return open_sentence_translator(request)
