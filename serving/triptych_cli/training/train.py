"""`triptych train`: train models."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from triptych_cli.common.errors import needs, one_line

Function = TypeVar("Function", bound=Callable[..., Any])


@click.group(name="train", help="Train a model; the run folder holds config, checkpoints, metrics and a plot.")
def command() -> None:
    """Group the tasks."""


def _option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    return click.option(*names, show_default=True, **settings)


def _files(train: str, valid: str) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for decorator in (
            click.option("--resume", is_flag=True, help="Continue from the last saved state in the run folder."),
            click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Run folder to write."),
            click.option("--valid", "valid", multiple=True, required=True, help=valid),
            click.option("--train", "train", multiple=True, required=True, help=train),
        ):
            function = decorator(function)
        return function

    return decorate


def _loop(**defaults: Any) -> Callable[[Function], Function]:
    """Make the options of the training loop; `defaults` are the task's own."""
    known: dict[str, Any] = {
        "epochs": 20,
        "optimizer": "adam",
        "learning_rate": 1e-3,
        "schedule": "inverse-sqrt",
        "warmup_steps": 400,
        "weight_decay": 0.0,
        "label_smoothing": 0.1,
        "average": 5,
        "ema_decay": 0.0,
        **defaults,
    }

    def decorate(function: Function) -> Function:
        for decorator in (
            _option("--seed", default=1),
            _option("--devices", default="auto", help="Number of devices; several run under `torchrun`."),
            _option("--compile/--no-compile", default=False, help="Use torch.compile, layer by layer; faster on a GPU."),
            _option(
                "--precision", type=click.Choice(["auto", "fp32", "bf16", "fp16"]), default="auto", help="auto: bf16 on a GPU."
            ),
            _option("--initial", default="", help="Checkpoint folder whose weights and vocabulary to start from."),
            _option("--save-steps", default=500, help="Steps between two saved states."),
            _option("--keep", default=0, help="Number of checkpoints to keep, the newest; 0: all."),
            _option("--validate-every", default=1, help="Epochs between two validations, each with a checkpoint."),
            _option(
                "--ema-decay", default=known["ema_decay"], help="Decay of the moving average that becomes the model; 0 is off."
            ),
            _option("--average", default=known["average"], help="Number of final checkpoints whose weights are averaged."),
            _option("--label-smoothing", default=known["label_smoothing"]),
            _option("--clip-norm", default=1.0, help="Largest gradient norm; 0 is off."),
            _option("--weight-decay", default=known["weight_decay"]),
            _option("--warmup-steps", default=known["warmup_steps"]),
            _option("--schedule", type=click.Choice(["inverse-sqrt", "linear", "cosine"]), default=known["schedule"]),
            _option("--learning-rate", default=known["learning_rate"], help="Peak rate."),
            _option("--optimizer", type=click.Choice(["adam", "muon"]), default=known["optimizer"]),
            _option("--accumulate", default=1, help="Batches per optimizer step."),
            _option("--pause-minutes", default=0.0, help="Save the state and stop after this time, to be resumed; 0: never."),
            _option(
                "--max-minutes",
                default=0.0,
                help="Train for this time, including all runs and validations; the schedule ends then too. 0: no limit.",
            ),
            _option("--max-steps", default=0, help="Train for this many optimizer steps; 0: for the epochs."),
            _option("--epochs", default=known["epochs"]),
        ):
            function = decorator(function)
        return function

    return decorate


@command.command(name="translation")
@_files(
    "source<TAB>target file (.gz and .xz too), or SOURCE::TARGET; en:de=FILE for one model of several directions. Repeatable.",
    "Validation pairs, as --train. Repeatable.",
)
@_option("--source-language", default="", help="BCP 47 code, such as en; not with en:de=FILE.")
@_option("--target-language", default="", help="BCP 47 code, such as de; not with en:de=FILE.")
@_option("--vocabulary-size", default=8000, help="Size of the shared BPE vocabulary.")
@_option("--max-length", default=200, help="Longest side of a training pair, in tokens; longer pairs are left out.")
@_option("--model-dim", default=512)
@_option("--heads", default=8)
@_option("--feedforward-dim", default=2048)
@_option("--encoder-layers", default=6)
@_option("--decoder-layers", default=6)
@_option("--norm", type=click.Choice(["post", "pre"]), default="post")
@_option("--activation", type=click.Choice(["relu", "gelu", "silu"]), default="relu")
@_option("--positions", type=click.Choice(["sinusoidal", "learned"]), default="sinusoidal")
@_option("--max-positions", default=512, help="Longest source or target of the model, in tokens.")
@_option("--tie-embeddings/--no-tie-embeddings", default=True, help="One matrix for source, target and output.")
@_option("--dropout", default=0.1)
@_option("--batch-tokens", default=4000, help="Size of a batch: rows x longest side.")
@_loop()
def translation(out: Path, resume: bool, **options: Any) -> None:
    """Train an encoder-decoder Transformer on sentence pairs."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import TranslationRecipe
    from triptych_training.models.transformer import TransformerConfig
    from triptych_training.tasks.translation import train_translation

    def train() -> Path:
        recipe, shape = _split(TranslationRecipe, options)
        config = TransformerConfig(vocabulary_size=recipe.vocabulary_size, **shape)
        return train_translation(recipe, config, out, resume)

    _run(train)


@command.command(name="bert")
@_files("Text (.gz and .xz too): paragraphs, a blank line between documents. Repeatable.", "Validation text. Repeatable.")
@_option(
    "--tokenizer", default="", help="A tokenizer.json to use.  [default: train a WordPiece vocabulary]", show_choices=False
)
@_option("--vocabulary-size", default=30_000, help="Size of the WordPiece vocabulary.")
@_option("--lowercase/--no-lowercase", default=True, help="Convert to lower case without accents.")
@_option("--sequence-length", default=128, help="Length of a training row, in tokens.")
@_option("--mask-share", default=0.15, help="Share of the tokens to predict.")
@_option("--next-sentence/--no-next-sentence", default=True, help="Also learn which sentence follows (BERT), or not (RoBERTa).")
@_option("--model-dim", default=768)
@_option("--heads", default=12)
@_option("--feedforward-dim", default=3072)
@_option("--layers", default=12)
@_option("--norm", type=click.Choice(["post", "pre"]), default="post")
@_option("--activation", type=click.Choice(["relu", "gelu", "silu"]), default="gelu")
@_option("--max-positions", default=512, help="Longest text of the model, in tokens.")
@_option("--dropout", default=0.1)
@_option("--batch-tokens", default=8192, help="Rows x longest row of a batch.")
@_loop(learning_rate=1e-4, schedule="linear", warmup_steps=1000, weight_decay=0.01, label_smoothing=0.0, average=1)
def bert(out: Path, resume: bool, **options: Any) -> None:
    """Pre-train a BERT on document-ordered text: masked tokens and next sentences."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import PretrainingRecipe
    from triptych_training.models.bert import BertConfig
    from triptych_training.tasks.pretraining import pretrain

    def train() -> Path:
        recipe, shape = _split(PretrainingRecipe, options)
        return pretrain(recipe, BertConfig(vocabulary_size=recipe.vocabulary_size, **shape), out, resume)

    _run(train)


def _finetuning(name: str, train_help: str, summary: str) -> None:
    """Add the command of a head; the heads differ only in their data."""

    @command.command(name=name, help=summary)
    @_files(train_help, "The same for validation. Repeatable.")
    @_option("--encoder", required=True, help="Checkpoint folder of a BERT.")
    @_option("--max-length", default=0, help="Longest input, in tokens; 0: the encoder's own limit.")
    @_option("--stride", default=64, help="Tokens that two windows of a long context share (question answering).")
    @_option("--dropout", default=0.1)
    @_option("--batch-tokens", default=4096, help="Rows x longest row of a batch.")
    @_loop(epochs=3, learning_rate=5e-5, schedule="linear", warmup_steps=100, weight_decay=0.01, label_smoothing=0.0, average=1)
    def finetuning(out: Path, resume: bool, **options: Any) -> None:
        needs("triptych_training.loop.trainer", "train")
        from triptych_training.loop.recipe import FinetuningRecipe
        from triptych_training.tasks.finetuning import finetune

        _run(lambda: finetune(FinetuningRecipe(head=name, **options), out, resume))


_finetuning(
    "text-classification",
    "text<TAB>label lines, or text<TAB>text<TAB>label. Repeatable.",
    "Fine-tune a BERT to label texts, or pairs of texts.",
)
_finetuning(
    "token-classification",
    "Word and label a line, a blank line between sentences (CoNLL). Repeatable.",
    "Fine-tune a BERT to label the words of texts.",
)
_finetuning(
    "question-answering",
    "SQuAD's JSON. Repeatable.",
    "Fine-tune a BERT to find answers in texts.",
)


@command.command(name="vit")
@click.option("--train", "train", multiple=True, required=True, help="Folder of <class>/<image> files. Repeatable.")
@click.option("--valid", "valid", multiple=True, help="The same for validation.  [default: images held out of --train]")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Run folder to write.")
@click.option("--resume", is_flag=True, help="Continue from the last saved state in the run folder.")
@_option("--hold-out", default=5000, help="Images kept for validation where no --valid is given.")
@_option("--image-size", default=224, help="Height and width, in pixels.")
@_option("--patch-size", default=16)
@_option("--stem", type=click.Choice(["patch", "convolution"]), default="patch", help="Convolutions help on small data.")
@_option("--model-dim", default=768)
@_option("--heads", default=12)
@_option("--feedforward-dim", default=3072)
@_option("--layers", default=12)
@_option("--dropout", default=0.0)
@_option("--drop-path", default=0.1, help="Stochastic depth of the last layer, rising from 0.")
@_option("--batch-images", default=128)
@_option("--randaugment-operations", default=2, help="Random operations on every image; 0 is off.")
@_option("--randaugment-magnitude", default=0.3, help="Strength of the operations, 0 to 1.")
@_option("--flip/--no-flip", default=True, help="Mirror half of the images.")
@_option("--translate", default=0.125, help="Largest shift, as a share of the image.")
@_option("--erase", default=0.0, help="Share of the images that have a box erased.")
@_option("--mixup", default=0.0, help="Alpha of the Beta distribution; 0 is off.")
@_option("--cutmix", default=0.0, help="Alpha of the Beta distribution; 0 is off.")
@_option("--cache-gib", default=4.0, help="Memory for decoded images, in GiB.")
@_loop(epochs=100, schedule="cosine", weight_decay=0.05, average=1, ema_decay=0.999)
def vit(out: Path, resume: bool, **options: Any) -> None:
    """Train a Vision Transformer on folders of images."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import ImageRecipe
    from triptych_training.models.vit import VitConfig
    from triptych_training.tasks.image_classification import train_vit

    def train() -> Path:
        recipe, shape = _split(ImageRecipe, options)
        return train_vit(recipe, VitConfig(classes=2, **shape), out, resume)

    _run(train)


def _split(recipe: Callable[..., Any], options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the recipe, and the other options: the shape of the model."""
    names = recipe.__dataclass_fields__.keys()  # type: ignore[attr-defined]
    shape = {name: value for name, value in options.items() if name not in names}
    return recipe(**{name: value for name, value in options.items() if name in names}), shape


def _run(train: Callable[[], Path]) -> None:
    from triptych_training.errors import TrainingError

    with one_line(TrainingError, ValueError):
        result = train()
    if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":  # only the first process prints
        click.echo(result)
