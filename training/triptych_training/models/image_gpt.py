"""ImageGPT (Chen et al. 2020) as a classifier: a decoder-only model reads an image's pixels, each as its nearest colour."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.models.gpt import Gpt, GptConfig


@dataclass(frozen=True)
class ImageGptConfig:
    """Shape of the language model, number of classes, and the image in pixels.

    Raises:
        ValueError: the model has fewer positions than the image pixels.
    """

    channels: ClassVar[int] = 3
    patch: ClassVar[tuple[int, int]] = (1, 1)

    gpt: GptConfig
    colours: int
    classes: int
    image: tuple[int, int]  # height and width

    def __post_init__(self) -> None:
        if self.image[0] * self.image[1] > self.gpt.max_positions:
            raise ValueError(f"image: {self.image} has more pixels than the model positions, {self.gpt.max_positions}")


class ImageGpt(nn.Module):
    """Classifier over the mean of all positions' states; `colours` are those of the tokens, `[colours, 3]`, normalised."""

    colours: Tensor

    def __init__(self, config: ImageGptConfig) -> None:
        super().__init__()
        self.config = config
        self.gpt = Gpt(config.gpt)
        self.register_buffer("colours", torch.zeros(config.colours, config.channels))
        self.classifier = nn.Linear(config.gpt.model_dim, config.classes, bias=False)

    def closeness(self, pixels: Tensor) -> Tensor:
        """`[B, 3, H, W]` -> `[B, H*W, colours]`: the larger, the closer."""
        lengths = self.colours.square().sum(1)
        found = functional.conv2d(pixels, 2 * self.colours[:, :, None, None], -lengths)
        return found.flatten(2).transpose(1, 2)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised `[B, 3, H, W]` -> logits `[B, classes]`."""
        states = self.gpt.hidden(self.closeness(pixels).argmax(-1))
        return self.classifier(states).mean(1)
