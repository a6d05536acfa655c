"""`triptych playground`: a server for this machine with a page for trying its models."""

from __future__ import annotations

import asyncio
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triptych_cli.common import options
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.options import option
from triptych_cli.serve import flags
from triptych_embedded.request import embedded_repository

if TYPE_CHECKING:
    from triptych_serving.server import Server

LOCAL = "127.0.0.1"


@click.command(name="playground")
@options.models
@option("--port", envvar="TRIPTYCH_HTTP_PORT", type=flags.PORT, default=8000, help="Port of the page; 0: any free one.")
@option("--browser/--no-browser", default=True, help="Open the page in a browser.")
def command(models: Path | None, port: int, browser: bool) -> None:
    """Serve models on this machine alone, and open a page for trying them."""
    needs("triptych_serving.server", "serve")
    needs("uvicorn", "http")
    from triptych_serving.errors import ServingError
    from triptych_serving.gateway.options import GatewayOptions
    from triptych_serving.observability.options import ObservabilityOptions
    from triptych_serving.repository.model_manager import RepositoryOptions
    from triptych_serving.server import ServerOptions, serve

    def show(server: Server) -> None:
        url = f"http://localhost:{server.http_port}/"
        click.echo(f"playground on {url}; press Ctrl-C to stop", err=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    settings = ServerOptions(
        repository=RepositoryOptions(models or embedded_repository()),
        host=LOCAL,
        port=0,
        observability=ObservabilityOptions(metrics_port=None),
        gateway=GatewayOptions(LOCAL, port, playground=True, port_flag="--port"),
    )
    with one_line(ServingError):
        asyncio.run(serve(settings, show))
