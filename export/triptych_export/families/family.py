"""What an architecture brings to an export."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from triptych_export.card import Description

Say = Callable[[str], None]  # is told about progress, a line at a time
Report = dict[str, Any]


class Family(Protocol):
    """A checkpoint of one architecture, loaded and found fit for export."""

    @property
    def default_name(self) -> str:
        """The model's name where the user gives none."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What training says of itself."""

    def describe(self) -> Description:
        """For the model card."""

    def write(self, folder: Path, say: Say) -> None:
        """Make `folder` with graphs in every precision, what they need and a manifest of all that the checkpoint says."""

    def measure(self, folder: Path, say: Say) -> tuple[Report, Report]:
        """Parity of what `write` wrote and quality, for the manifest.

        Raises:
            ParityError: the float32 graphs answer differently from PyTorch.
        """
