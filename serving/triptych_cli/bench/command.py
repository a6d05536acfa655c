"""`triptych bench`: measure the speed of a server, and compare reports."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from triptych_cli.bench import flags
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.lines import check_stdout
from triptych_cli.common.options import Group, several

_file = click.Path(path_type=Path)


class BenchGroup(Group):
    """A group with a command for each task, which is made on request, and `compare`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*flags.TASK_FLAGS, "compare"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "compare":
            return compare_reports
        return _command(cmd_name) if cmd_name in flags.TASK_FLAGS else None


@click.group(name="bench", cls=BenchGroup)
def command() -> None:
    """Measure how fast a server responds, and how much load it can take.

    Without --server (or TRIPTYCH_SERVER) a `triptych serve` is started, with the embedded models or those of --models.

    Exit code: 0 every run is valid (server: a rate was found), 1 one is not valid, or it failed, 2 wrong usage, 130 Ctrl-C: the
    measurements until then are reported.
    """


def _command(task: str) -> click.Command:
    from triptych_bench.tasks import TASKS

    @click.command(name=task, help=TASKS[task].help)
    @several(flags.TASK_FLAGS[task], flags.server_flags, flags.load_flags, flags.report_flags)
    def run(**values: Any) -> None:
        for module in ("psutil", "prometheus_client"):
            needs(module, "bench")
        from triptych_cli.bench.run import bench

        bench(task, values)

    made: click.Command = run
    return made


@click.command(name="compare")
@click.argument("first", type=_file, metavar="A.json")
@click.argument("others", type=_file, nargs=-1, required=True, metavar="B.json...")
@click.option(
    "--html", type=_file, default=None, help="Also write the comparison as one self-contained page; - is standard output."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all metrics.")
def compare_reports(first: Path, others: tuple[Path, ...], html: Path | None, as_json: bool) -> None:
    """Compare reports that `triptych bench --json FILE` wrote.

    Each report is compared with the first one, A: the same loads side by side, ratios of B to A, and which is better. Values
    within 5 % (quality: 0.5 %) count as equal. Lines with an exclamation mark name inputs, settings and machines that differ
    and should not, and runs that are not valid.
    """
    from triptych_bench.comparison import compare
    from triptych_bench.reports import STDOUT, comparison, jsonfile, write
    from triptych_bench.reports.jsonfile import ReportError

    check_stdout()
    with one_line(ReportError):
        reports = [jsonfile.read(path) for path in (first, *others)]
    found = compare(reports[0], reports[1:], names_of((first, *others)))
    page = needs("triptych_bench.reports.page", "bench") if html else None
    click.echo(comparison.dumps(found) if as_json else comparison.render(found), nl=not as_json, err=html in STDOUT)
    if page and html:
        write(html, page.render(found))


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return the names of files without their suffix, or whole paths if these would be equal."""
    names = [path.stem for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
