"""`triptych memory`: what people have translated goes into a translation memory, and all that it knows comes out of it."""

from pathlib import Path

import click

from triptych_cli.common.errors import needs, one_line
from triptych_cli.documents.database import Database, StoreError
from triptych_documents.errors import DocumentError

FILE = click.Path(path_type=Path, dir_okay=False)
THERE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.group(name="memory")
def command() -> None:
    """Fill a translation memory, or read it.

    A memory is a file that `triptych translate-docs --memory` uses and adds to.
    """


@command.command(name="import")
@click.argument("memory", type=FILE, metavar="MEMORY")
@click.argument("files", nargs=-1, required=True, type=THERE, metavar="FILE.tmx...")
def import_(memory: Path, files: tuple[Path, ...]) -> None:
    """Put translations that people made into MEMORY, which is made where it is missing. They go before the machine's."""
    needs("langcodes", "documents")
    from triptych_cli.documents.human import add_entries
    from triptych_cli.documents.tmx import read_tmx

    with one_line(DocumentError, StoreError), Database(memory) as database:
        count = sum(add_entries(database, read_tmx(file)) for file in files)
    click.echo(f"{memory}: {count:,} entries imported")


@command.command(name="export")
@click.argument("memory", type=THERE, metavar="MEMORY")
@click.argument("file", type=FILE, metavar="FILE.tmx")
@click.option("--people-only", is_flag=True, help="Leave out what models have translated.")
def export(memory: Path, file: Path, people_only: bool) -> None:
    """Write all translations of MEMORY as TMX 1.4b."""
    needs("langcodes", "documents")
    from triptych_cli.documents.human import translations
    from triptych_cli.documents.writing import write_whole
    from triptych_documents.formats.bilingual import tmx

    with one_line(StoreError), Database(memory) as database:
        write_whole(file, tmx(translations(database, people_only)))
    click.echo(file)
