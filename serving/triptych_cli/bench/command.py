"""`triptych bench`: how fast a server is."""

from typing import Any

import click

from triptych_cli.bench import flags
from triptych_cli.common.errors import needs
from triptych_cli.common.options import several

COMPARE = "compare"


class Tasks(click.Group):
    """A command for each task, made when it is asked for, and `compare`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*flags.OF_TASK, COMPARE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == COMPARE:
            from triptych_cli.bench.compare import command

            return command
        return _command(cmd_name) if cmd_name in flags.OF_TASK else None


@click.group(name="bench", cls=Tasks)
def command() -> None:
    """Measure how fast a server answers, and how much it can take.

    Without --server (or TRIPTYCH_SERVER) a `triptych serve` is started for it, on the embedded models or those of --models.

    Exit code: 0 every run is valid (server: a rate was found), 1 one is not, or it failed, 2 wrong usage, 130 Ctrl-C: what was
    measured until then is reported.
    """


def _command(task: str) -> click.Command:
    from triptych_bench.tasks import TASKS

    @click.command(name=task, help=TASKS[task].help)
    @several(flags.OF_TASK[task], flags.server_flags, flags.load_flags, flags.report_flags)
    def run(**values: Any) -> None:
        needs("psutil", "bench")
        from triptych_cli.bench.run import bench

        bench(task, values)

    made: click.Command = run
    return made
