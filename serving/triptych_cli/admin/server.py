"""`triptych load`, `triptych unload` and `triptych health`: manage a running server."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from triptych_cli.common import options
from triptych_cli.common.connection import connect
from triptych_cli.common.errors import one_line

if TYPE_CHECKING:
    from triptych_client import Client

DEFAULT_PORT = "8001"
WILDCARDS = ("", "0.0.0.0", "::", "[::]")  # hosts of servers that listen on every address


def _choice(default: str) -> Callable[[options.Function], options.Function]:
    """Make the options for a version on a server, by default this one."""
    return options.several(
        click.argument("name"),
        click.option("--version", default="", help=f"Number or label.  [default: {default}]"),
        options.optional("--server", default="", metavar="HOST:PORT", help="Address of the server.  [default: localhost:8001]"),
        options.connection,
        click.option("--timeout-secs", type=options.TIMEOUT, default=600.0, show_default=True, help="Time to wait."),
    )


@click.command(name="load")
@_choice("chosen by the model's version policy")
def load(name: str, version: str, server: str, timeout_secs: float) -> None:
    """Load a version of the model NAME on a running server, or reload it if its files have changed.

    The version that serves requests continues to do so until the new one is ready. The server must run with --model-control
    explicit.
    """
    with connect(server) as client, one_line(ValueError):
        for model in client.load_model(name, version, timeout_seconds=timeout_secs):
            click.echo(f"{model.name} version {model.version}: {model.state}")


@click.command(name="unload")
@_choice("all versions")
def unload(name: str, version: str, server: str, timeout_secs: float) -> None:
    """Unload a version of the model NAME on a running server; return when its last requests have ended.

    The server must run with --model-control explicit.
    """
    with connect(server) as client, one_line(ValueError):
        client.unload_model(name, version, timeout_seconds=timeout_secs)
    click.echo(f"{name}{f' version {version}' if version else ''}: unloaded")


@click.command(name="health")
@options.optional(
    "--server",
    default="",
    metavar="HOST:PORT",
    help="Address of the server.  [default: the one in this container, at TRIPTYCH_HOST and TRIPTYCH_PORT or 8001]",
)
@options.connection
@click.option("--service", default="", help="Such as triptych.v1.TranslationService.  [default: the server as a whole]")
@click.option("--timeout-secs", type=options.TIMEOUT, default=5.0, show_default=True, help="Time to wait.")
def health(server: str, service: str, timeout_secs: float) -> None:
    """Check once whether a server is ready: exit code 0 if so, 1 while it loads or drains or if there is no response."""
    with connect(server or _local_address()) as client, one_line(ValueError):
        serves = client.is_ready(service, timeout_seconds=timeout_secs)
        click.echo("serving" if serves else f"not serving: {_reason(client, timeout_secs)}")
    click.get_current_context().exit(0 if serves else 1)


def _local_address() -> str:
    """Return the address of the server that the variables of this container configure."""
    from triptych_serving.address import format_address

    host = os.environ.get("TRIPTYCH_HOST", "")
    return format_address("127.0.0.1" if host in WILDCARDS else host, os.environ.get("TRIPTYCH_PORT") or DEFAULT_PORT)


def _reason(client: "Client", timeout_seconds: float) -> str:
    """Return what keeps a server from serving: the connection, or models that are not ready."""
    from triptych_client import TriptychClientError

    try:
        models = client.models(timeout_seconds=timeout_seconds, retries=0)
    except TriptychClientError as error:
        return f"{error.code}: {error.message}"
    waiting = [model for model in models if model.state not in ("ready", "unloaded")]
    states = [
        f"{model.name} version {model.version} is {model.state}{f' ({model.state_message})' if model.state_message else ''}"
        for model in waiting
    ]
    return "; ".join(states) or f"it has {len(models) or 'no'} models, but none for this service, or it is shutting down"
