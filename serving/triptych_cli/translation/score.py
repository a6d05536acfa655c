"""`triptych score`: score given translations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.errors import one_line
from triptych_cli.common.lines import InputLine, batches, json_row, open_writer, read_lines, score_number
from triptych_cli.translation.backend import PairScore, open_backend
from triptych_embedded.request import BackendError, InputError, TranslationRequest

Pair = tuple[str, str]


@click.command(name="score")
@click.argument("source", required=False)
@click.argument("target", required=False)
@click.option("-i", "--input", "file", type=options.NEW_FILE, help="Read source<TAB>target lines from this file.")
@options.model_choice
@options.languages
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with the log-probability of each token.")
def command(source: str | None, target: str | None, file: Path | None, as_json: bool, **values: Any) -> None:
    """Print the natural logarithm of the probability that the model gives TARGET as the translation of SOURCE.

    Without SOURCE and TARGET, score each source<TAB>target line of a file or a pipe. The end of the sentence counts too.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    pairs = _pairs(source, target, file)
    with one_line(BackendError), open_backend(TranslationRequest(**values)) as backend, open_writer() as output:
        for batch in batches(pairs, backend.batch):
            try:
                scores = backend.score([pair for _, pair in batch])
            except InputError as error:
                raise click.ClickException(f"{batch[error.index][0]}: {error}") from error
            for (_, pair), scored in zip(batch, scores, strict=True):
                output.write((_json(pair, scored) if as_json else f"{scored.log_probability:.4f}") + "\n")
            output.flush()


def _pairs(source: str | None, target: str | None, file: Path | None) -> Iterator[tuple[str, Pair]]:
    """Yield the origin of each pair, and the pair."""
    if source is None:
        return map(_split, read_lines((), file))
    if target is None:
        raise click.UsageError("give SOURCE and TARGET, or lines of both")
    if file is not None:
        raise click.UsageError("give SOURCE and TARGET or --input, not both")
    for _ in read_lines((source, target), None):  # checks them
        pass
    return iter([("the pair", (source, target))])


def _split(line: InputLine) -> tuple[str, Pair]:
    source, tab, target = line.text.partition("\t")
    if not tab or "\t" in target:
        raise click.ClickException(f"{line.origin}: not a source, a tab and a target")
    return line.origin, (source, target)


def _json(pair: Pair, scored: PairScore) -> str:
    return json_row(
        source=pair[0],
        target=pair[1],
        log_probability=score_number(scored.log_probability),
        token_log_probabilities=list(map(score_number, scored.token_log_probabilities)),
    )
