"""The entry point. It imports the module of a command only when that command runs."""

import importlib
import io
import os
import re
import sys
from contextlib import suppress
from difflib import get_close_matches
from typing import NamedTuple, NoReturn

import click
from click.core import ParameterSource

from triptych.version import __version__
from triptych_cli.common.errors import INTERRUPTED
from triptych_embedded.request import BackendError

CREDENTIALS = "(give the API key in --api-key-file FILE or the variable TRIPTYCH_API_KEY)"


class CommandEntry(NamedTuple):
    """Module and attribute of a command, below triptych_cli, and its line in the help."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "translate": CommandEntry("translation.translate", "command", "Translate text, a file or a pipe."),
    "translate-docs": CommandEntry("documents.command", "command", "Translate documents of many formats."),
    "memory": CommandEntry("documents.memory", "command", "Fill or read a translation memory."),
    "generate": CommandEntry("generation", "generate", "Continue a text, or chat."),
    "complete-image": CommandEntry("generation", "complete_image", "Complete an image of which the upper part is given."),
    "generate-image": CommandEntry("generation", "generate_image", "Generate images with an autoencoder."),
    "reconstruct-image": CommandEntry("generation", "reconstruct_image", "Show what an autoencoder keeps of an image."),
    "interpolate-images": CommandEntry("generation", "interpolate_images", "Generate images between two images."),
    "score": CommandEntry("translation.score", "command", "Score given translations with a model."),
    "fill": CommandEntry("encoders.text", "fill", "Predict the words behind masks such as [MASK]."),
    "classify": CommandEntry("encoders.image", "command", "Classify images."),
    "classify-text": CommandEntry("encoders.text", "classify_text", "Classify texts, for instance by sentiment or topic."),
    "classify-tokens": CommandEntry("encoders.text", "classify_tokens", "Find names and other entities in texts."),
    "answer": CommandEntry("encoders.text", "answer", "Answer questions from a text."),
    "rerank": CommandEntry("encoders.text", "rerank", "Rank documents by their relevance to a query."),
    "neighbors": CommandEntry("encoders.text", "neighbors", "Find the words most similar to a sum of words."),
    "embed": CommandEntry("encoders.text", "embed", "Compute embedding vectors of texts."),
    "attend": CommandEntry("encoders.attend", "command", "Show what a model attends to, on a page or as a picture."),
    "infer": CommandEntry("encoders.tensors", "command", "Run a model of plain tensors."),
    "serve": CommandEntry("serve.command", "command", "Serve a model repository over gRPC."),
    "playground": CommandEntry("serve.playground", "command", "Try the models on a page in the browser."),
    "models": CommandEntry("admin.models", "command", "List the models of a repository or a server."),
    "load": CommandEntry("admin.server", "load", "Load a model on a running server."),
    "unload": CommandEntry("admin.server", "unload", "Unload a model on a running server."),
    "keys": CommandEntry("admin.keys", "command", "Create, list and revoke the API keys of a server."),
    "health": CommandEntry("admin.server", "health", "Check whether a server is ready: exit code 0 or 1."),
    "export": CommandEntry("training.export", "command", "Export a trained checkpoint as a bundle."),
    "train": CommandEntry("training.train", "command", "Train a model."),
    "distill": CommandEntry("training.distill", "command", "Translate a corpus with a teacher model, to train a smaller one."),
    "checkpoint": CommandEntry("training.checkpoint", "command", "Pack, join and score trained checkpoints."),
    "evaluate": CommandEntry("training.evaluate", "command", "Measure the quality of a model."),
    "bench": CommandEntry("bench.command", "command", "Measure the speed of a server."),
}


class LazyGroup(click.Group):
    """A group that lists all commands without importing any of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        entry = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"triptych_cli.{entry.module}"), entry.attribute)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        close = get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and close:
            raise click.UsageError(f"no command {args[0]!r}; did you mean {close[0]}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="triptych")
def cli() -> None:
    """Serve and run transformer models on ONNX Runtime: translation, text and image tasks."""


def main() -> None:
    """Run the command line; errors are one line on standard error and an exit code other than 0.

    This includes errors of the client and of the backends, so commands need not handle these.
    """
    _prepare()
    try:
        code = cli.main(prog_name="triptych", standalone_mode=False)  # click exits silently if the reader of a pipe has gone
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.exit(code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        named = " ".join(["triptych", *(name for name in sys.argv[1:2] if name in COMMANDS)])  # click's parser knows no context
        path, options = (error.ctx.command_path, error.ctx.command.params) if error.ctx else (named, [])
        flag = "--help-all" if any("--help-all" in option.opts for option in options) else "--help"
        _fail(f"{_message(error)} (see {path} {flag})", error.exit_code)
    except click.ClickException as error:
        _fail(error.format_message() + _remedy(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):  # a second signal interrupts click: timeout(1) sends two
        _fail("interrupted", INTERRUPTED)
    except OSError as error:  # such as a full disk
        where = error.filename or ("" if _output_is_written() else "standard output")
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        _fail(f"{where}: {error.strerror}" if where else error.strerror or str(error), 1)
    except Exception as error:
        client = sys.modules.get("triptych_client.errors")  # if a command has imported it
        if not isinstance(error, (BackendError, client.TriptychClientError) if client else BackendError):
            raise
        _fail(f"{error}{_remedy(error)}", 1)


def _prepare() -> None:
    """Give the command usable streams, and keep gRPC's own lines off standard error."""
    if sys.argv[1:2] != ["serve"]:
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC's core reports failed connections in lines of its own
    if sys.stderr is None:  # it was closed
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):  # it is open
        if isinstance(sys.stdout.buffer, io.RawIOBase):  # PYTHONUNBUFFERED: half a text would be written without an error
            sys.stdout = open(sys.stdout.fileno(), "w", 1, sys.stdout.encoding, closefd=False)  # noqa: SIM115
        sys.stdout.reconfigure(errors="backslashreplace")  # for names that its encoding lacks


def _message(error: click.UsageError) -> str:
    """Return the message of an error; click calls a text instead of a number "not a valid integer range"."""
    message = error.format_message().rstrip(".")
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param is not None else None
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        number = kind.name.removesuffix(" range").replace("integer", "whole number").replace("float", "number")
        message = message.replace(f"is not a valid {kind.name}", f"is not a {number} in the range {kind._describe_range()}")
    has_text = any(each.startswith("-") and " " in each.partition("=")[0] for each in sys.argv)
    if isinstance(error, click.NoSuchOption) and has_text:
        message += "; put -- before texts that begin with a dash"
    return _with_variables(message, error.ctx) if error.ctx else message


def _with_variables(message: str, context: click.Context) -> str:
    """Name the environment variables that set options which the message names; click names them for unset ones, too."""
    for option in context.command.params:
        if not isinstance(option.envvar, str):
            continue
        if context.get_parameter_source(str(option.name)) is not ParameterSource.ENVIRONMENT:
            message = message.replace(f" (env var: '{option.envvar}')", "")
        elif option.envvar not in message and re.search(rf"(?<![\w-])(?:{'|'.join(option.opts)})(?![\w-])", message):
            message += f"; the environment variable {option.envvar} sets {option.opts[0]}"
    return message


def _remedy(error: BaseException | None) -> str:
    """Say how the command line takes an API key, if the lack of a valid one is the cause of an error."""
    while error is not None:
        code = getattr(error, "code", "")
        if (code().name if callable(code) else code) == "UNAUTHENTICATED":  # a method of gRPC's own errors
            return f" {CREDENTIALS}"
        error = error.__cause__
    return ""


def _output_is_written() -> bool:
    """Write what standard output still has. If it cannot, drop that: Python would try again at its end, and exit with 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            sys.stdout.close()
        return False
    return True


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"Error: {' '.join(message.split())}", err=True)
    sys.exit(code)
