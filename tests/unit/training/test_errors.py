"""One base for everything that a user can act upon."""

import inspect

from triptych_training import errors


def test_every_error_is_a_training_error() -> None:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__]
    assert len(found) == 5
    assert all(issubclass(kind, errors.TrainingError) for kind in found)
