"""`triptych bench`: measure the speed of a server."""

from typing import Any

import click

from triptych_cli.bench import flags
from triptych_cli.common.errors import needs
from triptych_cli.common.options import several

COMPARE = "compare"


class BenchGroup(click.Group):
    """A group with a command for each task, which is made on request, and `compare`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*flags.TASK_FLAGS, COMPARE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == COMPARE:
            from triptych_cli.bench.compare import command

            return command
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
