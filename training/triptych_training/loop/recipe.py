"""Options of a training, checked at once and written into the run folder."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from triptych_training.checks import at_least, fraction, one_of
from triptych_training.data.languages import DirectedFile, Direction, directed_files
from triptych_training.errors import RecipeError
from triptych_training.loop.optimizer import ENDING, OPTIMIZERS, SCHEDULES

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
WORD_ARCHITECTURES = ("skip-gram", "cbow")
LARGEST_SEED = 2**32 - 1  # of numpy's generators
HEADS = ("text-classification", "token-classification", "question-answering")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Options that all trainings share; raises RecipeError if a value is out of range."""

    train: tuple[str, ...]  # files, or folders of images
    epochs: int = 20
    max_steps: int = 0  # end after this many optimizer steps; 0: no limit
    max_minutes: float = 0.0  # end after this time of all runs, reading and validation included; 0: no limit
    pause_minutes: float = 0.0  # save the state and stop after this time of one run, to be resumed; 0: never
    cpu_time: bool = False  # all times are those of this process on its CPUs, whatever else the machine computes meanwhile
    validate_every: int = 1  # epochs between two validations and checkpoints; the last epoch always has both
    keep: int = 0  # newest checkpoints kept on disk; 0: all
    initial: str = ""  # checkpoint folder to take weights and vocabulary from
    accumulate: int = 1  # batches per optimizer step
    optimizer: str = "adam"
    learning_rate: float = 1e-3  # peak
    schedule: str = "inverse-sqrt"
    warmup_steps: int = 400  # at most a tenth of the training
    weight_decay: float = 0.0  # of projections and convolutions
    clip_norm: float = 1.0
    label_smoothing: float = 0.0
    average: int = 1  # the final model is the mean of the last epochs' checkpoints
    ema_decay: float = 0.0  # if above 0, the final model is the moving average of the weights
    save_steps: int = 500
    precision: str = "auto"  # bf16 on a GPU, and on a CPU with instructions for it; otherwise fp32
    compile: bool = False  # compile the layers with torch.compile
    devices: str = "auto"
    seed: int = 1

    def __post_init__(self) -> None:
        try:
            self.check()
        except ValueError as error:
            raise RecipeError(str(error)) from None

    def check(self) -> None:
        """Raise ValueError or RecipeError if a value is out of range."""
        at_least(1, self, "epochs", "accumulate", "average", "save_steps", "validate_every")
        at_least(0, self, "max_steps", "max_minutes", "pause_minutes", "keep")
        at_least(0, self, "warmup_steps", "weight_decay", "clip_norm", "seed")
        if not self.learning_rate > 0:
            raise RecipeError(f"learning_rate: {self.learning_rate} is not above 0")
        if self.seed > LARGEST_SEED:
            raise RecipeError(f"seed: {self.seed} is above {LARGEST_SEED}")
        fraction(self, "label_smoothing", "ema_decay")
        one_of(OPTIMIZERS, self, "optimizer")
        one_of(SCHEDULES, self, "schedule")
        one_of(PRECISIONS, self, "precision")
        if self.max_minutes and self.schedule not in ENDING:
            raise RecipeError(f"max_minutes: the schedule {self.schedule} has no end; choose one of {', '.join(ENDING)}")
        if 0 < self.keep < self.averaged:
            raise RecipeError(f"keep: {self.keep} is below average {self.averaged}")

    @property
    def files(self) -> tuple[str, ...]:
        """Files or folders to train on."""
        return self.train

    def now(self) -> float:
        """Read the clock that times and their limits are taken from, in seconds."""
        return time.process_time() if self.cpu_time else time.monotonic()

    @property
    def kind(self) -> Mapping[str, Any]:
        """Members of a config.json, beside the shape, that a checkpoint to start from must have."""
        return {}

    @property
    def averaged(self) -> int:
        """Number of checkpoints to average for the final model: one if it is a moving average already."""
        return 1 if self.ema_decay else self.average


@dataclass(frozen=True, kw_only=True)
class TextRecipe(Recipe):
    """Options of trainings on files of text."""

    valid: tuple[str, ...]
    tokenizer: str = ""  # a tokenizer.json with the special tokens; empty: train one
    embeddings: str = ""  # file of word vectors, with which the token table begins
    batch_tokens: int = 4_000  # rows x longest row of a batch

    def check(self) -> None:
        super().check()
        at_least(1, self, "batch_tokens")
        if not self.train or not self.valid:
            raise RecipeError("train and valid: both need at least one file")
        if self.initial and self.tokenizer:
            raise RecipeError("tokenizer: the checkpoint to start from (initial) has one, which its weights fit; leave it out")

    @property
    def known_tokenizer(self) -> str:
        """File of the tokenizer that is given, or that of the checkpoint to begin with; empty if one is to be trained."""
        return self.tokenizer or (f"{self.initial}/tokenizer.json" if self.initial else "")


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(TextRecipe):
    """Options for translation models; lengths and budgets are in tokens.

    A model of several directions has no `source_language` and `target_language`; its files name theirs (`en:de=FILE`).
    """

    source_language: str = ""
    target_language: str = ""
    vocabulary_size: int = 8_000
    max_length: int = 200  # longer pairs are left out of training, and counted
    label_smoothing: float = 0.1
    average: int = 5

    def check(self) -> None:
        super().check()
        at_least(1, self, "max_length")
        at_least(260, self, "vocabulary_size")  # 256 bytes and the special tokens
        known = {file.direction for file in self.train_files}
        if unknown := [":".join(file.direction) for file in self.valid_files if file.direction not in known]:
            raise RecipeError(f"valid: there is no training file for {', '.join(unknown)}")
        if self.valid_files[0].direction != self.train_files[0].direction:
            raise RecipeError(f"valid: a file is needed for the first direction, {':'.join(self.train_files[0].direction)}")

    @property
    def train_files(self) -> list[DirectedFile]:
        """Training files with their languages."""
        return directed_files(self.train, (self.source_language, self.target_language))

    @property
    def files(self) -> tuple[str, ...]:
        """Files to train on."""
        return tuple(file.path for file in self.train_files)

    @property
    def valid_files(self) -> list[DirectedFile]:
        """Validation files with their languages, those of the first direction first."""
        files = directed_files(self.valid, (self.source_language, self.target_language))
        return sorted(files, key=lambda file: file.direction != self.train_files[0].direction)

    @property
    def directions(self) -> list[Direction]:
        """Directions to train, in the order of the training files."""
        return list(dict.fromkeys(file.direction for file in self.train_files))


@dataclass(frozen=True, kw_only=True)
class RowRecipe(TextRecipe):
    """Options for models that read running text in rows; lengths and budgets are in tokens."""

    sequence_length: int = 128  # of a row, special tokens included
    batch_tokens: int = 8_192

    def check(self) -> None:
        super().check()
        at_least(2, self, "sequence_length")
        at_least(self.sequence_length, self, "batch_tokens")

    def fit(self, max_positions: int) -> None:
        """Raise RecipeError if rows are longer than a model has positions."""
        if self.sequence_length > max_positions:
            raise RecipeError(f"sequence_length: {self.sequence_length} is above max_positions {max_positions}")


@dataclass(frozen=True, kw_only=True)
class PretrainingRecipe(RowRecipe):
    """Options for the pre-training of BERT."""

    vocabulary_size: int = 30_000  # of a WordPiece tokenizer
    lowercase: bool = True
    mask_share: float = 0.15
    next_sentence: bool = True
    learning_rate: float = 1e-4
    schedule: str = "linear"
    warmup_steps: int = 1_000
    weight_decay: float = 0.01

    def check(self) -> None:
        super().check()
        at_least(8, self, "sequence_length")
        at_least(100, self, "vocabulary_size")
        fraction(self, "mask_share")

    @property
    def kind(self) -> Mapping[str, Any]:
        return {"head": "pretraining", "next_sentence": self.next_sentence}


@dataclass(frozen=True, kw_only=True)
class GptRecipe(RowRecipe):
    """Options for decoder-only models."""

    vocabulary_size: int = 8_000  # of a byte-level BPE
    sequence_length: int = 256
    epochs: int = 1
    learning_rate: float = 3e-3
    schedule: str = "cosine"
    warmup_steps: int = 200

    def check(self) -> None:
        super().check()
        at_least(257, self, "vocabulary_size")  # 256 bytes and the end of a text


@dataclass(frozen=True, kw_only=True)
class ElmoRecipe(RowRecipe):
    """Options for ELMo; lengths and budgets are in words."""

    vocabulary_size: int = 20_000
    min_count: int = 2  # occurrences of a word in the training text
    lowercase: bool = True
    sequence_length: int = 64
    batch_tokens: int = 2_048
    epochs: int = 10
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    warmup_steps: int = 200

    def check(self) -> None:
        super().check()
        at_least(2, self, "vocabulary_size")
        at_least(1, self, "min_count")


@dataclass(frozen=True, kw_only=True)
class WordRecipe(TextRecipe):
    """Options for the training of word vectors (Word2Vec)."""

    architecture: str = "skip-gram"
    vocabulary_size: int = 50_000
    min_count: int = 5  # occurrences of a word in the training text
    lowercase: bool = True
    window: int = 5  # largest distance of the words around a word
    negatives: int = 5  # negative samples for each word
    subsample: float = 1e-4  # share of the text from which words are left out at random; 0: none are
    batch_words: int = 0  # 0: an eighth of the vocabulary, at most 1,024
    epochs: int = 5
    optimizer: str = "sgd"
    learning_rate: float = 0.05
    schedule: str = "linear"
    warmup_steps: int = 0
    clip_norm: float = 0.0

    def check(self) -> None:
        super().check()
        one_of(WORD_ARCHITECTURES, self, "architecture")
        at_least(2, self, "vocabulary_size")
        at_least(1, self, "min_count", "window", "negatives")
        at_least(0, self, "subsample", "batch_words")


@dataclass(frozen=True, kw_only=True)
class FinetuningRecipe(TextRecipe):
    """Options for the fine-tuning of a head on a pre-trained BERT; lengths and budgets are in tokens."""

    head: str
    encoder: str  # checkpoint folder
    max_length: int = 0  # of an input, [CLS] and [SEP] included; 0: the model's limit
    stride: int = 64  # overlap of two windows of a long context (question answering)
    batch_tokens: int = 4_096
    dropout: float = 0.1
    epochs: int = 3
    learning_rate: float = 5e-5
    schedule: str = "linear"
    warmup_steps: int = 100
    weight_decay: float = 0.01

    def check(self) -> None:
        super().check()
        one_of(HEADS, self, "head")
        at_least(0, self, "max_length", "stride")
        fraction(self, "dropout")

    @property
    def kind(self) -> Mapping[str, Any]:
        return {"head": self.head}


@dataclass(frozen=True, kw_only=True)
class FolderRecipe(Recipe):
    """Options of trainings on folders of images."""

    valid: tuple[str, ...] = ()  # folders of <class>/<image>; empty: hold out `hold_out` training images
    epochs: int = 100
    hold_out: float = 0.1  # share of the training images; their number if 1 or more
    batch_images: int = 128
    flip: bool = True  # mirror half of the images left to right
    cache_gib: float = 4.0  # memory for decoded images
    schedule: str = "cosine"

    def check(self) -> None:
        super().check()
        at_least(0, self, "hold_out", "cache_gib")
        at_least(1, self, "batch_images")
        if not self.train:
            raise RecipeError("train: needs at least one folder")
        if not self.valid and not self.hold_out:
            raise RecipeError("valid: name folders, or set hold_out to take images from the training folders")


@dataclass(frozen=True, kw_only=True)
class ImageRecipe(FolderRecipe):
    """Options for the training of image classifiers."""

    randaugment_operations: int = 2  # per image; 0 is off
    randaugment_magnitude: float = 0.3  # 0 to 1
    translate: float = 0.125  # largest shift, as a share of the image
    erase: float = 0.0  # share of the images that lose a box (Zhong et al. 2020)
    mixup: float = 0.0  # alpha of the Beta distribution (Zhang et al. 2018); 0 is off
    cutmix: float = 0.0  # alpha of the Beta distribution (Yun et al. 2019); 0 is off
    weight_decay: float = 0.05
    label_smoothing: float = 0.1
    ema_decay: float = 0.999

    def check(self) -> None:
        super().check()
        at_least(0, self, "randaugment_operations", "mixup", "cutmix")
        fraction(self, "randaugment_magnitude", "translate", "erase", closed=True)


@dataclass(frozen=True, kw_only=True)
class VaeRecipe(FolderRecipe):
    """Options for variational autoencoders."""

    kl_warmup_epochs: int = 10  # in which the weight of the KL divergence rises to 1 (Sønderby et al. 2016)

    def check(self) -> None:
        super().check()
        at_least(1, self, "kl_warmup_epochs")
