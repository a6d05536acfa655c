"""What a training loop must know of the thing it trains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn


class Task(Protocol):
    """Data, model and loss of one training.

    `unit` is what speed is told in ("tokens"); `headline` names the metric that is drawn beside the losses.
    """

    unit: str
    headline: str

    @property
    def model(self) -> nn.Module:
        """What is trained."""
        ...

    @property
    def loss(self) -> nn.Module:
        """Called with a batch's tensors; the sum of the losses over all its units, so that a step can divide it."""
        ...

    def describe(self) -> str:
        """The data, in words."""
        ...

    def plan(self, epoch: int) -> list[list[int]]:
        """The epoch's batches, as indices of examples; about as many in every epoch."""
        ...

    def weight(self, indices: Sequence[int]) -> int:
        """How many units the loss of these examples sums over."""
        ...

    def batch(self, indices: Sequence[int], seed: int) -> tuple[Tensor, ...]:
        """Tensors for `loss`, on the CPU. May run in another thread; all chance in it comes from `seed`."""
        ...

    def validate(self) -> Mapping[str, float]:
        """Metrics of the model as it is; `loss` is one of them. Leaves it in training mode."""
        ...

    def save(self, folder: Path, provenance: Mapping[str, Any], final: bool) -> None:
        """Write the model as a checkpoint folder; the final one may hold more."""
        ...
