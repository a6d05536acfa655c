"""A training's options, checked once and written into the run folder."""

from collections.abc import Collection
from dataclasses import dataclass

from triptych_training.data.languages import DirectedFile, Direction, directed_files
from triptych_training.errors import RecipeError
from triptych_training.loop.optimizer import ENDING, OPTIMIZERS, SCHEDULES

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
HEADS = ("text-classification", "token-classification", "question-answering")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What all trainings have in common.

    Raises:
        RecipeError: a value is out of range; the message names option, value and limit.
    """

    epochs: int = 20
    max_steps: int = 0  # optimizer steps after which training ends, whatever the epochs; 0: no limit
    max_minutes: float = 0.0  # after which it ends likewise, all runs and their validations counted; 0: no limit
    pause_minutes: float = 0.0  # after which a run saves its state and stops, to be resumed; 0: never
    validate_every: int = 1  # epochs from one validation and checkpoint to the next; the last epoch has both
    keep: int = 0  # newest checkpoints that stay on the disk; 0: all
    initial: str = ""  # checkpoint folder whose weights and vocabulary the training begins with
    accumulate: int = 1  # batches an optimizer step
    optimizer: str = "adam"
    learning_rate: float = 1e-3  # peak
    schedule: str = "inverse-sqrt"
    warmup_steps: int = 400
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    label_smoothing: float = 0.1
    average: int = 5  # last epochs' checkpoints that make the final model
    ema_decay: float = 0.0  # of the moving average that is the model instead, where above 0
    save_steps: int = 500
    precision: str = "auto"  # bf16 on a GPU, fp32 on a CPU
    compile: bool = False  # the layers, by torch.compile
    devices: str = "auto"
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "accumulate", "average", "save_steps", "validate_every"):
            at_least(name, getattr(self, name), 1)
        for name in ("max_steps", "max_minutes", "pause_minutes", "keep", "warmup_steps", "weight_decay", "clip_norm", "seed"):
            at_least(name, getattr(self, name), 0)
        if not self.learning_rate > 0:
            raise RecipeError(f"learning_rate: {self.learning_rate} is not above 0")
        for name in ("label_smoothing", "ema_decay"):
            share(name, getattr(self, name))
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("schedule", self.schedule, SCHEDULES)
        one_of("precision", self.precision, PRECISIONS)
        if self.max_minutes and self.schedule not in ENDING:
            raise RecipeError(f"max_minutes: the schedule {self.schedule} does not end; choose one of {', '.join(ENDING)}")
        if 0 < self.keep < self.averaged:
            raise RecipeError(f"keep: {self.keep} is below average {self.averaged}")

    @property
    def averaged(self) -> int:
        """Checkpoints whose mean is the result; a moving average is one already."""
        return 1 if self.ema_decay else self.average


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(Recipe):
    """How a translation model is trained; lengths and budgets are in tokens.

    A model of several directions has no single source and target language; its files say theirs (`en:de=FILE`).
    """

    train: tuple[str, ...]
    valid: tuple[str, ...]
    source_language: str = ""
    target_language: str = ""
    vocabulary_size: int = 8_000
    max_length: int = 200  # longer pairs are left out of training, and counted
    batch_tokens: int = 4_000  # rows x longest side of one batch

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("batch_tokens", self.batch_tokens, 1)
        at_least("max_length", self.max_length, 1)
        at_least("vocabulary_size", self.vocabulary_size, 260)  # 256 bytes and the special tokens
        need_files(self.train, self.valid)
        known = {file.direction for file in self.train_files}
        if unknown := [":".join(file.direction) for file in self.valid_files if file.direction not in known]:
            raise RecipeError(f"valid: there is no training file for {', '.join(unknown)}")
        if self.valid_files[0].direction != self.train_files[0].direction:
            raise RecipeError(f"valid: a file is needed for the first direction, {':'.join(self.train_files[0].direction)}")

    @property
    def train_files(self) -> list[DirectedFile]:
        """`train` with languages."""
        return directed_files(self.train, (self.source_language, self.target_language))

    @property
    def valid_files(self) -> list[DirectedFile]:
        """`valid` likewise, those of the first training file's direction first."""
        files = directed_files(self.valid, (self.source_language, self.target_language))
        return sorted(files, key=lambda file: file.direction != self.train_files[0].direction)

    @property
    def directions(self) -> list[Direction]:
        """All that are trained."""
        return list(dict.fromkeys(file.direction for file in self.train_files))


@dataclass(frozen=True, kw_only=True)
class PretrainingRecipe(Recipe):
    """How a BERT is pre-trained; lengths and budgets are in tokens."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    tokenizer: str = ""  # a tokenizer.json to use; empty: train a WordPiece vocabulary
    vocabulary_size: int = 30_000
    lowercase: bool = True
    sequence_length: int = 128  # of a row, [CLS] and [SEP] included
    batch_tokens: int = 8_192
    mask_share: float = 0.15
    next_sentence: bool = True
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("sequence_length", self.sequence_length, 8)
        at_least("batch_tokens", self.batch_tokens, self.sequence_length)
        at_least("vocabulary_size", self.vocabulary_size, 100)
        share("mask_share", self.mask_share)
        need_files(self.train, self.valid)


@dataclass(frozen=True, kw_only=True)
class FinetuningRecipe(Recipe):
    """How a head is trained on a pre-trained BERT; lengths and budgets are in tokens."""

    head: str
    encoder: str  # checkpoint folder
    train: tuple[str, ...]
    valid: tuple[str, ...]
    max_length: int = 0  # of an input, [CLS] and [SEP] included; 0: the model's own limit
    stride: int = 64  # tokens that two windows of a long context share (question answering)
    batch_tokens: int = 4_096
    dropout: float = 0.1
    epochs: int = 3
    learning_rate: float = 5e-5
    schedule: str = "linear"
    warmup_steps: int = 100
    weight_decay: float = 0.01
    average: int = 1
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("head", self.head, HEADS)
        for name in ("max_length", "stride"):
            at_least(name, getattr(self, name), 0)
        at_least("batch_tokens", self.batch_tokens, 1)
        share("dropout", self.dropout)
        need_files(self.train, self.valid)


@dataclass(frozen=True, kw_only=True)
class ImageRecipe(Recipe):
    """How a ViT is trained on image folders."""

    train: tuple[str, ...]  # folders of <class>/<image>
    valid: tuple[str, ...] = ()  # the same; empty: `hold_out` images of the training folders
    hold_out: int = 5_000
    batch_images: int = 128
    randaugment_operations: int = 2  # of every image; 0 is off
    randaugment_magnitude: float = 0.3  # 0 to 1
    flip: bool = True  # half of the images, left to right
    translate: float = 0.125  # at most this share of the image, either way
    erase: float = 0.0  # of the images lose a box (Zhong et al. 2020)
    mixup: float = 0.0  # alpha of the Beta distribution (Zhang et al. 2018); 0 is off
    cutmix: float = 0.0  # the same (Yun et al. 2019)
    cache_gib: float = 4.0  # memory for decoded images
    schedule: str = "cosine"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hold_out", "randaugment_operations", "mixup", "cutmix", "cache_gib"):
            at_least(name, getattr(self, name), 0)
        at_least("batch_images", self.batch_images, 1)
        for name in ("randaugment_magnitude", "translate", "erase"):
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(f"{name}: {getattr(self, name)} is outside [0, 1]")
        if not self.train:
            raise RecipeError("train: needs at least one folder")
        if not self.valid and not self.hold_out:
            raise RecipeError("valid: name folders, or let hold_out take images from the training folders")


def at_least(name: str, value: float, limit: float) -> None:
    """Refuse a value below `limit`, or one that is no number.

    Raises:
        RecipeError: names option, value and limit.
    """
    if not value >= limit:
        raise RecipeError(f"{name}: {value} is below {limit}")


def share(name: str, value: float) -> None:
    """Refuse what is not in [0, 1).

    Raises:
        RecipeError: names option and value.
    """
    if not 0 <= value < 1:
        raise RecipeError(f"{name}: {value} is outside [0, 1)")


def one_of(name: str, value: str, choices: Collection[str]) -> None:
    """Refuse an unknown name.

    Raises:
        RecipeError: names option, value and choices.
    """
    if value not in choices:
        raise RecipeError(f"{name}: {value!r} is unknown; choose one of {', '.join(choices)}")


def need_files(train: Collection[str], valid: Collection[str]) -> None:
    """Refuse a recipe without data.

    Raises:
        RecipeError: there is none.
    """
    if not train or not valid:
        raise RecipeError("train and valid: both need at least one file")
