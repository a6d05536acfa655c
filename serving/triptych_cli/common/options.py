"""Options that several commands share. `--help` shows the default and the environment variable of each."""

import math
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from triptych_cli.common.lines import read_text
from triptych_embedded.request import AUTO, ModelChoice

Function = TypeVar("Function", bound=Callable[..., Any])

CONNECTION = ("tls", "tls_ca", "tls_client_cert", "tls_client_key", "api_key_file", "allow_plaintext_keys")
NEW_FILE = click.Path(path_type=Path, dir_okay=False)

EXISTING_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
LONGEST_SENTENCE = 1_000  # characters
STDOUT = (Path("-"), Path("/dev/stdout"))  # as a file to write; to open the second one would empty a file


class FloatRange(click.FloatRange):
    """click's accepts nan in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


class Group(click.Group):
    """A group whose help shows the first sentence of each command, which click cuts off after 45 characters."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(LONGEST_SENTENCE)) for name, one in commands.items() if one])


TIMEOUT = FloatRange(min=0, max=1_000_000_000, min_open=True)  # as in the client


def option(name: str, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """Make a `click.option` that the environment variable `TRIPTYCH_<NAME>` sets too."""
    variable = "TRIPTYCH_" + name.split("/", maxsplit=1)[0].lstrip("-").replace("-", "_").upper()
    settings = {"show_default": True, "envvar": variable, "show_envvar": True, **settings}
    return click.option(name, *names, **settings)


def optional(name: str, *names: str, **settings: Any) -> Callable[[Function], Function]:
    """Make an `option` whose default is None, or one that its help text explains."""
    return option(name, *names, **{"default": None, "show_default": False, **settings})


def line_file(*names: str, help: str) -> Callable[[Function], Function]:
    """Make an option for a file of lines. None, its default, is the standard stream, which `-` names too."""

    def standard(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
        return None if value in STDOUT else value

    return click.option(*names, type=NEW_FILE, callback=standard, help=help)


def check_file(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
    """Find out, before the work, whether the file that an option names can be written. Raises click.BadParameter: it cannot."""
    from triptych_client.files import check_target

    try:
        check_target(value)
    except OSError as error:
        raise click.BadParameter(f"{value}: {error.strerror}") from error
    return value


def write_file(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all. Raises OSError: it cannot be written; names the file."""
    from triptych_client.files import replace_file  # not at start-up: the client takes long to import

    replace_file(path, content)


def picture_file(*names: str, help: str, required: bool = False) -> Callable[[Function], Function]:
    """Make an option for a PNG file to write."""

    def check(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
        if value is not None and value.suffix.lower() != ".png":
            raise click.BadParameter(f"{value}: pictures are written as PNG; choose a name that ends with .png")
        return check_file(context, parameter, value)

    return click.option(*names, type=NEW_FILE, callback=check, required=required, help=help)


def text_of(_context: click.Context, _parameter: click.Parameter, file: str | None) -> str:
    """Return the text in the file that an option names; empty without one. Raises click.ClickException: there is no text."""
    if file is None:
        return ""
    if not file:
        raise click.BadParameter("the name of the file is empty")
    text = read_text(file)
    if not text.strip():
        raise click.ClickException(f"{file}: the file is empty")
    return text


def keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Store the value of an option for `kept`."""
    context.meta[f"triptych.{parameter.name}"] = value
    return value


def kept(name: str) -> Any:
    """Return the value that `keep` stored for the running command."""
    return click.get_current_context().meta[f"triptych.{name}"]


def is_given(name: str) -> bool:
    """Tell whether the command line sets a parameter, rather than the environment or a default."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_given(names: Container[str | None], problem: str) -> None:
    """Refuse options with these parameter names, unless they have their defaults. Raises click.UsageError: names the option."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(str(parameter.name)) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{parameter.opts[0]} {problem}")


def several(*added: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Combine options into one decorator; `--help` shows them in this order."""

    def add(function: Function) -> Function:
        for one in reversed(added):
            function = one(function)
        return function

    return add


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
json_lines = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
input_file = line_file("-i", "--input", "source", help="Read lines from this file; - is standard input.")
models = option(
    "--models", type=click.Path(path_type=Path), default=None, help="Model repository.  [default: the embedded models]"
)
model = optional("--model", default="", help="Name of the model.  [default: the one that fits]")
model_version = optional(
    "--model-version", default="", help="A number, or a label such as canary.  [default: the stable version, else the newest]"
)
address = optional(
    "--server", default="", metavar="HOST:PORT", help="Send requests to this server.  [default: run in this process]"
)
precision = optional(
    "--precision",
    help="One of those that `triptych models` lists, such as int8.  [default: the bundle's default; on a GPU its fp16]",
)
device = option(
    "--device",
    default=AUTO,
    metavar="DEVICE,...",
    help="cpu; cuda, cuda:1 or cuda:0,cuda:1; auto: GPUs for models with CUDA graphs, the CPU for all others.",
)
pooling = optional(
    "--pooling",
    type=click.Choice(["mean", "cls"]),
    help="Mean of all tokens, or [CLS] alone.  [default: as the model was trained]",
)
aggregation = optional(
    "--aggregation",
    type=click.Choice(["none", "simple", "first", "average", "max"]),
    help="Single tokens, or entities: of tokens, or of whole words labelled by their first token, the mean or the surest one."
    "  [default: the bundle's, else simple]",
)
gpu_memory_limit = optional(
    "--gpu-memory-limit",
    default="",
    metavar="SIZE",
    help="Memory to use on each GPU, such as 20GiB, or a share such as 0.5.  [default: 0.9 of what is free at the start]",
)
# How an engine in this process runs its model.
running = several(precision, device, gpu_memory_limit)
languages = several(
    *(
        optional(
            f"--{side}-language",
            default="",
            help=f"{side.capitalize()} language, such as {example}, or the model's own code.  [default: the model's only one]",
        )
        for side, example in (("source", "en"), ("target", "de"))
    )
)

# `common.connection` reads these with `kept`: commands that use a server need not know how it is reached.
_hidden = {"expose_value": False, "callback": keep}
_file = click.Path(path_type=Path)
connection = several(
    optional("--tls/--no-tls", help="Encrypt the connection.  [default: if one of the next three is given]", **_hidden),
    optional("--tls-ca", type=_file, help="CA certificates (PEM) to trust instead of the usual ones.", **_hidden),
    optional("--tls-client-cert", type=_file, help="Client certificate, PEM.", **_hidden),
    optional("--tls-client-key", type=_file, help="Key of the client certificate, PEM.", **_hidden),
    optional("--api-key-file", type=_file, help="File with the API key.  [default: the key in TRIPTYCH_API_KEY]", **_hidden),
    option("--allow-plaintext-keys", is_flag=True, help="Send the API key to other machines without TLS.", **_hidden),
)
server = several(address, connection)
local_choice = several(models, model, model_version, running)
# All options of a ModelChoice.
model_choice = several(models, model, model_version, server, running)


def take_choice(values: dict[str, Any]) -> ModelChoice:
    """Remove the options of `model_choice` from the values of a command and return them."""
    return ModelChoice(**{name: values.pop(name) for name in ModelChoice.__dataclass_fields__})


def asks_server() -> bool:
    """Tell whether the running command uses a server; the command line takes precedence over the environment.

    Raises:
        click.UsageError: the command line combines a server with options for an engine in this process, or the reverse.
    """
    given = [name for name in ("server", "models", "precision", "device", "gpu_memory_limit") if is_given(name)]
    if "server" in given and len(given) > 1:
        raise click.UsageError(
            f"--{given[1].replace('_', '-')} is for an engine in this process; with --server the server decides"
        )
    asks = bool(click.get_current_context().params["server"]) and given in ([], ["server"])
    unused = next(filter(is_given, CONNECTION), None)
    if unused and not asks:
        raise click.UsageError(f"--{unused.replace('_', '-')} is for a server: name it with --server")
    return asks
