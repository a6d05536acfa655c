"""Metrics of encoder models from sums and counts: in training, and of bundles as served."""

import math

LARGEST = 100.0  # nats; a diverging training has more, and of more than 709 the exponential is no number


def masked_metrics(loss: float, first: int, fifth: int, masks: int) -> dict[str, float]:
    """Metrics of `masks` predicted tokens, whose losses in nats have the sum `loss`.

    `first` of them were the most likely ones, `fifth` among the five most likely.
    """
    mean = loss / masks
    return {"loss": mean, "perplexity": _perplexity(mean), "top1": first / masks, "top5": fifth / masks, "masks": masks}


def next_token_metrics(loss: float, tokens: int) -> dict[str, float]:
    """Metrics of `tokens` next tokens, whose losses in nats have the sum `loss`."""
    mean = loss / tokens
    return {"loss": mean, "perplexity": _perplexity(mean), "tokens": tokens}


def ranked_metrics(first: int, fifth: int, images: int) -> dict[str, float]:
    """Accuracy of `images` classified images, of the best class and of the five best ones."""
    return {"accuracy": first / images, "top5": fifth / images, "images": images}


def bound_metrics(nats: float, images: int, dimensions: int) -> dict[str, float]:
    """Negative log-likelihood, or a bound of it, of images with so many numbers each; `nats` is the sum over all images."""
    mean = nats / images
    each = mean / dimensions
    return {"nats": mean, "nats_per_dimension": each, "bits_per_dimension": each / math.log(2), "images": images}


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, LARGEST))
