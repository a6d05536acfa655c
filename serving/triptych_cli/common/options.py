"""Options as every verb has them: shown with default and environment variable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

Function = TypeVar("Function", bound=Callable[..., Any])

AUTO = "auto"  # of --device
CONNECTION = ("tls", "tls_ca", "tls_client_cert", "tls_client_key", "api_key_file", "allow_plaintext_keys")


def option(name: str, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """`click.option` that can also be set by `TRIPTYCH_<NAME>` and says so in `--help`."""
    variable = "TRIPTYCH_" + name.split("/", maxsplit=1)[0].lstrip("-").replace("-", "_").upper()
    settings = {"show_default": True, "envvar": variable, "show_envvar": True, **settings}
    return click.option(name, *names, **settings)


def keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Put an option's value where `kept` finds it."""
    context.meta[f"triptych.{parameter.name}"] = value
    return value


def kept(name: str) -> Any:
    """What `keep` kept for the running command."""
    return click.get_current_context().meta[f"triptych.{name}"]


def several(*added: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Options that go together, as one decorator; `--help` shows them in this order."""

    def add(function: Function) -> Function:
        for one in reversed(added):
            function = one(function)
        return function

    return add


models = option(
    "--models", type=click.Path(path_type=Path), default=None, help="Model repository.  [default: the embedded models]"
)
model = option("--model", default="", help="The model's name.  [default: the one that fits]", show_default=False)
address = option(
    "--server", default="", metavar="HOST:PORT", help="Ask this server.  [default: run in this process]", show_default=False
)
precision = option(
    "--precision",
    default=None,
    help="fp32, int8, fp16, ...  [default: the bundle's own; on a GPU its fp16]",
    show_default=False,
)
device = option(
    "--device",
    default=AUTO,
    metavar="DEVICE,...",
    help="cpu; cuda, cuda:1 or cuda:0,cuda:1; auto: GPUs for models that have graphs for them, the CPU for all others.",
)
gpu_memory_limit = option(
    "--gpu-memory-limit",
    default="",
    metavar="SIZE",
    help="Of each GPU, such as 20GiB, or a part of its memory such as 0.5.  [default: 0.9 of what is free at the start]",
    show_default=False,
)
# How an engine in this process runs its model.
running = several(precision, device, gpu_memory_limit)


# Kept where `connecting` finds them: how a server is reached is no concern of the verbs that ask it.
_connection = {"expose_value": False, "callback": keep, "show_default": False, "default": None}
_file = click.Path(path_type=Path)
# How to connect to a server; `connecting.connect` does.
connection = several(
    option("--tls/--no-tls", help="Encrypt.  [default: where one of the next three is given]", **_connection),
    option(
        "--tls-ca", type=_file, help="Trust servers with a certificate of these CAs (PEM), not the usual ones.", **_connection
    ),
    option("--tls-client-cert", type=_file, help="Certificate to show to the server, PEM.", **_connection),
    option("--tls-client-key", type=_file, help="Its key, PEM.", **_connection),
    option(
        "--api-key-file",
        type=_file,
        help="File with the API key to send.  [default: TRIPTYCH_API_KEY, the key itself]",
        **_connection,
    ),
    option(
        "--allow-plaintext-keys",
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Send the API key without TLS to other machines too.",
    ),
)


def server(function: Function) -> Function:
    """--server, and how to connect to it."""
    return address(connection(function))


def at_server(function: Function) -> Function:
    """--server of a command that cannot do without, and how to connect to it."""
    add = option("--server", default="", metavar="HOST:PORT", help="The server.  [default: localhost:8001]", show_default=False)
    return add(connection(function))


load_timeout = click.option(
    "--timeout-secs", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True, help="To wait."
)


def asks_server() -> bool:
    """Whether the running command is for a server; what stands on the command line counts more than the environment.

    Raises:
        click.UsageError: the command line names a server and what only an engine in this process takes, or the other way about.
    """
    context = click.get_current_context()
    given = [
        name
        for name in ("server", "models", "precision", "device", "gpu_memory_limit")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if "server" in given and len(given) > 1:
        raise click.UsageError(
            f"--{given[1].replace('_', '-')} is for an engine in this process; with --server the server decides"
        )
    asks = bool(context.params["server"]) and given in ([], ["server"])
    unused = next((name for name in CONNECTION if context.get_parameter_source(name) is ParameterSource.COMMANDLINE), None)
    if unused and not asks:
        raise click.UsageError(f"--{unused.replace('_', '-')} is for a server: name it with --server")
    return asks
