"""A variational autoencoder on images (Kingma and Welling 2014).

    p(z)   = N(0, I)                           the prior
    p(x|z) = logistic(mu_x(z), s(z)), binned   the decoder; a byte x is one of 256 bins (Kingma et al. 2016, appendix C.3)
    q(z|x) = N(mu(x), sigma(x)^2)              the encoder, in place of the posterior p(z|x), which cannot be computed

Training maximises the evidence lower bound, L = E_q[log p(x|z)] - KL(q(z|x) || p(z)) <= log p(x). All of them are in nats.

Shapes: `B` images, `S` pixels of a side, `W` channels of the first convolution, `Z` latents.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from triptych_training.checks import at_least

CHANNELS = 3
HALVINGS = 3  # of the image's sides by convolutions
KERNEL = (4, 2, 1)  # of each: size, stride and padding
LOWEST_LOG_SCALE = -7.0  # of p(x|z): far narrower than the bin of a byte, and no overflow
FIRST_LOG_SCALE = -2.0  # at the start of a training: about the spread of an image's pixels


@dataclass(frozen=True)
class VaeConfig:
    """Shape of encoder and decoder; raises ValueError if a field is out of range."""

    image_size: int = 32
    width: int = 32  # channels of the first convolution; each further one has twice as many
    latent_dim: int = 128

    def __post_init__(self) -> None:
        at_least(1, self, "image_size", "width", "latent_dim")
        if self.image_size % 2**HALVINGS:
            raise ValueError(f"image_size: {self.image_size} is not a multiple of {2**HALVINGS}")

    @property
    def dimensions(self) -> int:
        """Numbers of an image, over which bits and nats per dimension are means."""
        return self.image_size**2 * CHANNELS


class Gaussian(NamedTuple):
    """q(z|x): mean and log variance, `[B, Z]` each."""

    mean: Tensor
    log_variance: Tensor


class Logistic(NamedTuple):
    """p(x|z): mean, 0 to 1 for bytes from 0 to 255, and log scale in units of twice that, `[B, S, S, 3]` each."""

    mean: Tensor
    log_scale: Tensor


class Vae(nn.Module):
    """Convolutions that halve the image three times, and their mirror image."""

    def __init__(self, config: VaeConfig) -> None:
        super().__init__()
        self.config = config
        side, widths = config.image_size // 2**HALVINGS, [config.width * 2**layer for layer in range(HALVINGS)]
        inner = (widths[-1], side, side)
        down: list[nn.Module] = []
        for before, after in zip((CHANNELS, *widths), widths, strict=False):
            down += [nn.Conv2d(before, after, *KERNEL), nn.ReLU()]
        self.encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(math.prod(inner), 2 * config.latent_dim))
        up: list[nn.Module] = [nn.Linear(config.latent_dim, math.prod(inner)), nn.Unflatten(1, inner)]
        for before, after in zip(widths[::-1], (*widths[-2::-1], 2 * CHANNELS), strict=True):
            up += [nn.ReLU(), nn.ConvTranspose2d(before, after, *KERNEL)]
        self.decoder = nn.Sequential(*up)
        self.log_scale = nn.Parameter(torch.full((CHANNELS,), FIRST_LOG_SCALE))

    def encode(self, pixels: Tensor) -> Gaussian:
        """uint8 `[B, S, S, 3]` -> q(z|x)."""
        return Gaussian(*self.encoder(_centred(pixels).permute(0, 3, 1, 2)).chunk(2, 1))

    def decode(self, z: Tensor) -> Logistic:
        """`[B, Z]` -> p(x|z)."""
        mean, log_scale = self.decoder(z).permute(0, 2, 3, 1).chunk(2, 3)
        return Logistic(torch.sigmoid(mean), (log_scale + self.log_scale).clamp(min=LOWEST_LOG_SCALE))

    def forward(self, pixels: Tensor, beta: float = 1.0) -> Tensor:
        """-L of each image, `[B]`, from one sample of q(z|x); `beta` is the weight of the KL divergence."""
        q = self.encode(pixels)
        z = q.mean + torch.exp(q.log_variance / 2) * torch.randn_like(q.mean)  # reparametrisation, z = mu + sigma * epsilon
        return beta * divergence(q) - log_likelihood(pixels, self.decode(z))


def divergence(q: Gaussian) -> Tensor:
    """KL(q(z|x) || N(0, I)), `[B]` (appendix B)."""
    return (q.mean**2 + q.log_variance.exp() - 1 - q.log_variance).sum(1) / 2


def log_likelihood(pixels: Tensor, p: Logistic) -> Tensor:
    """log p(x|z) of uint8 `[B, S, S, 3]`: `[B]`.

    A bin's probability is s(a) - s(b), s being the logistic sigmoid and a and b its upper and lower end; those of 0 and 255
    have one end only. With delta = a - b, s(a) - s(b) = s(a) s(-b) (1 - exp(-delta)): its logarithm is exact in the tails, too.
    """
    inverse, bin_width = torch.exp(-p.log_scale), 2 / 255
    delta = bin_width * inverse
    a = (_centred(pixels) - (2 * p.mean - 1) + bin_width / 2) * inverse
    below, above = functional.logsigmoid(a), functional.logsigmoid(delta - a)  # log s(a), log s(-b)
    inner = below + above + torch.log(-torch.expm1(-delta))
    return torch.where(pixels == 0, below, torch.where(pixels == 255, above, inner)).flatten(1).sum(1)


def log_weights(pixels: Tensor, q: Gaussian, decode: Callable[[Tensor], Logistic], samples: int) -> Tensor:
    """log p(x|z) p(z) / q(z|x), `[K, B]`, of K = `samples` z from q(z|x); on average L."""
    weights = []
    for _ in range(samples):
        epsilon = torch.randn_like(q.mean)
        z = q.mean + torch.exp(q.log_variance / 2) * epsilon
        ratio = (epsilon**2 + q.log_variance - z**2).sum(1) / 2  # log p(z) / q(z|x)
        weights.append(log_likelihood(pixels, decode(z)) + ratio)
    return torch.stack(weights)


def log_evidence(weights: Tensor) -> Tensor:
    """Estimate log p(x) `[B]` by importance sampling, from `log_weights`: log 1/K sum_k w_k.

    On average the estimate rises with K, from L to log p(x) (Burda et al. 2016, theorem 1).
    """
    return torch.logsumexp(weights, 0) - math.log(len(weights))


def _centred(pixels: Tensor) -> Tensor:
    """Bytes as numbers from -1 to 1."""
    return pixels.float() / 127.5 - 1
