"""`triptych evaluate`: BLEU of what a user would get."""

import json
import time
from collections.abc import Sequence

import click

from triptych_cli import options
from triptych_cli.backend import Backend, BackendError, Request, TextError, open_backend
from triptych_cli.failure import needs, one_line


@click.command(name="evaluate")
@click.argument("pairs", nargs=-1, required=True)
@options.models
@options.model
@options.server
@options.precision
@click.option("--lowercase", is_flag=True, help="Compare without regard to case, as part of the literature does.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
def command(pairs: tuple[str, ...], lowercase: bool, as_json: bool, **asked: str) -> None:
    """Translate the source side of PAIRS (source<TAB>target files, or SOURCE::TARGET) and print sacreBLEU."""
    needs("sacrebleu", "train")
    from sacrebleu.metrics.bleu import BLEU

    from triptych_training.corpus import read_pairs
    from triptych_training.errors import TrainingError

    with one_line(TrainingError, BackendError):
        examples = read_pairs(pairs)
        with open_backend(Request(**asked)) as backend:  # type: ignore[arg-type]
            started = time.monotonic()
            outputs = _translate(backend, [source for source, _ in examples])
            seconds = time.monotonic() - started
    scorer = BLEU(lowercase=lowercase)
    score = scorer.corpus_score(outputs, [[target for _, target in examples]]).score
    result = {"bleu": round(score, 2), "signature": str(scorer.get_signature()), "sentences": len(examples)}
    if as_json:
        click.echo(json.dumps({**result, "seconds": round(seconds, 2)}))
    else:
        click.echo(f"BLEU {score:.2f}  ({len(examples):,} sentences in {seconds:.1f} s; {result['signature']})")


def _translate(backend: Backend, sources: Sequence[str]) -> list[str]:
    outputs: list[str] = []
    for first in range(0, len(sources), backend.batch):
        try:
            outputs += [translated.text for translated in backend.translate(sources[first : first + backend.batch])]
        except TextError as error:
            raise click.ClickException(f"pair {first + error.index + 1}: {error}") from error
    return outputs
