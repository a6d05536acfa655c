"""`triptych embed`: texts as vectors."""

from collections.abc import Iterator
from pathlib import Path

import click

from triptych_cli.common import options
from triptych_cli.common.lines import read_lines
from triptych_cli.encoders.backends import Embedding
from triptych_cli.encoders.texts import json_row, run_texts, text_verb


@click.command(name="embed")
@text_verb
@options.option(
    "--pooling",
    type=click.Choice(["mean", "cls"]),
    default=None,
    show_default=False,
    help="Of all tokens, or [CLS] alone.  [default: as the model was trained]",
)
@click.option(
    "--normalize/--no-normalize", default=None, help="Scale each vector to length 1.  [default: as the model was trained]"
)
def command(texts: tuple[str, ...], source: Path | None, pooling: str | None, normalize: bool | None, **asked: str) -> None:
    """Print a vector for each TEXT, or for each line of a file or a pipe: one JSON object a line.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    run_texts(
        asked,
        "embedding",
        read_lines(texts, source),
        lambda models, some: models.embed(some, pooling, normalize),
        _json,
        as_json=True,
    )


def _json(text: str, result: "Embedding") -> Iterator[str]:
    # Nine digits tell any float32 from the next.
    values = [float(f"{value:.9g}") for value in result.values]
    yield json_row(text=text, token_count=result.token_count, values=values)
