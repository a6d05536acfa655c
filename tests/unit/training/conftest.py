"""Quick settings of PyTorch, and trainings with frequent metrics and without plots."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triptych_training.loop import trainer

from ...fixtures import quick_torch  # noqa: F401


def _mark_plot(records: Any, path: Path, headline: str) -> None:
    path.touch()


@pytest.fixture(scope="session", autouse=True)
def _short_trainings() -> Iterator[None]:
    """Log metrics often; leave an empty file in place of each plot, which takes longer than a tiny training.

    test_trainer draws one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "METRIC_STEPS", 5)
        patch.setattr(trainer, "draw_losses", _mark_plot)
        yield
