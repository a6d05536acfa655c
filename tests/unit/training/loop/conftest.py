"""A whole training of a tiny translation model, which tests interrupt, resume and compare with."""

import pytest

from triptych_training.loop import trainer as trainer_module
from triptych_training.loop.reporting import draw_losses
from triptych_training.tasks.translation import train_translation

from ..toy import TRAINED, Finished, make_recipe


@pytest.fixture(scope="package")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Finish an uninterrupted run with both optimizers: Muon for the layers' matrices, Adam for the rest."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "draw_losses", draw_losses)
        recipe = make_recipe(folder, optimizer="muon")
        train_translation(recipe, TRAINED, folder / "run")
    return recipe, folder / "run"
