"""Common parts of config.json of the image families."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import CONFIG, Folder
from triptych_training.checkpoints.encoder import ImageCheckpoint, ImagePreprocessing
from triptych_training.models.swin import Swin
from triptych_training.models.vit import Vit

COLOURS = 3
SINGLE_LABEL = "single_label_classification"

Config = TypeVar("Config")


def check_architecture(folder: Folder, supported: Sequence[str]) -> None:
    """Reject other architectures, and models whose label scores are not one softmax.

    Raises:
        SourceError: says what was found and what is supported.
    """
    if folder.architecture not in supported:
        found, known = folder.architecture or "no architecture", ", ".join(supported)
        raise SourceError(f"{folder.path / CONFIG}: {found} is not supported; supported of {folder.model_type}: {known}")
    if (problem := folder.config.get("problem_type")) not in (None, SINGLE_LABEL):
        raise SourceError(f"{folder.path / CONFIG}: problem_type: {problem!r} is not supported; supported: {SINGLE_LABEL}")


def make_config(folder: Folder, make: Callable[[], Config]) -> Config:
    """Make a config from config.json, with errors that name the file.

    Raises:
        SourceError: a member is missing or out of range.
    """
    if (channels := folder.config.get("num_channels", COLOURS)) != COLOURS:
        raise SourceError(f"{folder.path / CONFIG}: num_channels: {channels}; images have 3, red, green and blue")
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise SourceError(f"{folder.path / CONFIG}: {error}") from error


def sides(name: str, value: object) -> tuple[int, int]:
    """Read a size given as one number or as height and width.

    Raises:
        ValueError: it is neither.
    """
    match value:
        case bool():
            pass
        case int():
            return value, value
        case [int(height), int(width)]:
            return height, width
    raise ValueError(f"{name}: {value!r}, expected a number of pixels, or height and width")


def class_names(folder: Folder, classes: int) -> tuple[str, ...]:
    """Read the class names; duplicate names get the class index appended.

    Raises:
        SourceError: there are names, but not one for each class.
    """
    given = folder.config.get("id2label")
    if not given:
        return tuple(f"LABEL_{number}" for number in range(classes))
    if not isinstance(given, dict):
        raise SourceError(f"{folder.path / CONFIG}: id2label: {given!r:.40}, expected names by class number")
    names = {str(key): " ".join(str(name).split()) for key, name in given.items()}
    if missing := [number for number in range(classes) if not names.get(str(number))]:
        shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        raise SourceError(f"{folder.path / CONFIG}: id2label: no name for {len(missing)} of {classes} classes: {shown}")
    if len(names) != classes:
        raise SourceError(f"{folder.path / CONFIG}: id2label: {len(names)} names, the model has {classes} classes")
    counts = Counter(names.values())
    labels = [names[str(number)] for number in range(classes)]
    return tuple(name if counts[name] == 1 else f"{name} ({number})" for number, name in enumerate(labels))


def image_checkpoint(folder: Folder, model: Vit | Swin, image: ImagePreprocessing) -> ImageCheckpoint:
    """Assemble an image checkpoint from a loaded model and its labels.

    Raises:
        SourceError: there are labels, but not one for each class, or there is one class only.
    """
    if model.config.classes < 2:
        raise SourceError(f"{folder.path}: the model has 1 class, there is nothing to choose from; expected at least 2")
    labels = class_names(folder, model.config.classes)
    return ImageCheckpoint(model, labels, image, {"architecture": folder.architecture}, family=folder.model_type)
