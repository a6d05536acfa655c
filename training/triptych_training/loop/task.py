"""Interface between the training loop and what it trains."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from triptych_training.data.batches import Indices


class TrainingTask(Protocol):
    """Data, model and loss of a training.

    `unit` names what the loss sums over and speed counts ("tokens"); `headline` is the metric plotted beside the losses.
    """

    unit: str
    headline: str

    @property
    def model(self) -> nn.Module:
        """Model to train."""

    @property
    def loss(self) -> nn.Module:
        """Module that maps a batch's tensors to the sum of the losses over its units."""

    def describe(self) -> str:
        """Describe the data in a few words."""

    def plan(self, epoch: int) -> list[Indices]:
        """Return the epoch's batches as indices of examples; about the same number in every epoch."""

    def weight(self, indices: Indices) -> int:
        """Return the number of units in these examples."""

    def batch(self, indices: Indices, seed: int) -> tuple[Tensor, ...]:
        """Make the tensors for `loss`, on the CPU; may run in another thread, with random numbers from `seed` only."""

    def validate(self) -> Mapping[str, float]:
        """Measure the model, which is in evaluation mode, without gradients; `loss` is one of the metrics."""

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        """Write the model as a checkpoint folder; the final one may contain more, such as samples."""
