"""Flags of `triptych translate-docs`: what is read, and how; what must hold in translations; how the job runs."""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.decoding import Lines
from triptych_cli.common.options import Function
from triptych_cli.documents.bilingual import KINDS as PAIRS
from triptych_cli.documents.bilingual import Bilingual
from triptych_cli.documents.cluster import LOCAL, RAY
from triptych_cli.documents.discovery import Selection
from triptych_documents.format import FORMATS, ReadOptions
from triptych_documents.rules import TranslationRules, read_glossary, read_keep

TMX = ".tmx"
FILE = click.Path(path_type=Path, dir_okay=False)
THERE = click.Path(path_type=Path, dir_okay=False, exists=True)


@dataclass(frozen=True)
class Running:
    """How a job runs; as the flags of these names."""

    memory: Path | None  # a database
    tmx: tuple[Path, ...]
    journal: Path | None
    bilingual: str | None
    report: Path | None
    copy_others: bool
    overwrite: bool
    fail_fast: bool
    dry_run: bool
    progress: bool | None
    concurrency: int
    server_wait_secs: float

    @property
    def pairs(self) -> Bilingual | None:
        """What is written beside each document."""
        return PAIRS[self.bilingual] if self.bilingual else None


def _option(name: str, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """With `TRIPTYCH_DOCS_<NAME>`: in other commands names such as --format mean something else."""
    variable = "TRIPTYCH_DOCS_" + name.split("/", maxsplit=1)[0].lstrip("-").replace("-", "_").upper()
    return options.option(name, *names, envvar=variable, **{"default": None, "show_default": False, **settings})


def _list(name: str, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """Repeatable; the variable has one on each line."""
    return _option(name, *names, type=Lines(), multiple=True, **settings)


def _switch(name: str, help_text: str) -> Callable[[Function], Function]:
    return _option(name, is_flag=True, default=False, help=help_text)


selection = options.several(
    _list("--include", metavar="GLOB", help="Of folders, only files whose name or path matches; repeatable."),
    _list("--exclude", metavar="GLOB", help="Of folders, no files whose name or path matches; repeatable."),
    _option(
        "--format", type=click.Choice([kind.name for kind in FORMATS]), help="Read all files so.  [default: as their names say]"
    ),
    _switch("--copy-others", "Copy files that no format reads."),
)
reading = options.several(
    _option("--encoding", default="", metavar="NAME", help="Of text files.  [default: what they say, else UTF-8]"),
    _list("--column", "columns", metavar="NAME", help="Of CSV and TSV: what is translated, by name or number; repeatable."),
    _option("--header/--no-header", help="Of CSV and TSV: the first record has names.  [default: found out]"),
    _list("--key", "keys", metavar="PATH", help="Of JSON and YAML: translate only pages.*.title, **.text, ...; repeatable."),
    _list("--skip-key", "skip_keys", metavar="PATH", help="Of JSON and YAML: do not translate these; repeatable."),
    _option("--wrapped/--no-wrapped", help="Plain text has lines broken at a width.  [default: found out by paragraph]"),
    _switch("--retranslate", "Of PO and XLIFF: translate what has a translation, too."),
    _switch("--mark-fuzzy", "Of PO and XLIFF: mark what was translated for review."),
)
keeping = options.several(
    _option("--glossary", type=THERE, metavar="FILE", help="Terms: on each line source, tab, target."),
    _option("--keep", type=THERE, metavar="FILE", help="Words and names that stay as they are, one on each line."),
    _list("--placeholder", "placeholders", metavar="REGEX", help="More of what must be kept; repeatable."),
    _option(
        "--max-characters", type=click.IntRange(min=20), default=1_000, show_default=True, help="Longer sentences are cut."
    ),
)
running = options.several(
    _list("--memory", "memories", metavar="FILE", help="Translation memory to use and add to; .tmx files to use."),
    _option("--journal", type=FILE, metavar="FILE", help="What the job goes on from.  [default: .triptych-journal in --out]"),
    _option(
        "--bilingual",
        type=click.Choice(sorted(PAIRS)),
        help="Beside each document its pairs of sentences.",
    ),
    _option("--report", type=FILE, metavar="FILE", help="Write what became of each document as JSON."),
    _switch("--overwrite", "Replace files in --out that are not of an earlier run."),
    _switch("--fail-fast", "End at the first error."),
    _switch("--dry-run", "Count, translate nothing, write nothing."),
    _option("--progress/--no-progress", help="On one line of stderr.  [default: on a terminal]"),
    _option(
        "--concurrency",
        type=click.IntRange(1, 256),
        default=16,
        show_default=True,
        help="With --server: calls at once.",
    ),
    _option(
        "--server-wait-secs",
        type=click.FloatRange(min=0),
        default=300.0,
        show_default=True,
        help="With --server: wait so long for one that is full or away.",
    ),
)
COUNT = click.IntRange(min=0)
cluster = options.several(
    _option("--engine", type=click.Choice([LOCAL, RAY]), default=LOCAL, show_default=True, help="Where a job runs."),
    _option("--output-column", default="translation", show_default=True, metavar="NAME", help="ray: of translations."),
    _option("--rows", type=click.IntRange(min=1), default=2_000, show_default=True, help="ray: of a chunk."),
    _option("--workers", type=COUNT, default=0, help="ray: engines.  [default: one a node; with --device cuda one a GPU]"),
    _option("--worker-cpus", type=COUNT, default=0, help="ray: CPUs of an engine.  [default: a node's]"),
    _option("--ray-address", default="", metavar="HOST:PORT", help="ray: cluster.  [default: RAY_ADDRESS, else its own]"),
)


def take_selection(values: dict[str, Any]) -> Selection:
    """Out of a command's values."""
    return Selection(values.pop("include"), values.pop("exclude"), values.pop("format") or "")


def take_reading(values: dict[str, Any]) -> ReadOptions:
    """Out of a command's values."""
    names = ("encoding", "columns", "header", "keys", "skip_keys", "wrapped", "retranslate", "mark_fuzzy")
    return ReadOptions(**{name: values.pop(name) for name in names})


def take_rules(values: dict[str, Any]) -> TranslationRules:
    """Out of a command's values, with what their files say.

    Raises:
        click.UsageError: a pattern is none.
        DocumentError: a file is not what it should be.
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


def take_running(values: dict[str, Any]) -> Running:
    """Out of a command's values.

    Raises:
        click.UsageError: there are two memories that answers could be added to.
    """
    memories = tuple(map(Path, values.pop("memories")))
    tmx = tuple(file for file in memories if file.suffix.lower() == TMX)
    databases = [file for file in memories if file not in tmx]
    if len(databases) > 1:
        raise click.UsageError(f"--memory {databases[0]} and {databases[1]}: answers go into one; give others as {TMX} files")
    own = [field.name for field in fields(Running) if field.name not in ("memory", "tmx")]
    return Running(memory=databases[0] if databases else None, tmx=tmx, **{name: values.pop(name) for name in own})
