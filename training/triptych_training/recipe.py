"""A training's options, checked once and written into the run folder."""

from dataclasses import dataclass

from triptych_training.errors import RecipeError
from triptych_training.optimizer import OPTIMIZERS, SCHEDULES

PRECISIONS = ("auto", "fp32", "bf16")


@dataclass(frozen=True)
class Recipe:
    """How a translation model is trained; lengths and budgets are in tokens.

    Raises:
        RecipeError: a value is out of range; the message names option, value and limit.
    """

    train: tuple[str, ...]
    valid: tuple[str, ...]
    source_language: str
    target_language: str
    vocabulary_size: int = 8_000
    max_length: int = 200  # longer pairs are left out of training, and counted
    epochs: int = 20
    batch_tokens: int = 4_000  # rows x longest side of one batch
    accumulate: int = 1  # batches an optimizer step
    optimizer: str = "adam"
    learning_rate: float = 1e-3  # peak
    schedule: str = "inverse-sqrt"
    warmup_steps: int = 400
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    label_smoothing: float = 0.1
    average: int = 5  # last epochs' checkpoints that make the final model
    save_steps: int = 500
    precision: str = "auto"  # bf16 on a GPU, fp32 on a CPU
    devices: str = "auto"
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_tokens", "accumulate", "average", "save_steps", "max_length"):
            _at_least(name, getattr(self, name), 1)
        for name in ("warmup_steps", "weight_decay", "clip_norm", "seed"):
            _at_least(name, getattr(self, name), 0)
        _at_least("vocabulary_size", self.vocabulary_size, 260)  # 256 bytes and the special tokens
        if not self.learning_rate > 0:
            raise RecipeError(f"learning_rate: {self.learning_rate} is not above 0")
        if not 0 <= self.label_smoothing < 1:
            raise RecipeError(f"label_smoothing: {self.label_smoothing} is outside [0, 1)")
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("precision", self.precision, PRECISIONS)
        if not self.train or not self.valid:
            raise RecipeError("train and valid: both need at least one file")


def _at_least(name: str, value: float, limit: float) -> None:
    if not value >= limit:  # nor may it be NaN
        raise RecipeError(f"{name}: {value} is below {limit}")


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RecipeError(f"{name}: {value!r} is unknown; choose one of {', '.join(choices)}")
