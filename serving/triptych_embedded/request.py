"""Requests: which model runs where and how it decodes; and the errors of the backends that carry them out.

Light: it imports neither numpy nor a runtime.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import triptych_models
from triptych.decoding import DecodingOptions

AUTO = "auto"  # the default of --device
INPUT_FIELD = re.compile(r"(?:contents|pairs|inputs|images|documents)\[(\d+)\](?:\.\w+)?")  # how an error names one input


@dataclass(frozen=True)
class ModelChoice:
    """The model to use and where it runs. Empty members leave the choice open.

    `server` is the address of a server; the members after it, and `models`, are for an engine in this process.
    """

    models: Path | None = None  # the repository; None: the embedded models
    model: str = ""
    model_version: str = ""  # a number or a label
    server: str = ""
    precision: str | None = None
    device: str = AUTO
    gpu_memory_limit: str = ""

    @property
    def repository(self) -> Path:
        """The repository to load models from."""
        return self.models or embedded_repository()


@dataclass(frozen=True)
class TranslationRequest(ModelChoice):
    """A translation; empty members leave the choice to the model.

    `decoding.target_prefix` has at most one prefix, which starts every translation.
    """

    source_language: str = ""
    target_language: str = ""
    decoding: DecodingOptions = field(default_factory=DecodingOptions)

    def __post_init__(self) -> None:
        if self.source_language == AUTO:  # the model's only one: languages are not detected
            object.__setattr__(self, "source_language", "")


class InputError(Exception):
    """The text or image at `index` of a batch cannot be used."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.index = index


class BackendError(Exception):
    """The request as a whole failed; the message is one line."""


def embedded_repository() -> Path:
    """Return the repository of the models that come with the package."""
    return triptych_models.REPOSITORY
