"""Interface that every family of models implements for the exporter."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from triptych_export.card import Description

Say = Callable[[str], None]  # is told about progress, a line at a time
Report = dict[str, Any]


class Family(Protocol):
    """A loaded checkpoint of one architecture that can be exported."""

    @property
    def default_name(self) -> str:
        """Name of the model if the user gives none."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Provenance of the training."""

    def describe(self) -> Description:
        """Describe the model for its card."""

    def write(self, folder: Path, say: Say) -> None:
        """Create `folder` with graphs in every precision, tokenizers or labels, and a manifest."""

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Measure parity and quality of the written files, for the manifest.

        Raises:
            ParityError: the float32 graphs answer differently from PyTorch.
        """
