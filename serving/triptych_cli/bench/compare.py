"""`triptych bench compare`: compare reports."""

from collections.abc import Sequence
from pathlib import Path

import click

from triptych_cli.common.errors import needs, one_line

_file = click.Path(path_type=Path)


@click.command(name="compare")
@click.argument("first", type=_file, metavar="A.json")
@click.argument("others", type=_file, nargs=-1, required=True, metavar="B.json...")
@click.option("--html", type=_file, default=None, help="Also write the comparison as one self-contained page.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all metrics.")
def command(first: Path, others: tuple[Path, ...], html: Path | None, as_json: bool) -> None:
    """Compare reports that `triptych bench --json FILE` wrote.

    Each report is compared with the first one, A: the same loads side by side, ratios of B to A, and which is better. Values
    within 5 % (quality: 0.5 %) count as equal. Lines with an exclamation mark name inputs, settings and machines that differ
    and should not, and runs that are not valid.
    """
    from triptych_bench.comparison import compare
    from triptych_bench.reports import comparison, jsonfile, write
    from triptych_bench.reports.jsonfile import ReportError

    with one_line(ReportError):
        reports = [jsonfile.read(path) for path in (first, *others)]
    found = compare(reports[0], reports[1:], names_of((first, *others)))
    page = needs("triptych_bench.reports.page", "bench") if html else None
    click.echo(comparison.dumps(found) if as_json else comparison.render(found), nl=not as_json)
    if page and html:
        write(html, page.render(found))


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return the names of files without their suffix, or whole paths if these would be equal."""
    names = [path.stem for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
