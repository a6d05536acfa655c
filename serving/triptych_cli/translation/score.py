"""`triptych score`: how likely a model finds given translations."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.batch import batches
from triptych_cli.common.errors import one_line
from triptych_cli.common.languages import language_options
from triptych_cli.common.lines import Line, read_lines
from triptych_cli.common.scores import score_number
from triptych_cli.common.writer import open_writer
from triptych_embedded.request import BackendError, InputError, Request, Scored, open_backend

Pair = tuple[str, str]


@click.command(name="score")
@click.argument("source", required=False)
@click.argument("target", required=False)
@click.option(
    "-i",
    "--input",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read source<TAB>target lines from this file.",
)
@options.models
@options.model
@options.server
@options.running
@language_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with every token's log-probability.")
def command(source: str | None, target: str | None, file: Path | None, as_json: bool, **asked: Any) -> None:
    """Print the natural logarithm of the probability that the model gives TARGET as the translation of SOURCE.

    Without SOURCE and TARGET for each source<TAB>target line of a file or a pipe. The end of the sentence counts too.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    pairs = _pairs(source, target, file)
    with one_line(BackendError), open_backend(Request(**asked)) as backend, open_writer() as output:
        for batch in batches(pairs, backend.batch):
            try:
                scores = backend.score([pair for _, pair in batch])
            except InputError as error:
                raise click.ClickException(f"{batch[error.index][0]}: {error}") from error
            for (_, pair), scored in zip(batch, scores, strict=True):
                output.write((_json(pair, scored) if as_json else f"{scored.log_probability:.4f}") + "\n")
            output.flush()


def _pairs(source: str | None, target: str | None, file: Path | None) -> Iterator[tuple[str, Pair]]:
    """Where each pair stands, and the pair."""
    if source is None:
        return map(_split, read_lines((), file))
    if target is None:
        raise click.UsageError("give SOURCE and TARGET, or lines of both")
    if file is not None:
        raise click.UsageError("give SOURCE and TARGET or --input, not both")
    for _ in read_lines((source, target), None):  # checks them
        pass
    return iter([("the pair", (source, target))])


def _split(line: Line) -> tuple[str, Pair]:
    source, tab, target = line.text.partition("\t")
    if not tab or "\t" in target:
        raise click.ClickException(f"{line.place}: not a source, a tab and a target")
    return line.place, (source, target)


def _json(pair: Pair, scored: Scored) -> str:
    values = {
        "source": pair[0],
        "target": pair[1],
        "log_probability": score_number(scored.log_probability),
        "token_log_probabilities": list(map(score_number, scored.token_log_probabilities)),
    }
    return json.dumps(values, ensure_ascii=False)
