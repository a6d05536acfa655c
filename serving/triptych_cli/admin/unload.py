"""`triptych unload`: have a server unload a model."""

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.errors import one_line


@click.command(name="unload")
@click.argument("name")
@click.option("--version", default="", help="A number or a label.  [default: every version]")
@options.at_server
@options.load_timeout
def command(name: str, version: str, server: str, timeout_secs: float) -> None:
    """Have a server unload a version of model NAME; returns once the requests that ran on it have ended.

    The server must run with --model-control explicit.
    """
    from triptych_client import TriptychClientError

    with one_line(TriptychClientError), connect(server) as client:
        client.unload_model(name, version, timeout_seconds=timeout_secs)
    click.echo(f"{name}{f' version {version}' if version else ''}: unloaded")
