"""`triptych load`: have a server load a model of its repository."""

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.errors import one_line


@click.command(name="load")
@click.argument("name")
@click.option("--version", default="", help="A number or a label.  [default: what the model's version policy says]")
@options.at_server
@options.load_timeout
def command(name: str, version: str, server: str, timeout_secs: float) -> None:
    """Have a server load a version of model NAME, again where its files have changed. What serves until then serves on.

    The server must run with --model-control explicit.
    """
    from triptych_client import TriptychClientError

    with one_line(TriptychClientError), connect(server) as client:
        for model in client.load_model(name, version, timeout_seconds=timeout_secs):
            click.echo(f"{model.name} version {model.version}: {model.state}")
