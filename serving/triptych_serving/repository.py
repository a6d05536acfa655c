"""A model repository: `<repository>/<model>/<version>/`, the version a positive integer."""

from dataclasses import dataclass
from pathlib import Path

from triptych_serving.errors import RepositoryError


@dataclass(frozen=True, order=True)
class Entry:
    """One version of one model on disk."""

    name: str
    version: int
    folder: Path


def newest_versions(root: Path) -> list[Entry]:
    """The newest version of every model, by name.

    Raises:
        RepositoryError: the folder does not exist, cannot be read, or holds no model.
    """
    newest = {entry.name: entry for entry in list_versions(root)}
    return list(newest.values())


def list_versions(root: Path) -> list[Entry]:
    """Every version of every model, by name, then version.

    Raises:
        RepositoryError: as `newest_versions`.
    """
    try:
        if not root.is_dir():
            raise RepositoryError(root, ["no such model repository"])
        found = [
            Entry(model.name, int(version.name), version)
            for model in root.iterdir()
            if model.is_dir()
            for version in model.iterdir()
            if version.is_dir() and version.name.isascii() and version.name.isdigit() and int(version.name) > 0
        ]
    except OSError as error:
        raise RepositoryError(error.filename or root, [f"cannot be read: {error.strerror}"]) from error
    if not found:
        raise RepositoryError(root, ["no models here; expected <model>/<version>/bundle.json, the version a positive integer"])
    return sorted(found)
