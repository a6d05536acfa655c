"""Probabilities as people and scripts read them."""


def score_text(score: float) -> str:
    """Six characters or more, such as "0.9132"; small ones as "1.2e-06"."""
    return f"{score:.4f}" if score >= 0.0001 or score == 0 else f"{score:.1e}"


def score_number(score: float) -> float:
    """For JSON: the digits that a float32 has, not those that it gains as a float64."""
    return float(f"{score:.7g}")
