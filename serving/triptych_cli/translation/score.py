"""`triptych score`: score given translations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from triptych_cli.common import options
from triptych_cli.common.lines import (
    InputLine,
    batches,
    fail_fast,
    json_row,
    open_writer,
    read_lines,
    reported_failures,
    run_valid,
    score_number,
)
from triptych_cli.translation.backend import open_backend
from triptych_embedded.request import InputError, TranslationRequest

Pair = tuple[str, str]
NO_PAIR = "not a source, a tab and a target"


@click.command(name="score")
@click.argument("source", required=False)
@click.argument("target", required=False)
@options.line_file("-i", "--input", "file", help="Read source<TAB>target lines from this file; - is standard input.")
@options.model_choice
@options.languages
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line, with the log-probability of each token.")
@fail_fast
def command(source: str | None, target: str | None, file: Path | None, as_json: bool, fail_fast: bool, **values: Any) -> None:
    """Print the natural logarithm of the probability that the model gives TARGET as the translation of SOURCE.

    Without SOURCE and TARGET, score each source<TAB>target line of a file or a pipe. The end of the sentence counts too.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    pairs = _pairs(source, target, file)
    opened = open_backend(TranslationRequest(**values))
    with reported_failures(fail_fast) as report, opened as backend, open_writer() as output:
        for batch in batches(pairs, backend.batch):
            scores = run_valid(backend.score, [pair for _, pair in batch])
            for (line, pair), scored in zip(batch, scores, strict=True):
                if isinstance(scored, InputError) or isinstance(pair, InputError):
                    report(line.origin, scored)
                    output.write((json_row(text=line.text, error=str(scored)) if as_json else "") + "\n")
                else:
                    output.write((_json(pair, scored) if as_json else f"{scored.log_probability:.4f}") + "\n")
            output.flush()


def _pairs(source: str | None, target: str | None, file: Path | None) -> Iterator[tuple[InputLine, Pair | InputError]]:
    """Yield lines and their pairs."""
    if source is None:
        return map(_split, read_lines((), file))
    if target is None:
        raise click.UsageError("give SOURCE and TARGET, or lines of both")
    if file is not None:
        raise click.UsageError("give SOURCE and TARGET or --input, not both")
    for _ in read_lines((source, target), None):  # checks them
        pass
    return iter([(InputLine(f"{source}\t{target}", "the pair"), (source, target))])


def _split(line: InputLine) -> tuple[InputLine, Pair | InputError]:
    source, tab, target = line.text.partition("\t")
    return line, (source, target) if tab and "\t" not in target else InputError(0, line.problem or NO_PAIR)


def _json(pair: Pair, scored: Any) -> str:
    return json_row(
        source=pair[0],
        target=pair[1],
        log_probability=score_number(scored.log_probability),
        token_log_probabilities=list(map(score_number, scored.token_log_probabilities)),
    )
