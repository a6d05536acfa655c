"""The entry point: finds a verb's module only when that verb is asked for."""

import importlib
import sys
from typing import NoReturn

import click

from triptych.version import __version__

VERBS = {
    "translate": "Translate text, a file or a pipe.",
    "translate-docs": "Translate documents of many formats.",
    "memory": "Fill a translation memory, or read it.",
    "score": "Say how likely a model finds translations.",
    "fill": "Rank what may stand at [MASK].",
    "classify": "Say what is on photos.",
    "classify-text": "Say what texts are: a sentiment, a topic.",
    "classify-tokens": "Find names and other entities in texts.",
    "answer": "Answer questions from a text.",
    "embed": "Turn texts into vectors.",
    "serve": "Serve a model repository over gRPC.",
    "models": "List the models of a repository or of a server.",
    "load": "Have a server load a model.",
    "unload": "Have a server unload a model.",
    "keys": "Make, list and revoke a server's API keys.",
    "health": "Say whether a server serves: exit code 0 or 1.",
    "export": "Turn a trained checkpoint into a bundle.",
    "train": "Train a model.",
    "distill": "Translate a corpus with a trained model, for a smaller one to learn from.",
    "checkpoint": "Make trained checkpoints small, join and score them.",
    "evaluate": "Measure how good a model is.",
    "bench": "Measure how fast a server is.",
}


INTERRUPTED = 130  # as shells report SIGINT


class Verbs(click.Group):
    """Lists all verbs without importing any of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"triptych_cli.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="triptych")
def cli() -> None:
    """Translation, masked-token fill and image classification on ONNX Runtime."""


def main() -> None:
    """Run the command line; errors are one line on stderr and a code that is not 0."""
    try:
        sys.exit(cli.main(standalone_mode=False))  # click itself ends quietly where a pipe's reader has gone
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.UsageError as error:
        help_command = f"{error.ctx.command_path if error.ctx else 'triptych'} --help"
        _fail(f"{error.format_message().rstrip('.')} (see {help_command})", error.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except click.Abort:
        _fail("interrupted", INTERRUPTED)
    except OSError as error:  # such as a full disk behind standard output
        _fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error), 1)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"Error: {' '.join(message.split())}", err=True)
    sys.exit(code)
