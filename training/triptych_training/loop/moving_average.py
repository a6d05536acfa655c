"""An exponential moving average of a model's weights (Polyak and Juditsky 1992, as Tarvainen and Valpola 2017 use it)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """The mean of the weights over about the last 1 / (1 - decay) steps.

    Args:
        model: whose weights, running statistics included.
        decay: at its end; while few steps are done the mean is over those.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model = model
        self._decay = decay
        self._steps = 0
        self._mean = {name: tensor.detach().clone() for name, tensor in self._weights().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step."""
        self._steps += 1
        decay = min(self._decay, self._steps / (self._steps + 9))
        weights = self._weights()
        torch._foreach_lerp_(list(self._mean.values()), [weights[name] for name in self._mean], 1 - decay)

    def reset(self) -> None:
        """Begin anew from the weights as they are."""
        self._steps = 0
        for name, tensor in self._weights().items():
            self._mean[name].copy_(tensor)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """The model has the mean's weights within."""
        own = {name: tensor.detach().clone() for name, tensor in self._weights().items()}
        self._model.load_state_dict(self._mean, strict=False)
        try:
            yield
        finally:
            self._model.load_state_dict(own, strict=False)

    def state(self) -> dict[str, object]:
        """What `restore` takes."""
        return {"steps": self._steps, "mean": self._mean}

    def restore(self, state: Mapping[str, object]) -> None:
        """Go on where another one stood.

        Raises:
            KeyError, ValueError: the state is of another model.
        """
        mean = state["mean"]
        if not isinstance(mean, dict) or mean.keys() != self._mean.keys():
            raise ValueError("the moving average is of another model")
        for name, tensor in mean.items():
            self._mean[name].copy_(tensor)
        self._steps = int(str(state["steps"]))

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self._model.state_dict().items() if tensor.is_floating_point()}
