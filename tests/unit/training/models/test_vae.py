"""The variational autoencoder's likelihood, bound and evidence."""

import math

import pytest
import torch

from triptych_training.models.vae import Gaussian, Logistic, Vae, VaeConfig, log_evidence, log_likelihood, log_weights


@pytest.mark.parametrize(("mean", "log_scale"), [(0.4, -1.0), (0.0, 2.0), (0.99, -7.0)])
def test_the_probabilities_of_all_bytes_sum_to_one(mean: float, log_scale: float) -> None:
    pixels = torch.arange(256, dtype=torch.uint8)[:, None, None, None]
    p = Logistic(torch.full(pixels.shape, mean), torch.full(pixels.shape, log_scale))
    assert float(log_likelihood(pixels, p).exp().sum()) == pytest.approx(1, abs=1e-4)


@torch.no_grad()
def test_the_evidence_is_the_integral_over_the_prior_and_above_the_bound() -> None:
    torch.manual_seed(1)
    model = Vae(VaeConfig(image_size=8, width=4, latent_dim=1)).eval()
    model.decoder[0].weight.mul_(3)  # type: ignore[operator,union-attr] # such that the image depends on z
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    z = torch.linspace(-8, 8, 81)[:, None]
    prior = -(z[:, 0] ** 2) / 2 - math.log(2 * math.pi) / 2 + math.log(16 / 80)
    exact = torch.stack([torch.logsumexp(log_likelihood(x.expand(81, 8, 8, 3), model.decode(z)) + prior, 0) for x in pixels])
    far = Gaussian(torch.ones(2, 1), torch.zeros(2, 1))  # q(z|x), at a distance from the posterior
    weights = log_weights(pixels, far, model.decode, 600)
    assert log_evidence(weights).tolist() == pytest.approx(exact.tolist(), abs=0.2)
    assert all(weights.mean(0) < exact - 0.2)
