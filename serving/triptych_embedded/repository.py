"""The repository that a command uses when none is named."""

from pathlib import Path

import triptych_models


def embedded_repository() -> Path:
    """The models that come with the package."""
    return triptych_models.REPOSITORY
