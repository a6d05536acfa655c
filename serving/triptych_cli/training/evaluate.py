"""`triptych evaluate`: measure the quality of a bundle on the engine that serves it."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from triptych.decoding import SplitSentences
from triptych_cli.common import decoding, options
from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.lines import batches, check_stdout
from triptych_cli.training.checkpoint import show_scores
from triptych_cli.translation.backend import Backend, open_backend
from triptych_embedded.request import BackendError, InputError, ModelChoice, TranslationRequest

_hold_out = click.option(
    "--hold-out",
    type=options.FloatRange(min=0),
    default=0.0,
    help="Use this many files in all (below 1: this share), the last of each class; 0: every file.",
)


@click.group(name="evaluate", cls=options.Group)
def command() -> None:
    """Measure the quality of a model."""
    check_stdout()


@command.command(name="translation")
@click.argument("pairs", nargs=-1, required=True)
@options.model_choice
@options.languages
@decoding.beam_size
@decoding.length_penalty
@click.option("--lowercase", is_flag=True, help="Ignore case, as part of the literature does.")
@click.option(
    "--literature",
    type=click.Choice(["de", "en", "fr"]),
    default=None,
    help="Also print BLEU as in papers on small sets: lower case, normalised and tokenised by the rules of this language.",
)
@options.as_json
def translation(pairs: tuple[str, ...], lowercase: bool, literature: str | None, as_json: bool, **values: Any) -> None:
    """Translate the source side of PAIRS (source<TAB>target files, or SOURCE::TARGET) and print sacreBLEU and chrF.

    PAIRS may name their languages, as in en:de=FILE. Every source is translated in one piece, as the model was trained.
    """
    needs("sacrebleu", "train")
    from triptych_text.translation_scores import score_translations
    from triptych_training.data.corpus import read_pairs
    from triptych_training.data.languages import one_language, undirected_files
    from triptych_training.errors import TrainingError
    from triptych_training.evaluation.bleu import literature_score

    with one_line(TrainingError, BackendError):
        for side in ("source", "target"):
            values[f"{side}_language"] = one_language(pairs, side, values[f"{side}_language"])
        examples = read_pairs(undirected_files(pairs))
        whole = replace(decoding.take_decoding(values), split_sentences=SplitSentences.OFF)
        with open_backend(TranslationRequest(**values, decoding=whole)) as backend:
            started = time.monotonic()
            outputs = _translate(backend, [source for source, _ in examples])
            seconds = time.monotonic() - started
            language = backend.target_language()
    references = [target for _, target in examples]
    other = literature_score(outputs, references, literature) if literature else None
    show_scores(score_translations(outputs, references, language, lowercase), other, as_json, seconds)


@command.command(name="fill-mask")
@click.argument("texts", nargs=-1, required=True)
@options.local_choice
@options.optional(
    "--sequence-length",
    type=int,
    help="Tokens per row, including [CLS] and [SEP].  [default: 128, or the model's limit if that is less]",
)
@options.as_json
def fill_mask(texts: tuple[str, ...], sequence_length: int | None, as_json: bool, **values: Any) -> None:
    """Mask 15 % of the tokens of TEXTS (files of paragraphs, a blank line between documents) and predict them.

    80 % of them become [MASK], 10 % another token, 10 % stay: the same ones for every model with the same vocabulary.
    """
    _show("masked_accuracy", as_json, texts, ModelChoice(**values), sequence_length)


@command.command(name="text-generation")
@click.argument("texts", nargs=-1, required=True)
@options.local_choice
@options.optional(
    "--sequence-length",
    type=int,
    help="Tokens per document, from its beginning.  [default: 256, or the model's limit if that is less]",
)
@options.as_json
def text_generation(texts: tuple[str, ...], sequence_length: int | None, as_json: bool, **values: Any) -> None:
    """Print the perplexity of TEXTS (files of paragraphs, a blank line between documents)."""
    _show("text_perplexity", as_json, texts, ModelChoice(**values), sequence_length)


@command.command(name="image-classification")
@click.argument("folders", nargs=-1, required=True)
@options.local_choice
@_hold_out
@options.as_json
def image_classification(folders: tuple[str, ...], hold_out: float, as_json: bool, **values: Any) -> None:
    """Classify the images of FOLDERS, each of <class>/<image> files, and print the accuracy."""
    _show("image_accuracy", as_json, folders, ModelChoice(**values), hold_out)


@command.command(name="image-generation")
@click.argument("folders", nargs=-1, required=True)
@options.local_choice
@_hold_out
@click.option("--samples", type=click.IntRange(min=1), default=64, show_default=True, help="Of each image's latents.")
@options.as_json
def image_generation(folders: tuple[str, ...], hold_out: float, samples: int, as_json: bool, **values: Any) -> None:
    """Print how likely an autoencoder finds the images of FOLDERS, each of <class>/<image> files.

    The figures are negative logarithms for an image, in nats, and for a number of it, in nats and bits: an upper bound, and the
    estimate of importance sampling, which is closer with more samples.
    """
    _show("image_evidence", as_json, folders, ModelChoice(**values), hold_out, samples)


def _show(measurement: str, as_json: bool, *arguments: Any) -> None:
    """Measure with a function of `accuracy`, and print the result."""
    accuracy = needs("triptych_cli.training.accuracy", "train")
    from triptych_training.errors import TrainingError

    with one_line(TrainingError, BackendError, InputError):
        result: Mapping[str, Any] = getattr(accuracy, measurement)(*arguments)
    if as_json:
        click.echo(json.dumps(result))
        return
    for name, value in result.items():
        click.echo(f"{name.replace('_', ' '):16} {value}")


def _translate(backend: Backend, sources: Sequence[str]) -> list[str]:
    outputs: list[str] = []
    for batch in batches(sources, backend.batch):
        for outcome in backend.translate(batch):
            if isinstance(outcome, InputError):
                raise click.ClickException(f"pair {len(outputs) + 1}: {outcome}") from outcome
            outputs.append(outcome.text)
    return outputs
