"""Options as every verb has them: shown with default and environment variable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

Function = TypeVar("Function", bound=Callable[..., Any])


def option(name: str, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """`click.option` that can also be set by `TRIPTYCH_<NAME>` and says so in `--help`."""
    variable = "TRIPTYCH_" + name.split("/", maxsplit=1)[0].lstrip("-").replace("-", "_").upper()
    settings = {"show_default": True, "envvar": variable, "show_envvar": True, **settings}
    return click.option(name, *names, **settings)


models = option(
    "--models", type=click.Path(path_type=Path), default=None, help="Model repository.  [default: the embedded models]"
)
model = option("--model", default="", help="The model's name.  [default: the one that fits]", show_default=False)
server = option(
    "--server", default="", metavar="HOST:PORT", help="Ask this server.  [default: run in this process]", show_default=False
)
precision = option("--precision", default=None, help="fp32 or int8.  [default: the bundle's own]", show_default=False)


def asks_server() -> bool:
    """Whether the running command is for a server; what stands on the command line counts more than the environment.

    Raises:
        click.UsageError: the command line names a server, and what only an engine in this process takes.
    """
    context = click.get_current_context()
    given = [
        name for name in ("server", "models", "precision") if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if "server" in given and len(given) > 1:
        raise click.UsageError(f"--{given[1]} is for an engine in this process; with --server the server decides")
    return bool(context.params["server"]) and given in ([], ["server"])
