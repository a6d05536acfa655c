"""`triptych fill`: what may stand at [MASK]."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from triptych_cli import options
from triptych_cli.backend import BackendError, InputError, Place
from triptych_cli.batch import batches, run_each
from triptych_cli.encoders import FilledText, open_encoders
from triptych_cli.failure import one_line
from triptych_cli.lines import Line, read_lines
from triptych_cli.scores import score_number, score_text
from triptych_cli.writer import open_writer

BATCH = 256  # texts handed over at once


@click.command(name="fill")
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@click.option("-i", "--input", "source", type=click.Path(path_type=Path, dir_okay=False), help="Read lines from this file.")
@options.models
@options.model
@options.server
@options.precision
@options.option("--top-k", type=click.IntRange(min=1), default=5, help="Candidates of each mask.")
@click.option("--targets", default="", metavar="WORD,...", help="Rank these words alone.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(texts: tuple[str, ...], source: Path | None, top_k: int, targets: str, as_json: bool, **asked: str) -> None:
    """Rank what may stand at each [MASK] of each TEXT, or of each line of a file or a pipe.

    Without --server (or TRIPTYCH_SERVER) the engine runs in this process, on the embedded model.
    """
    lines = (line for line in read_lines(texts, source) if line.text.strip())
    words = [word.strip() for word in targets.split(",") if word.strip()]
    bad = False
    with one_line(BackendError), open_encoders(Place(**asked), "fill-mask") as models, open_writer() as output:  # type: ignore[arg-type]
        for batch in batches(lines, BATCH):
            results = run_each(lambda some: models.fill_mask(some, top_k, words), [line.text for line in batch])
            for line, result in zip(batch, results, strict=True):
                output.writelines(f"{row}\n" for row in (_json(line, result) if as_json else _table(result)))
                if isinstance(result, InputError):
                    bad = True
                    click.echo(f"{line.place}: {result}", err=True)
            output.flush()
    if bad:
        click.get_current_context().exit(1)


def _table(result: "FilledText | InputError") -> Iterator[str]:
    """A line for each candidate; a blank line after each mask."""
    if isinstance(result, InputError):
        return
    for mask in result.masks:
        width = max((len(candidate.token_str) for candidate in mask.candidates), default=0)
        for candidate in mask.candidates:
            sequence = " ".join(candidate.sequence.split())
            yield f"{score_text(candidate.score):>7}  {candidate.token_str:<{width}}  {sequence}"
        yield ""


def _json(line: Line, result: "FilledText | InputError") -> Sequence[str]:
    values: dict[str, object] = {"text": line.text}
    if isinstance(result, InputError):
        values["error"] = str(result)
    else:
        values["token_count"] = result.token_count
        values["masks"] = [
            [
                {
                    "score": score_number(candidate.score),
                    "token": candidate.token,
                    "token_str": candidate.token_str,
                    "sequence": candidate.sequence,
                }
                for candidate in mask.candidates
            ]
            for mask in result.masks
        ]
    return [json.dumps(values, ensure_ascii=False)]
