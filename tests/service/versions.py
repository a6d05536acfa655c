"""Versions of toy models that can be told from each other by what they answer."""

import shutil
import tempfile
from pathlib import Path

from ..fixtures.encoders import CLASSES, write_text_bundle
from ..fixtures.toy import copy_bundle, edit_manifest, tamper

CLASSIFIER, TRANSLATOR = "classifier", "translator"
LONG, SHORT = 63, 3  # tokens of a translation
HOLES_BYTES = 1 << 40


def label(version: int) -> str:
    """What this version's classifier calls a text of one word."""
    return f"{CLASSES[0]} {version}"


def length(version: int) -> int:
    """How many tokens this version's translations have at most."""
    return LONG if version % 2 else SHORT


def add_classifier(repository: Path, version: int, damaged: bool = False, endless: bool = False) -> Path:
    """Put it into the repository, all at once; its labels say which version it is.

    Args:
        repository: where to.
        version: of the model.
        damaged: it cannot be loaded.
        endless: to load it takes longer than any test.
    """
    with tempfile.TemporaryDirectory(dir=repository.parent) as folder:
        bundle = write_text_bundle(Path(folder), "text-classification", labels=[f"{name} {version}" for name in CLASSES])
        if damaged:
            tamper(bundle / "tokenizer.json")
        if endless:
            _swell(bundle)
        return _move(bundle, repository / CLASSIFIER, version)


def add_translator(repository: Path, version: int) -> Path:
    """Put it into the repository, all at once; every other version cuts its translations short."""
    with tempfile.TemporaryDirectory(dir=repository.parent) as folder:
        bundle = copy_bundle(Path(folder))
        edit_manifest(bundle, lambda manifest: manifest["generation"].update(max_length=length(version)))
        return _move(bundle, repository / TRANSLATOR, version)


def _move(bundle: Path, model: Path, version: int) -> Path:
    model.mkdir(exist_ok=True)
    return Path(shutil.move(bundle, model / str(version)))


def _swell(bundle: Path) -> None:
    """Add a file to be checked that is mostly hole: it takes no place, and minutes to read."""
    with open(bundle / "holes.bin", "wb") as file:
        file.truncate(HOLES_BYTES)
    stored = {"holes.bin": {"sha256": "0" * 64, "bytes": HOLES_BYTES}}
    edit_manifest(bundle, lambda manifest: manifest["files"].update(stored))
