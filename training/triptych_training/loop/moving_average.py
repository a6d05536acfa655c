"""Exponential moving average of a model's weights (Polyak and Juditsky 1992, as in Tarvainen and Valpola 2017)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """Mean of the weights, running statistics included, over about the last 1 / (1 - decay) steps; fewer in the beginning."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model = model
        self._decay = decay
        self._steps = 0
        self._mean = self._copy()

    @torch.no_grad()
    def update(self) -> None:
        """Include the weights after a step."""
        self._steps += 1
        decay = min(self._decay, self._steps / (self._steps + 9))
        weights = self._weights()
        torch._foreach_lerp_(list(self._mean.values()), [weights[name] for name in self._mean], 1 - decay)

    def reset(self) -> None:
        """Start again from the current weights."""
        self._steps = 0
        for name, tensor in self._weights().items():
            self._mean[name].copy_(tensor)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """Give the model the mean's weights inside the context."""
        own = self._copy()
        self._model.load_state_dict(self._mean, strict=False)
        try:
            yield
        finally:
            self._model.load_state_dict(own, strict=False)

    def state(self) -> dict[str, object]:
        """Return the state for `restore`."""
        return {"steps": self._steps, "mean": self._mean}

    def restore(self, state: Mapping[str, object]) -> None:
        """Continue from a saved state; raises KeyError or ValueError if the state belongs to another model."""
        mean = state["mean"]
        if not isinstance(mean, dict) or mean.keys() != self._mean.keys():
            raise ValueError("the moving average is of another model")
        for name, tensor in mean.items():
            self._mean[name].copy_(tensor)
        self._steps = int(str(state["steps"]))

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self._model.state_dict().items() if tensor.is_floating_point()}

    def _copy(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self._weights().items()}
