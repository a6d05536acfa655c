"""`triptych embed`: texts as vectors."""

import json
from pathlib import Path

import click

from triptych_cli import options
from triptych_cli.backend import BackendError, InputError, Place
from triptych_cli.batch import batches, run_each
from triptych_cli.encoders import Embedding, open_encoders
from triptych_cli.failure import one_line
from triptych_cli.lines import Line, read_lines
from triptych_cli.writer import open_writer

BATCH = 256  # texts handed over at once


@click.command(name="embed")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("-i", "--input", "source", type=click.Path(path_type=Path, dir_okay=False), help="Read lines from this file.")
@options.models
@options.model
@options.server
@options.precision
@options.option("--pooling", type=click.Choice(["mean", "cls"]), default="mean", help="Of all tokens, or [CLS] alone.")
@options.option("--normalize", is_flag=True, help="Scale each vector to length 1.")
def command(texts: tuple[str, ...], source: Path | None, pooling: str, normalize: bool, **asked: str) -> None:
    """Print a vector for each TEXT, or for each line of a file or a pipe: one JSON object a line.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    lines = (line for line in read_lines(texts, source) if line.text.strip())
    bad = False
    with one_line(BackendError), open_encoders(Place(**asked), "embedding") as models, open_writer() as output:  # type: ignore[arg-type]
        for batch in batches(lines, BATCH):
            results = run_each(lambda some: models.embed(some, pooling, normalize), [line.text for line in batch])
            for line, result in zip(batch, results, strict=True):
                output.write(_json(line, result) + "\n")
                if isinstance(result, InputError):
                    bad = True
                    click.echo(f"{line.place}: {result}", err=True)
            output.flush()
    if bad:
        click.get_current_context().exit(1)


def _json(line: Line, result: "Embedding | InputError") -> str:
    if isinstance(result, InputError):
        return json.dumps({"text": line.text, "error": str(result)}, ensure_ascii=False)
    # Nine digits tell any float32 from the next.
    values = [float(f"{value:.9g}") for value in result.values]
    return json.dumps({"text": line.text, "token_count": result.token_count, "values": values}, ensure_ascii=False)
