"""Errors of a training, before and during it."""


class TrainingError(Exception):
    """Base of all errors that a user can act upon; the message names the cause."""


class CorpusError(TrainingError):
    """A data file cannot be used; the message names the file and, where it applies, the line."""


class CheckpointError(TrainingError):
    """A checkpoint cannot be used; the message names the file and the fault."""


class RecipeError(TrainingError):
    """A training option cannot be used; the message names the option, its value and its limit."""


class DivergedError(TrainingError):
    """A training has gone wrong beyond repair; the message names step and loss. The saved state is from before."""

    def __init__(self, step: int, what: str, value: float) -> None:
        super().__init__(
            f"step {step}: {what} is {value}; lower learning_rate or raise warmup_steps in a new training, in another folder, "
            "which may begin with a checkpoint of this one (initial)"
        )
