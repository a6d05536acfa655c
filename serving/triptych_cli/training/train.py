"""`triptych train`: train models."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from triptych_cli.common.errors import needs, one_line
from triptych_cli.common.options import Function, Group, refuse_given, several

Recipe = TypeVar("Recipe")
Shape = TypeVar("Shape")
PRECISIONS = ["auto", "fp32", "bf16", "fp16"]
UNLIMITED = 1_000_000  # epochs of a training that ends at another limit
BY_SIZE = "[default: by --size]"
# Shapes of the models by --size.
FIELDS = {
    "transformer": ("model_dim", "heads", "feedforward_dim", "encoder_layers", "decoder_layers"),
    "rnn": ("model_dim", "encoder_layers", "decoder_layers"),
    "bert": ("model_dim", "heads", "feedforward_dim", "layers"),
    "vit": ("model_dim", "heads", "feedforward_dim", "layers"),
    "pvt": ("widths", "depths"),
    "swin": ("model_dim", "depths"),
    "resnet": ("widths", "depths"),
    "gpt": ("model_dim", "heads", "kv_heads", "feedforward_dim", "layers"),
}
SIZES: dict[str, dict[str, tuple[Any, ...]]] = {
    "transformer": {"tiny": (128, 4, 512, 2, 2), "small": (256, 4, 1024, 4, 2), "base": (512, 8, 2048, 6, 6)},
    "rnn": {"tiny": (256, 1, 1), "small": (512, 1, 1), "base": (1024, 2, 2)},
    "bert": {"tiny": (128, 2, 512, 2), "small": (256, 4, 1024, 4), "base": (768, 12, 3072, 12)},
    "vit": {"tiny": (192, 3, 768, 6), "small": (384, 6, 1536, 12), "base": (768, 12, 3072, 12)},
    "pvt": {  # B0, B1 and B2 of the second paper
        "tiny": ((32, 64, 160, 256), (2, 2, 2, 2)),
        "small": ((64, 128, 320, 512), (2, 2, 2, 2)),
        "base": ((64, 128, 320, 512), (3, 4, 6, 3)),
    },
    "swin": {"tiny": (32, (2, 2, 2, 2)), "small": (64, (2, 2, 6, 2)), "base": (96, (2, 2, 6, 2))},
    "resnet": {  # small and base: ResNet-18 and ResNet-34
        "tiny": ((32, 64, 128, 256), (1, 1, 1, 1)),
        "small": ((64, 128, 256, 512), (2, 2, 2, 2)),
        "base": ((64, 128, 256, 512), (3, 4, 6, 3)),
    },
    "gpt": {"tiny": (128, 4, 2, 384, 4), "small": (256, 4, 2, 768, 6), "base": (768, 12, 4, 2048, 12)},
}


@click.group(name="train", cls=Group)
def command() -> None:
    """Train a model; the run folder holds config, checkpoints, metrics and a plot."""


def _option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    return click.option(*names, show_default=settings.get("default") != "", **settings)


VECTORS = "Word vectors (word2vec or GloVe) with which the tokens that are words begin."


def _files(train: str, valid: str, text: bool = True) -> Callable[[Function], Function]:
    return several(
        click.option("--train", "train", multiple=True, required=True, help=train),
        click.option("--valid", "valid", multiple=True, required=text, help=valid),
        click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Run folder to write."),
        click.option("--resume", is_flag=True, help="Continue from the last saved state in the run folder."),
        *([_option("--embeddings", default="", metavar="FILE", help=VECTORS)] if text else []),
    )


def _sizes(architecture: str) -> Callable[[Function], Function]:
    """Make --size, and an option for each field of the shape that depends on it."""
    return several(
        click.option(
            "--size",
            type=click.Choice(["tiny", "small", "base"]),
            default=None,
            help="Shape of the model.  [default: base with a GPU, small with 4 CPUs or more, else tiny]",
        ),
        *(click.option(f"--{field.replace('_', '-')}", type=int, default=None, help=BY_SIZE) for field in FIELDS[architecture]),
    )


def _loop(
    *,
    epochs: int = 20,
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    schedule: str = "inverse-sqrt",
    warmup_steps: int = 400,
    weight_decay: float = 0.0,
    clip_norm: float = 1.0,
    label_smoothing: float | None = 0.0,
    average: int = 1,
    ema_decay: float = 0.0,
) -> Callable[[Function], Function]:
    """Make the options of the training loop with the defaults of a task; a loss that is never smoothed has None."""
    return several(
        click.option(
            "--epochs", type=int, default=None, help=f"[default: {epochs}; with --max-steps or --max-minutes until they end it]"
        ),
        _option("--max-steps", default=0, help="Train for this many optimizer steps; 0: for the epochs."),
        _option(
            "--max-minutes",
            default=0.0,
            help="Train for this time, all runs, reading and validations included; the schedule ends then too. 0: no limit.",
        ),
        _option("--pause-minutes", default=0.0, help="Save the state and stop after this time, to be resumed; 0: never."),
        _option("--accumulate", default=1, help="Batches per optimizer step."),
        _option("--optimizer", type=click.Choice(["adam", "muon", "sgd"]), default=optimizer),
        _option("--learning-rate", default=learning_rate, help="Peak rate; of sgd for one unit of the loss, such as a word."),
        click.option(
            "--schedule",
            type=click.Choice(["inverse-sqrt", "linear", "cosine", "constant"]),
            default=None,
            help=f"[default: {schedule}{'; linear with --max-minutes' if schedule == 'inverse-sqrt' else ''}]",
        ),
        _option("--warmup-steps", default=warmup_steps, help="At most a tenth of the training."),
        _option("--weight-decay", default=weight_decay, help="Of projections and convolutions."),
        _option("--clip-norm", default=clip_norm, help="Largest gradient norm; 0 is off."),
        *([] if label_smoothing is None else [_option("--label-smoothing", default=label_smoothing)]),
        _option("--average", default=average, help="Number of final checkpoints whose weights are averaged."),
        _option("--ema-decay", default=ema_decay, help="Decay of the moving average that becomes the model; 0 is off."),
        _option("--validate-every", default=1, help="Epochs between two validations, each with a checkpoint."),
        _option("--keep", default=0, help="Number of checkpoints to keep, the newest; 0: all."),
        _option("--save-steps", default=500, help="Steps between two saved states."),
        _option("--initial", default="", help="Checkpoint folder to start from: weights, vocabulary and shape."),
        _option("--precision", type=click.Choice(PRECISIONS), default="auto", help="auto: bf16 where it is native."),
        _option("--compile/--no-compile", default=False, help="Use torch.compile, layer by layer; faster on a GPU."),
        _option("--devices", default="auto", help="Number of devices; several run under `torchrun`."),
        _option("--seed", default=1),
    )


@command.command(name="translation")
@_files(
    "source<TAB>target file (.gz and .xz too), or SOURCE::TARGET; en:de=FILE for one model of several directions. Repeatable.",
    "Validation pairs, as --train. Repeatable.",
)
@_option("--source-language", default="", help="BCP 47 code, such as en; not with en:de=FILE.")
@_option("--target-language", default="", help="BCP 47 code, such as de; not with en:de=FILE.")
@_option(
    "--tokenizer", default="", help="The tokenizer.json of another translation training, of any size.  [default: train one]"
)
@_option("--vocabulary-size", default=8000, help="Size of the shared BPE vocabulary.")
@_option("--max-length", default=200, help="Longest side of a training pair, in tokens; longer pairs are left out.")
@_sizes("transformer")
@_option("--architecture", type=click.Choice(["transformer", "rnn"]), default="transformer")
@_option("--cell", type=click.Choice(["gru", "lstm"]), default="gru", help="Of --architecture rnn, as the next three.")
@_option("--attention", type=click.Choice(["additive", "multiplicative", "none"]), default="additive", help="Of the decoder.")
@_option("--teacher-forcing", default=1.0, help="Probability of reading the target in training, not a prediction.")
@_option("--truncate", default=0, help="Target tokens through which a gradient flows back from state to state; 0: all.")
@_option("--norm", type=click.Choice(["post", "pre"]), default="post")
@_option("--activation", type=click.Choice(["relu", "gelu", "silu"]), default="relu")
@_option("--positions", type=click.Choice(["sinusoidal", "learned"]), default="sinusoidal")
@_option("--max-positions", default=512, help="Longest source or target of the model, in tokens.")
@_option("--tie-embeddings/--no-tie-embeddings", default=True, help="One matrix for source, target and output.")
@_option("--dropout", default=0.1)
@_option("--batch-tokens", default=4000, help="Size of a batch: rows x longest side.")
@_loop(label_smoothing=0.1, average=5)
def translation(architecture: str, **options: Any) -> None:
    """Train an encoder-decoder on sentence pairs: a Transformer or a recurrent network."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import TranslationRecipe
    from triptych_training.models.rnn import RnnConfig, TranslationConfig
    from triptych_training.models.transformer import TransformerConfig
    from triptych_training.tasks.translation import train_translation

    kinds: dict[str, type[TranslationConfig]] = {"transformer": TransformerConfig, "rnn": RnnConfig}

    def make_shape(recipe: TranslationRecipe, shape: dict[str, Any]) -> TranslationConfig:
        return kinds[architecture](recipe.vocabulary_size, **shape)

    _run(train_translation, TranslationRecipe, architecture, make_shape, _own_options(kinds, architecture, options))


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
@_sizes("bert")
@_option("--norm", type=click.Choice(["post", "pre"]), default="post")
@_option("--activation", type=click.Choice(["relu", "gelu", "silu"]), default="gelu")
@_option("--max-positions", default=512, help="Longest text of the model, in tokens.")
@_option("--dropout", default=0.1)
@_option("--batch-tokens", default=8192, help="Rows x longest row of a batch.")
@_loop(learning_rate=1e-4, schedule="linear", warmup_steps=1000, weight_decay=0.01)
def bert(**options: Any) -> None:
    """Pre-train a BERT on document-ordered text: masked tokens and next sentences."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import PretrainingRecipe
    from triptych_training.models.bert import BertConfig
    from triptych_training.tasks.pretraining import pretrain

    _run(pretrain, PretrainingRecipe, "bert", lambda recipe, shape: BertConfig(recipe.vocabulary_size, **shape), options)


@command.command(name="gpt")
@_files("Text (.gz and .xz too): paragraphs, a blank line between documents. Repeatable.", "Validation text. Repeatable.")
@_option("--tokenizer", default="", help="A tokenizer.json with <|endoftext|>.  [default: train a byte-level BPE]")
@_option("--vocabulary-size", default=8000, help="Size of the BPE vocabulary.")
@_option("--sequence-length", default=256, help="Length of a training row, in tokens; documents are packed without gaps.")
@_option(
    "--style",
    type=click.Choice(["modern", "gpt2"]),
    default="modern",
    help="modern: RMS norm, rotary positions, SwiGLU, no biases, as Llama; gpt2: layer norm, learned positions, GELU.",
)
@_sizes("gpt")
@_option("--max-positions", default=1024, help="Longest text of the model, in tokens.")
@_option("--tied/--no-tied", default=True, help="One matrix for embedding and output.")
@_option("--dropout", default=0.0)
@_option("--batch-tokens", default=8192, help="Tokens of a batch.")
@_loop(epochs=1, learning_rate=3e-3, schedule="cosine", warmup_steps=200)
def gpt(style: str, **options: Any) -> None:
    """Train a decoder-only model on text: the next token."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import GptRecipe
    from triptych_training.models.gpt import GPT2, GptConfig
    from triptych_training.tasks.language_models import train_gpt

    kept = {name for name, value in options.items() if value is not None}
    kept |= _known("gpt", options).keys() if options["size"] is None else set()

    def make_shape(recipe: GptRecipe, shape: dict[str, Any]) -> GptConfig:
        if style == "gpt2":
            classic = {"kv_heads": 0, "feedforward_dim": 4 * shape["model_dim"]}
            shape |= {**GPT2, **{name: value for name, value in classic.items() if name not in kept}}
        return GptConfig(recipe.vocabulary_size, **shape)

    _run(train_gpt, GptRecipe, "gpt", make_shape, options)


@command.command(name="word2vec")
@_files("Text (.gz and .xz too): paragraphs, a blank line between documents. Repeatable.", "Validation text. Repeatable.")
@_option(
    "--architecture",
    type=click.Choice(["skip-gram", "cbow"]),
    default="skip-gram",
    help="Predict the words around a word, or a word from those around it.",
)
@_option("--model-dim", default=100, help="Length of the vectors.")
@_option("--vocabulary-size", default=50_000, help="Words to learn, the most frequent.")
@_option("--min-count", default=5, help="Least occurrences of a word.")
@_option("--lowercase/--no-lowercase", default=True, help="Convert to lower case.")
@_option("--window", default=5, help="Largest distance of the words around a word.")
@_option("--negatives", default=5, help="Negative samples for each word.")
@_option("--subsample", default=1e-4, help="Share of the text above which a word is left out at random; 0 is off.")
@_option("--batch-words", default=0, help="Words of a batch, at least 32; 0: an eighth of the vocabulary, at most 1,024.")
@_loop(epochs=5, optimizer="sgd", learning_rate=0.05, schedule="linear", warmup_steps=0, clip_norm=0.0, label_smoothing=None)
def word2vec(**options: Any) -> None:
    """Train word vectors (Word2Vec); exported, they embed texts and find neighbours of words."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import WordRecipe
    from triptych_training.tasks.word2vec import train_word2vec

    _run(train_word2vec, WordRecipe, "word2vec", lambda _, shape: shape["model_dim"], options)


@command.command(name="elmo")
@_files("Text (.gz and .xz too): paragraphs, a blank line between documents. Repeatable.", "Validation text. Repeatable.")
@_option("--tokenizer", default="", help="The tokenizer.json of a word2vec or elmo training.  [default: train one]")
@_option("--vocabulary-size", default=20_000, help="Words to learn, the most frequent.")
@_option("--min-count", default=2, help="Least occurrences of a word.")
@_option("--lowercase/--no-lowercase", default=True, help="Convert to lower case.")
@_option("--sequence-length", default=64, help="Length of a training row, in words.")
@_option("--direction-dim", default=256, help="Length of the vectors of each direction.")
@_option("--layers", default=2, help="LSTMs of each direction.")
@_option("--max-positions", default=512, help="Longest text of the model, in words.")
@_option("--dropout", default=0.1)
@_option("--batch-tokens", default=2048, help="Words of a batch.")
@_loop(epochs=10, learning_rate=2e-3, schedule="cosine", warmup_steps=200)
def elmo(**options: Any) -> None:
    """Train forward and backward language models over words (ELMo); exported, they embed texts."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import ElmoRecipe
    from triptych_training.models.elmo import ElmoConfig
    from triptych_training.tasks.language_models import train_elmo

    _run(train_elmo, ElmoRecipe, "elmo", lambda _, shape: ElmoConfig(1, **shape), options)


def _finetuning(name: str, train_help: str, summary: str) -> None:
    """Add the command of a head; the heads differ only in their data."""

    @command.command(name=name, help=summary)
    @_files(train_help, "The same for validation. Repeatable.")
    @_option("--encoder", required=True, help="Checkpoint folder of a BERT.")
    @_option("--max-length", default=0, help="Longest input, in tokens; 0: the encoder's own limit.")
    @_option("--stride", default=64, help="Tokens that two windows of a long context share (question answering).")
    @_option("--dropout", default=0.1)
    @_option("--batch-tokens", default=4096, help="Rows x longest row of a batch.")
    @_loop(
        epochs=3, learning_rate=5e-5, schedule="linear", warmup_steps=100, weight_decay=0.01,
        label_smoothing=None if name == "question-answering" else 0.0,
    )  # fmt: skip
    def finetuning(**options: Any) -> None:
        needs("triptych_training.loop.trainer", "train")
        from triptych_training.loop.recipe import FinetuningRecipe
        from triptych_training.tasks.finetuning import finetune

        options = {"head": name, **options}
        _run(lambda recipe, _, *run: finetune(recipe, *run), FinetuningRecipe, "", lambda _, shape: shape, options)


for _name, _data, _summary in (
    ("text-classification", "text<TAB>label lines, or text<TAB>text<TAB>label.", "label texts, or pairs of texts"),
    ("token-classification", "Word and label a line, a blank line between sentences (CoNLL).", "label the words of texts"),
    ("question-answering", "SQuAD's JSON.", "find answers in texts"),
):
    _finetuning(_name, f"{_data} Repeatable.", f"Fine-tune a BERT to {_summary}.")


def _images() -> Callable[[Function], Function]:
    """Make the options of trainings on folders of images."""
    valid = "The same for validation.  [default: images held out of --train]"
    return several(
        _files("Folder of <class>/<image> files. Repeatable.", valid, text=False),
        _option(
            "--hold-out", default=0.1, help="Share of the images (1 or more: number) to validate on if there is no --valid."
        ),
        _option("--batch-images", default=128),
        _option("--flip/--no-flip", default=True, help="Mirror half of the images."),
        _option("--cache-gib", default=4.0, help="Memory for decoded images, in GiB."),
    )


@command.command(name="vit")
@_images()
@_option("--image-size", default=224, help="Height and width, in pixels.")
@_option("--patch-size", type=int, default=None, help="Height and width, in pixels.  [default: 16; not of a ViT: 4]")
@_option("--architecture", type=click.Choice(["vit", "pvt", "swin", "resnet"]), default="vit")
@_option("--version", type=click.Choice(["1", "2", "2-linear"]), default="2", help="Of --architecture pvt.")
@_option("--widths", type=int, nargs=4, default=None, help=f"Of the stages of a PVT or ResNet.  {BY_SIZE}")
@_option("--depths", type=int, nargs=4, default=None, help=f"Layers or blocks of the stages.  {BY_SIZE}")
@_option("--reductions", type=int, nargs=4, default=(8, 4, 2, 1), help="Of a PVT's keys and values, height and width.")
@_option("--window-size", default=7, help="Of --architecture swin, in patches.")
@_option("--stem", type=click.Choice(["patch", "convolution", "deep"]), default="patch", help="Others help on small data.")
@_sizes("vit")
@_option("--dropout", default=0.0)
@_option("--drop-path", default=0.1, help="Stochastic depth of the last layer, rising from 0.")
@_option("--randaugment-operations", default=2, help="Random operations on every image; 0 is off.")
@_option("--randaugment-magnitude", default=0.3, help="Strength of the operations, 0 to 1.")
@_option("--translate", default=0.125, help="Largest shift, as a share of the image.")
@_option("--erase", default=0.0, help="Share of the images that have a box erased.")
@_option("--mixup", default=0.0, help="Alpha of the Beta distribution; 0 is off.")
@_option("--cutmix", default=0.0, help="Alpha of the Beta distribution; 0 is off.")
@_loop(epochs=100, schedule="cosine", weight_decay=0.05, label_smoothing=0.1, ema_decay=0.999)
def vit(architecture: str, **options: Any) -> None:
    """Train an image classifier on folders of images: a ViT, the pyramid of PVT, the windows of Swin, or a ResNet."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.checkpoints.encoder import IMAGE_KINDS, ImageConfig
    from triptych_training.loop.recipe import ImageRecipe
    from triptych_training.tasks.images import train_image_classifier

    kinds = {member: kind for member, kind, _ in IMAGE_KINDS.values()}

    def make_shape(_: ImageRecipe, shape: dict[str, Any]) -> ImageConfig:
        if architecture == "swin":  # heads of 32 dimensions
            shape["heads"] = tuple(max(1, (shape["model_dim"] << stage) // 32) for stage in range(len(shape["depths"])))
        return kinds[architecture](classes=2, **shape)

    _run(train_image_classifier, ImageRecipe, architecture, make_shape, _own_options(kinds, architecture, options))


@command.command(name="vae")
@_images()
@_option("--image-size", default=32, help="Height and width, in pixels; a multiple of 8.")
@_option("--width", default=32, help="Channels of the first convolution; the next ones have 2 and 4 times as many.")
@_option("--latent-dim", default=128, help="Numbers that stand for an image.")
@_option("--kl-warmup-epochs", default=10, help="Epochs in which the weight of the KL divergence rises to 1.")
@_loop(epochs=100, schedule="cosine", label_smoothing=None)
def vae(**options: Any) -> None:
    """Train a variational autoencoder on folders of images; exported, it generates images."""
    needs("triptych_training.loop.trainer", "train")
    from triptych_training.loop.recipe import VaeRecipe
    from triptych_training.models.vae import VaeConfig
    from triptych_training.tasks.images import train_vae

    _run(train_vae, VaeRecipe, "vae", lambda _, shape: VaeConfig(**shape), options)


def _own_options(kinds: Mapping[str, Any], architecture: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out options of other architectures; refuse those that were given, while their defaults do not matter."""
    fields, sizes = {name: set(kind.__dataclass_fields__) for name, kind in kinds.items()}, (FIELDS[name] for name in kinds)
    foreign = set[str]().union(*fields.values()) - fields[architecture]
    foreign |= set[str]().union(*sizes) - set(FIELDS[architecture])  # such as --heads, one number, of PVT's stages
    refuse_given(foreign, f"is not an option of --architecture {architecture}")
    return {name: value for name, value in options.items() if name not in foreign}


def _sized(architecture: str, shape: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the shape: what is not given is as in the `known` one, or by --size."""
    import torch

    from triptych_serving.runtime.cpu_info import usable_cpus

    size = shape.get("size")
    usual = size or ("base" if torch.cuda.is_available() else "small" if usable_cpus() >= 4 else "tiny")
    by_size = dict(zip(FIELDS.get(architecture, ()), SIZES.get(architecture, {}).get(usual, ()), strict=True))
    context = click.get_current_context()
    default = {name for name in shape if context.get_parameter_source(name) is ParameterSource.DEFAULT}
    given = {name: value for name, value in shape.items() if name not in {"size"} | default}
    defaults = {name: value for name, value in shape.items() if name in default and value is not None}
    return {**defaults, **by_size, **known, **(by_size if size else {}), **given}


def _known(architecture: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Read the shape of the run to resume, or else of the checkpoint to start from; without what depends on the data."""
    paths = [options["out"] / "recipe.json"] * options["resume"]
    paths += [Path(options["initial"]) / "config.json"] if options["initial"] else []
    try:
        shape = next(json.loads(path.read_text(encoding="utf-8")).get(architecture) for path in paths if path.exists()) or {}
        return {name: value for name, value in shape.items() if name not in ("vocabulary_size", "classes")}
    except (OSError, ValueError, AttributeError, StopIteration):  # reported where run or checkpoint is opened
        return {}


def _run(
    train: Callable[[Recipe, Shape, Path, bool], Path],
    kind: type[Recipe],
    architecture: str,
    make_shape: Callable[[Recipe, dict[str, Any]], Shape],
    options: Mapping[str, Any],
) -> None:
    """Train with a recipe of the options of that name; the others are the shape of the model."""
    from triptych_training.errors import TrainingError

    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    given = {name: value for name, value in options.items() if name in names and value is not None}
    shape = {name: value for name, value in options.items() if name not in {*names, "out", "resume"}}
    if options["max_minutes"]:
        usual = kind.schedule  # type: ignore[attr-defined]
        given.setdefault("schedule", "linear" if usual == "inverse-sqrt" else usual)
    if options["max_minutes"] or options["max_steps"]:
        given.setdefault("epochs", UNLIMITED)
    with one_line(TrainingError, ValueError):
        recipe = kind(**given)
        shape = _sized(architecture, shape, _known(architecture, options))
        result = train(recipe, make_shape(recipe, shape), options["out"], options["resume"])
    if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":  # only the first process prints
        click.echo(result)
