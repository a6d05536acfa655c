"""Flags of `triptych translate-docs`: which files are read and how, the rules for translations, how the job runs."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.decoding import TextLines
from triptych_cli.common.options import EXISTING_FILE, NEW_FILE, Function
from triptych_cli.common.progress import ProgressLine
from triptych_cli.documents.discovery import Selection, SourceFile
from triptych_cli.documents.files import BILINGUAL, BilingualFormat
from triptych_cli.documents.tables import LOCAL, RAY
from triptych_documents.format import FORMATS, ReadOptions
from triptych_documents.rules import TranslationRules, read_glossary, read_keep

TMX = ".tmx"


@dataclass(frozen=True)
class JobFlags:
    """Flags of a job, under their own names."""

    memory: Path | None  # a database
    tmx: tuple[Path, ...]
    journal: Path | None
    bilingual: BilingualFormat | None  # of the file with sentence pairs beside each document
    report: Path | None
    copy_others: bool
    overwrite: bool
    fail_fast: bool
    dry_run: bool
    progress: bool | None
    concurrency: int
    server_wait_secs: float

    def progress_line(self, files: Sequence[SourceFile]) -> ProgressLine:
        """Make the line that shows the progress of a job with these files, by default only on a terminal."""
        shows = sys.stderr.isatty() if self.progress is None else self.progress
        return ProgressLine(sys.stderr if shows else None, len(files), sum(file.size for file in files))


def _option(name: str, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """Make an option with the variable `TRIPTYCH_DOCS_<NAME>`, as other commands have other flags named --format."""
    variable = "TRIPTYCH_DOCS_" + name.split("/", maxsplit=1)[0].lstrip("-").replace("-", "_").upper()
    return options.optional(name, *names, envvar=variable, **settings)


def _list(name: str, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """Make a repeatable option; the variable has one value per line."""
    return _option(name, *names, type=TextLines(), multiple=True, **settings)


def _switch(name: str, help_text: str) -> Callable[[Function], Function]:
    return _option(name, is_flag=True, default=False, help=help_text)


selection = options.several(
    _list("--include", metavar="GLOB", help="In folders, only files whose name or path matches; repeatable."),
    _list("--exclude", metavar="GLOB", help="In folders, no files whose name or path matches; repeatable."),
    _option(
        "--format",
        type=click.Choice([each.name for each in FORMATS]),
        help="Read all files in this format.  [default: by file name]",
    ),
    _switch("--copy-others", "Copy files without a known format."),
)
reading = options.several(
    _option("--encoding", default="", metavar="NAME", help="Encoding of text files.  [default: as declared, else UTF-8]"),
    _list("--column", "columns", metavar="NAME", help="CSV and TSV: column to translate, by name or number; repeatable."),
    _option("--header/--no-header", help="CSV and TSV: the first record has names, which stay.  [default: it has]"),
    _switch("--translate-header", "CSV and TSV: translate the names in the first record, too."),
    _list("--key", "keys", metavar="PATH", help="JSON and YAML: translate only pages.*.title, **.text, ...; repeatable."),
    _list("--skip-key", "skip_keys", metavar="PATH", help="JSON and YAML: do not translate these; repeatable."),
    _option("--wrapped/--no-wrapped", help="Plain text: lines are wrapped at a width.  [default: detected per paragraph]"),
    _switch("--retranslate", "PO, XLIFF, .ts and .xcstrings: also translate what has a translation."),
    _switch("--mark-fuzzy", "PO, XLIFF, .ts and .xcstrings: mark new translations for review."),
)
keeping = options.several(
    _option("--glossary", type=EXISTING_FILE, metavar="FILE", help="Glossary: source, tab, target on each line."),
    _option("--keep", type=EXISTING_FILE, metavar="FILE", help="Words and names that must not be translated, one per line."),
    _list("--placeholder", "placeholders", metavar="REGEX", help="Further text that must be kept; repeatable."),
    _option("--max-characters", type=click.IntRange(min=20), default=1_000, show_default=True, help="Divide longer sentences."),
)
running = options.several(
    _list("--memory", "memories", metavar="FILE", help="Translation memory to use and add to; .tmx files to use."),
    _option(
        "--journal", type=NEW_FILE, metavar="FILE", help="Journal of the job.  [default: .triptych-journal beside the output]"
    ),
    _option(
        "--bilingual",
        type=click.Choice(sorted(BILINGUAL)),
        help="Write the sentence pairs of each document in a file beside it.",
    ),
    _option("--report", type=NEW_FILE, metavar="FILE", help="Write the result of each document as JSON; - is standard output."),
    _switch("--overwrite", "Replace files in --out that no earlier run wrote."),
    _switch("--fail-fast", "Stop at the first error."),
    _switch("--dry-run", "Count only; translate and write nothing."),
    _option("--progress/--no-progress", help="Show progress on stderr.  [default: on a terminal]"),
    _option(
        "--concurrency", type=click.IntRange(1, 256), default=16, show_default=True, help="With --server: concurrent calls."
    ),
    _option(
        "--server-wait-secs",
        type=options.FloatRange(min=0),
        default=300.0,
        show_default=True,
        help="With --server: how long to wait for one that is full or unreachable.",
    ),
)
COUNT = click.IntRange(min=0)
cluster = options.several(
    _option("--engine", type=click.Choice([LOCAL, RAY]), default=LOCAL, show_default=True, help="Where the job runs."),
    _option("--output-column", default="translation", show_default=True, metavar="NAME", help="ray: column of translations."),
    _option("--rows", type=click.IntRange(min=1), default=2_000, show_default=True, help="ray: rows per chunk."),
    _option("--workers", type=COUNT, default=0, help="ray: engines.  [default: one per node; with --device cuda one per GPU]"),
    _option("--worker-cpus", type=COUNT, default=0, help="ray: CPUs per engine.  [default: all of a node]"),
    _option("--ray-address", default="", metavar="HOST:PORT", help="ray: cluster.  [default: RAY_ADDRESS, else a local one]"),
)


def take_selection(values: dict[str, Any]) -> Selection:
    """Remove the flags of `selection` from the values of a command and return them."""
    return Selection(values.pop("include"), values.pop("exclude"), values.pop("format") or "")


def take_reading(values: dict[str, Any]) -> ReadOptions:
    """Remove the flags of `reading` from the values of a command and return them. The languages are the request's as well."""
    names = {field.name for field in fields(ReadOptions)} & values.keys() - {"source_language", "target_language"}
    chosen = {name: values.pop(name) for name in names}
    return ReadOptions(**{**chosen, "header": chosen["header"] is not False})


def take_rules(values: dict[str, Any]) -> TranslationRules:
    """Remove the flags of `keeping` from the values of a command, and read the files that they name.

    Raises:
        click.UsageError: a pattern is not a regular expression.
        DocumentError: a file is damaged.
        OSError: a file cannot be read.
    """
    glossary, keep, placeholders = (values.pop(name) for name in ("glossary", "keep", "placeholders"))
    for pattern in placeholders:
        try:
            re.compile(pattern)
        except re.error as error:
            raise click.UsageError(f"--placeholder {pattern!r}: {error}") from error
    return TranslationRules(
        glossary=read_glossary(glossary.read_bytes(), str(glossary)) if glossary else (),
        keep=read_keep(keep.read_bytes(), str(keep)) if keep else (),
        placeholders=placeholders,
        max_characters=values.pop("max_characters"),
    )


def take_job_flags(values: dict[str, Any]) -> JobFlags:
    """Remove the flags of `running` from the values of a command and return them.

    Raises:
        click.UsageError: there are two memories to add translations to.
    """
    memories = tuple(map(Path, values.pop("memories")))
    tmx = tuple(file for file in memories if file.suffix.lower() == TMX)
    databases = [file for file in memories if file not in tmx]
    if len(databases) > 1:
        raise click.UsageError(
            f"--memory {databases[0]} and {databases[1]}: new translations go into one memory; give the others as {TMX} files"
        )
    bilingual = BILINGUAL.get(values.pop("bilingual"))
    own = {field.name: values.pop(field.name) for field in fields(JobFlags) if field.name in values}
    return JobFlags(memory=databases[0] if databases else None, tmx=tmx, bilingual=bilingual, **own)
