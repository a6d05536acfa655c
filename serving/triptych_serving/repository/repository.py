"""Model repositories on disk: `<repository>/<model>/<version>/`, where the version is a positive integer."""

import hashlib
import logging
import os
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from triptych_serving.bundle.manifest import FILE_NAME, MAX_FILE_BYTES
from triptych_serving.errors import BundleError, NotFoundError, RepositoryError
from triptych_serving.repository.version_policy import DEFAULT, STABLE, VersionPolicy, read_policy
from triptych_serving.repository.version_policy import FILE_NAME as POLICY_FILE

logger = logging.getLogger(__name__)

LAYOUT = "<model>/<version>/bundle.json, the version a positive integer"
BARE_GRAPH = (
    "an ONNX file alone cannot be served, it needs a manifest; `triptych export FILE --out models` makes one, of the file and "
    "the tokenizer and config.json beside it; serve that folder"
)
UNREADABLE = "unreadable"  # an attempt to load it tells why


@dataclass(frozen=True, order=True)
class VersionFolder:
    """One version of one model on disk."""

    name: str
    version: int
    folder: Path

    def shown(self, fault: str) -> str:
        """Return a fault for callers: paths without the server's folders, which the log has."""
        named = fault.replace(str(self.folder.resolve()), str(self.folder))
        return named.replace(f"{self.folder.parent.parent}{os.sep}", "")


@dataclass(frozen=True)
class FolderStamp:
    """State of a version's folder, as far as it can be seen without reading all files."""

    manifest: str = ""  # its SHA-256, which covers all files that it lists; UNREADABLE, or empty if there is none
    files: frozenset[tuple[str, int, int, int]] = frozenset()  # name, bytes, time of change in ns, inode


@dataclass(frozen=True)
class ModelFolder:
    """One model on disk: at least one version, or none if it has been removed."""

    name: str
    versions: tuple[VersionFolder, ...] = ()  # ascending
    policy: VersionPolicy = DEFAULT
    fault: str = ""  # why its `model.json` cannot be used

    @property
    def numbers(self) -> list[int]:
        """The versions' numbers, ascending."""
        return [entry.version for entry in self.versions]

    @property
    def default(self) -> VersionFolder:
        """The version to serve if only one is wanted: the stable one, else the newest that the policy allows."""
        allowed = self.policy.candidates(self.numbers) or self.numbers[::-1]
        stable = self.policy.labels.get(STABLE)
        return self.entry(stable if stable in allowed else allowed[0])

    def find(self, version: str) -> VersionFolder:
        """Return the folder of the version with this number or label, which the policy need not allow; empty: the default.

        Raises:
            NotFoundError: there is none.
        """
        if not version:
            return self.default
        for entry in self.versions:
            if version in (str(entry.version), *self.policy.labels_of(entry.version)):
                return entry
        known = ", ".join([*map(str, self.numbers), *self.policy.labels])
        raise NotFoundError(f"version {version!r} of {self.name} is not in the repository; available: {known}")

    def entry(self, version: int) -> VersionFolder:
        """Return the folder of a version that exists."""
        return next(entry for entry in self.versions if entry.version == version)


def newest_versions(root: Path) -> list[VersionFolder]:
    """Return the newest version of every model, by name.

    Raises:
        RepositoryError: the folder does not exist, cannot be read, or holds no model.
    """
    return [folder.versions[-1] for folder in chosen_models(root).values()]


def list_models(root: Path) -> dict[str, ModelFolder]:
    """Return every model with its versions and its policy; none if the repository is empty.

    Raises:
        RepositoryError: the folder does not exist or cannot be read.
    """
    versions: dict[str, list[VersionFolder]] = defaultdict(list)
    for entry in _list(root):
        versions[entry.name].append(entry)
    return {name: _folder(root / name, tuple(entries)) for name, entries in versions.items()}


def chosen_models(root: Path, only: str = "") -> dict[str, ModelFolder]:
    """Return all models of a repository, or the one named `only`; at least one.

    Raises:
        RepositoryError: the repository is missing or empty.
        NotFoundError: `only` names no model.
    """
    models = list_models(root)
    if not models:
        raise _empty(root)
    chosen = {name: folder for name, folder in models.items() if only in ("", name)}
    if not chosen:
        raise NotFoundError(f"model {only!r} is not in {root}; available: {', '.join(sorted(models))}")
    return chosen


def stamp_of(folder: Path) -> FolderStamp:
    """Return the stamp of a version's folder; an empty one if it does not exist."""
    try:
        with os.scandir(folder) as items:
            stats = [(item.name, item.stat(follow_symlinks=False)) for item in items]
        files = frozenset((name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats)
        return FolderStamp(_digest(folder / FILE_NAME), files)
    except FileNotFoundError:
        return FolderStamp()
    except OSError:
        return FolderStamp(UNREADABLE)


def _digest(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return UNREADABLE if os.path.lexists(path) else ""
    if path.stat().st_size > MAX_FILE_BYTES:
        return UNREADABLE
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _folder(path: Path, versions: tuple[VersionFolder, ...]) -> ModelFolder:
    try:
        policy = read_policy(path)
    except BundleError as error:
        return ModelFolder(path.name, versions, fault=str(error))
    numbers = [entry.version for entry in versions]
    for label, version in policy.labels.items():
        if version not in numbers:
            _warn_once(f"{path / POLICY_FILE}: label {label!r} is of version {version}, which does not exist")
    fault = "" if policy.candidates(numbers) else f"{path / POLICY_FILE}: allows none of the existing versions: {numbers}"
    return ModelFolder(path.name, versions, policy, fault)


def _list(root: Path) -> list[VersionFolder]:
    try:
        if root.is_file():
            raise RepositoryError(root, [BARE_GRAPH if root.suffix == ".onnx" else f"a file; name a folder of {LAYOUT}"])
        if not root.is_dir():
            raise RepositoryError(root, ["no such model repository"])
        found = sorted(
            VersionFolder(model.name, int(version.name), version)
            for model in root.iterdir()
            if not model.name.startswith(".")  # .git, or ..data of a volume in Kubernetes
            for version in _subfolders(model)
            if version.name.isascii() and version.name.isdigit() and int(version.name) > 0
        )
        return list({(entry.name, entry.version): entry for entry in found}.values())  # of 01 and 1 the latter
    except OSError as error:
        raise RepositoryError(Path(error.filename or root), [f"cannot be read: {error.strerror}"]) from error


def _empty(root: Path) -> RepositoryError:
    model = root.resolve()
    if (root / FILE_NAME).exists():
        return RepositoryError(root, [f"a version of one model; name the folder of all models, {model.parent.parent}"])
    if any(root.glob(f"[0-9]*/{FILE_NAME}")):
        return RepositoryError(root, [f"one model; name the folder of all models, {model.parent}"])
    bare = any(not (graph.parent / FILE_NAME).exists() for graph in (*root.glob("*.onnx"), *root.glob("*/*.onnx")))
    return RepositoryError(root, [BARE_GRAPH if bare else f"no models here; expected {LAYOUT}"])


def _subfolders(model: Path) -> list[Path]:
    """List the folders in a model's; one that cannot be read (`lost+found`) or named, or is just removed, counts as empty."""
    try:
        model.name.encode()
        return [version for version in model.iterdir() if version.is_dir()] if model.is_dir() else []
    except UnicodeEncodeError:  # such a name fits into no response, and no label of a metric
        name = str(model).encode(errors="backslashreplace").decode()
        _warn_once(f"{name} cannot be read and is left out: its name is not UTF-8")
    except OSError as error:
        _warn_once(f"{model} cannot be read and is left out: {error.strerror or error}")
    return []


@cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)
