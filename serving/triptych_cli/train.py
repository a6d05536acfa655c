"""`triptych train`: the training recipes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from triptych_cli.failure import needs, one_line

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group(name="train", help="Train a model; the run folder holds config, checkpoints, metrics and a plot.")
def command() -> None:
    """Group of the trainable tasks."""


def _option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    return click.option(*names, show_default=True, **settings)


@command.command(name="translation")
@click.option(
    "--train", "train", multiple=True, required=True, help="source<TAB>target file (.gz too), or SOURCE::TARGET. Repeatable."
)
@click.option("--valid", "valid", multiple=True, required=True, help="Validation pairs, as --train. Repeatable.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Run folder to write.")
@click.option("--resume", is_flag=True, help="Go on from the run folder's last saved state.")
@_option("--source-language", required=True, help="BCP 47 code, such as en.")
@_option("--target-language", required=True, help="BCP 47 code, such as de.")
@_option("--vocabulary-size", default=8000, help="Pieces of the shared BPE vocabulary.")
@_option("--max-length", default=200, help="Longest training side, in tokens; longer pairs are left out.")
@_option("--model-dim", default=512)
@_option("--heads", default=8)
@_option("--feedforward-dim", default=2048)
@_option("--encoder-layers", default=6)
@_option("--decoder-layers", default=6)
@_option("--norm", type=click.Choice(["post", "pre"]), default="post")
@_option("--activation", type=click.Choice(["relu", "gelu", "silu"]), default="relu")
@_option("--positions", type=click.Choice(["sinusoidal", "learned"]), default="sinusoidal")
@_option("--max-positions", default=512, help="Longest source or target that the model can take, in tokens.")
@_option("--tie-embeddings/--no-tie-embeddings", default=True, help="One matrix for source, target and output.")
@_option("--dropout", default=0.1)
@_option("--epochs", default=20)
@_option("--batch-tokens", default=4000, help="Rows x longest side of a batch.")
@_option("--accumulate", default=1, help="Batches an optimizer step.")
@_option("--optimizer", type=click.Choice(["adam", "muon"]), default="adam")
@_option("--learning-rate", default=1e-3, help="Peak rate.")
@_option("--schedule", type=click.Choice(["inverse-sqrt", "linear", "cosine"]), default="inverse-sqrt")
@_option("--warmup-steps", default=400)
@_option("--weight-decay", default=0.0)
@_option("--clip-norm", default=1.0, help="Largest gradient norm; 0 is off.")
@_option("--label-smoothing", default=0.1)
@_option("--average", default=5, help="Epochs at the end whose weights are averaged.")
@_option("--save-steps", default=500, help="Steps between two saved states.")
@_option("--precision", type=click.Choice(["auto", "fp32", "bf16"]), default="auto", help="auto: bf16 on a GPU.")
@_option("--devices", default="auto", help="How many; several run under `torchrun`.")
@_option("--seed", default=1)
def translation(out: Path, resume: bool, **options: Any) -> None:
    """Train an encoder-decoder Transformer on sentence pairs."""
    needs("triptych_training.trainer", "train")
    from triptych_training.errors import TrainingError
    from triptych_training.recipe import TranslationRecipe
    from triptych_training.translation import train_translation
    from triptych_training.transformer import TransformerConfig

    with one_line(TrainingError, ValueError):
        recipe_names = TranslationRecipe.__dataclass_fields__.keys()
        recipe = TranslationRecipe(**{name: value for name, value in options.items() if name in recipe_names})
        shape = {name: value for name, value in options.items() if name not in recipe_names}
        folder = train_translation(recipe, TransformerConfig(vocabulary_size=recipe.vocabulary_size, **shape), out, resume)
    if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":  # one of several processes speaks for all
        click.echo(folder)
