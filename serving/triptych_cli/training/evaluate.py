"""`triptych evaluate`: how good a model's bundle is, measured on the engine that serves it."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from triptych_cli.common import decoding, options
from triptych_cli.common.batch import batches
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.languages import language_options
from triptych_embedded.request import Backend, BackendError, InputError, Place, Request, open_backend

as_json_option = click.option("--json", "as_json", is_flag=True, help="For scripts.")


@click.group(name="evaluate", help="Measure how good a model is.")
def command() -> None:
    """Group of the tasks that can be measured."""


@command.command(name="translation")
@click.argument("pairs", nargs=-1, required=True)
@options.models
@options.model
@options.server
@options.running
@language_options
@decoding.beam_size
@decoding.length_penalty
@click.option("--lowercase", is_flag=True, help="Compare without regard to case, as part of the literature does.")
@click.option(
    "--literature",
    type=click.Choice(["de", "en", "fr"]),
    default=None,
    help="BLEU too as papers on small sets report it, in lower case, normalised and tokenised by this language's rules.",
)
@as_json_option
def translation(pairs: tuple[str, ...], lowercase: bool, literature: str | None, as_json: bool, **asked: Any) -> None:
    """Translate the source side of PAIRS (source<TAB>target files, or SOURCE::TARGET) and print sacreBLEU.

    Every source is translated in one piece, as the model was trained.
    """
    needs("sacrebleu", "train")
    from sacrebleu.metrics.bleu import BLEU

    from triptych_training.data.corpus import read_pairs
    from triptych_training.errors import TrainingError
    from triptych_training.evaluation.bleu import literature_score

    with one_line(TrainingError, BackendError):
        examples = read_pairs(pairs)
        how = replace(decoding.take_decoding(asked), split_sentences=decoding.OFF)
        with open_backend(Request(**asked, decoding=how)) as backend:
            started = time.monotonic()
            outputs = _translate(backend, [source for source, _ in examples])
            seconds = time.monotonic() - started
    scorer = BLEU(lowercase=lowercase)
    score = scorer.corpus_score(outputs, [[target for _, target in examples]]).score
    result = {"bleu": round(score, 2), "signature": str(scorer.get_signature()), "sentences": len(examples)}
    other = literature_score(outputs, [target for _, target in examples], literature) if literature else None
    if other is not None:
        result |= {"literature": round(other.bleu, 2), "literature_signature": other.signature}
    if as_json:
        click.echo(json.dumps({**result, "seconds": round(seconds, 2)}))
    else:
        click.echo(f"BLEU {score:.2f}  ({len(examples):,} sentences in {seconds:.1f} s; {result['signature']})")
        if other is not None:
            click.echo(f"BLEU {other.bleu:.2f}  ({other.signature})")


@command.command(name="fill-mask")
@click.argument("texts", nargs=-1, required=True)
@options.models
@options.model
@options.running
@options.option("--sequence-length", default=128, help="Tokens of a row, [CLS] and [SEP] included.")
@as_json_option
def fill_mask(texts: tuple[str, ...], sequence_length: int, as_json: bool, **asked: Any) -> None:
    """Hide 15 % of the tokens of TEXTS (files of paragraphs, a blank line between documents) and have them filled.

    80 % of them are behind [MASK], 10 % behind another token, 10 % as they were: the same ones for every model of a vocabulary.
    """
    needs("triptych_training.tasks.pretraining", "train")
    from triptych_cli.training.evaluation import masked_accuracy
    from triptych_training.errors import TrainingError

    with one_line(TrainingError, BackendError):
        _show(masked_accuracy(texts, Place(**asked), sequence_length), as_json)


@command.command(name="image-classification")
@click.argument("folders", nargs=-1, required=True)
@options.models
@options.model
@options.running
@click.option("--hold-out", default=0, show_default=True, help="Only these last of each class' files, in all; 0: every file.")
@as_json_option
def image_classification(folders: tuple[str, ...], hold_out: int, as_json: bool, **asked: Any) -> None:
    """Classify the images of FOLDERS, each of <class>/<image> files, and print the accuracy."""
    needs("triptych_training.data.images", "train")
    from triptych_cli.training.evaluation import image_accuracy
    from triptych_training.errors import TrainingError

    with one_line(TrainingError, BackendError):
        _show(image_accuracy(folders, Place(**asked), hold_out), as_json)


def _show(result: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result))
        return
    for name, value in result.items():
        click.echo(f"{name.replace('_', ' '):16} {value}")


def _translate(backend: Backend, sources: Sequence[str]) -> list[str]:
    outputs: list[str] = []
    for batch in batches(sources, backend.batch):
        try:
            outputs += [translated.text for translated in backend.translate(batch)]
        except InputError as error:
            raise click.ClickException(f"pair {len(outputs) + error.index + 1}: {error}") from error
    return outputs
