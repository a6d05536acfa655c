"""The entry point: finds a verb's module only when that verb is asked for."""

import importlib
import signal
import sys

import click

from triptych_client.version import __version__

VERBS = {
    "translate": "Translate text, a file or a pipe.",
    "serve": "Serve a model repository over gRPC.",
    "models": "List the models of a repository or of a server.",
    "export": "Turn a trained checkpoint into a bundle.",
    "train": "Train a model.",
    "evaluate": "Measure a model's translations of a file of sentence pairs.",
}


class Verbs(click.Group):
    """Lists all verbs without importing any of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"triptych_cli.{cmd_name}").command
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
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `triptych translate ... | head` ends quietly
    sys.exit(cli.main(standalone_mode=True))
