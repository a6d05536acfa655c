"""`triptych memory`: import human translations into a translation memory, and export all its translations."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.lines import check_stdout
from triptych_cli.common.options import EXISTING_FILE, NEW_FILE
from triptych_cli.documents.flags import TMX
from triptych_cli.documents.stored import Database, DatabaseError
from triptych_documents.errors import DocumentError


@click.group(name="memory")
def command() -> None:
    """Fill or read a translation memory.

    A memory is a file that `triptych translate-docs --memory` uses and adds to.
    """


@command.command(name="import")
@click.argument("memory", type=NEW_FILE, metavar="MEMORY")
@click.argument("files", nargs=-1, required=True, type=NEW_FILE, metavar="FILE.tmx...")
def import_(memory: Path, files: tuple[Path, ...]) -> None:
    """Import human translations into MEMORY, which is created if missing. They take precedence over the model's."""
    _check_order("import", memory, files)  # before it is missed that the files do not exist
    if missing := [str(file) for file in files if not file.exists()]:
        raise click.UsageError(f"{', '.join(missing)}: no such file")
    needs("langcodes", "documents")
    from triptych_cli.documents.human import add_entries, dropped_lines, read_tmx

    dropped = {file: Counter[str]() for file in files}
    with one_line(DocumentError, DatabaseError), Database(memory) as database:
        count = sum(add_entries(database, read_tmx(file, dropped[file])) for file in files)
    for line in dropped_lines(dropped):
        click.echo(line, err=True)
    click.echo(f"{memory}: {count:,} {'entry' if count == 1 else 'entries'} imported")


@command.command(name="export")
@click.argument("memory", type=EXISTING_FILE, metavar="MEMORY")
@click.argument("file", type=NEW_FILE, metavar="FILE.tmx")
@click.option("--people-only", is_flag=True, help="Leave out translations by models.")
def export(memory: Path, file: Path, people_only: bool) -> None:
    """Write all translations of MEMORY as TMX 1.4b."""
    _check_order("export", memory, (file,))
    if file.exists() and file.samefile(memory):
        raise click.UsageError(f"{file} is the memory itself, which the export would replace; name another file")
    needs("langcodes", "documents")
    from triptych_cli.documents.files import write_whole
    from triptych_cli.documents.human import translations
    from triptych_documents.formats.bilingual import tmx

    with one_line(DatabaseError), Database(memory) as database:
        content = tmx(translations(database, people_only))
        if file != Path("-"):
            write_whole(file, content)
            click.echo(file)
            return
        check_stdout()
        sys.stdout.buffer.writelines(content)


def _check_order(name: str, memory: Path, files: Sequence[Path]) -> None:
    """Reject a TMX file in the place of the memory. Raises click.UsageError."""
    if memory.suffix.lower() == TMX:
        others = " ".join(map(str, [*files[1:], memory]))
        raise click.UsageError(f"{memory} is a TMX file; the memory comes first: triptych memory {name} {files[0]} {others}")
