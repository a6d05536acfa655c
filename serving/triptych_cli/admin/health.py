"""`triptych health`: whether a server can be asked, for probes that have no gRPC of their own."""

import os

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.errors import one_line

DEFAULT_PORT = "8001"


@click.command(name="health")
@options.option(
    "--server",
    default="",
    metavar="HOST:PORT",
    help="Ask this server.  [default: the one in this container, at TRIPTYCH_PORT or 8001]",
    show_default=False,
)
@options.connection
@click.option("--service", default="", help="Such as triptych.v1.TranslationService.  [default: the server as a whole]")
@click.option("--timeout-secs", type=click.FloatRange(min=0, min_open=True), default=5.0, show_default=True, help="To wait.")
def command(server: str, service: str, timeout_secs: float) -> None:
    """Ask a server once whether it serves: exit code 0 if so; 1 while it loads or drains, or where none answers."""
    from triptych_client import TriptychClientError

    with one_line(TriptychClientError), connect(server or _local()) as client:
        serves = client.is_ready(service, timeout_seconds=timeout_secs)
    click.echo("serving" if serves else "not serving")
    click.get_current_context().exit(0 if serves else 1)


def _local() -> str:
    return f"127.0.0.1:{os.environ.get('TRIPTYCH_PORT') or DEFAULT_PORT}"
