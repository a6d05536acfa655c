"""A bundle on disk: manifest, graphs, tokenizer, each file checked against its recorded size and SHA-256."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from triptych_serving.bundle.manifest import ImageManifest, Manifest, StoredFile, read_manifest
from triptych_serving.bundle.manifest.base import check_names
from triptych_serving.bundle.manifest.image import LABELS_FILE
from triptych_serving.errors import BundleError
from triptych_serving.runtime.external_data import GRAPH_SUFFIX, external_files

ManifestT = TypeVar("ManifestT", bound=Manifest)


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files were checked."""

    folder: Path
    manifest: Manifest

    def manifest_of(self, kind: type[ManifestT]) -> ManifestT:
        """Return the manifest, which must be of this family.

        Raises:
            BundleError: the bundle is for another task.
        """
        if not isinstance(self.manifest, kind):
            raise BundleError(self.folder, [f"task {self.manifest.task!r} has no {kind.__name__}"])
        return self.manifest

    def precision(self, wanted: str | None) -> str:
        """Return the precision to serve; None selects the bundle's default.

        Raises:
            BundleError: the bundle has no such precision.
        """
        name = wanted or self.manifest.default_precision
        if name not in self.manifest.precisions:
            has = ", ".join(sorted(self.manifest.precisions))
            raise BundleError(self.folder, [f"precision {name!r} is not in this bundle; it has: {has}"])
        return name

    def weight_bytes(self, precision: str) -> int:
        """Return the bytes of the graphs of one precision, including external weights."""
        names = set(self.manifest.precisions[precision].files)
        for graph in [name for name in names if Path(name).suffix == GRAPH_SUFFIX]:
            names |= external_files(self.path(graph))
        return sum(self.manifest.files[name].bytes for name in names)

    def path(self, name: str) -> Path:
        return self.folder / name


def open_bundle(folder: Path) -> Bundle:
    """Read a bundle's manifest and check every file.

    Raises:
        BundleError: a file is missing, damaged or malformed; lists all faults.
    """
    manifest = read_manifest(folder)
    faults = [fault for name, stored in manifest.files.items() if (fault := _fault(folder / name, stored)) is not None]
    if not faults and isinstance(manifest, ImageManifest):
        faults = _label_faults(folder / LABELS_FILE, manifest.label_count)
    if not faults:
        graphs = [folder / name for name in manifest.files if Path(name).suffix == GRAPH_SUFFIX]
        faults = [fault for graph in graphs for fault in _graph_faults(graph, manifest)]
    if faults:
        raise BundleError(folder, faults)
    return Bundle(folder, manifest)


def read_labels(path: Path) -> tuple[str, ...]:
    """Read the lines of labels.txt.

    Raises:
        UnicodeDecodeError: the file is not UTF-8.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    return tuple(line.strip() for line in (lines[:-1] if lines[-1] == "" else lines))


def _graph_faults(path: Path, manifest: Manifest) -> list[str]:
    """Check that a graph reads only files that the manifest lists, which are checked already."""
    try:
        foreign = sorted(external_files(path) - manifest.files.keys())
    except BundleError as error:
        return [f"{path.name}: {fault}" for fault in error.faults]
    return [f"{path.name} wants to read {name!r:.200}, which is not among the bundle's files" for name in foreign]


def _label_faults(path: Path, count: int) -> list[str]:
    try:
        labels = read_labels(path)
    except UnicodeDecodeError as error:
        return [f"{path.name} is not UTF-8: {error}"]
    faults = [] if len(labels) == count else [f"{path.name} has {len(labels):,} lines, label_count says {count:,}"]
    check_names(path.name, labels, faults)
    return faults


def _fault(path: Path, stored: StoredFile) -> str | None:
    try:
        if path.is_symlink() or not path.is_file():
            return f"{path.name} is missing or not a plain file"
        if (size := path.stat().st_size) != stored.bytes:
            return f"{path.name} has {size:,} bytes, expected {stored.bytes:,}"
        if sha256(path) != stored.sha256:
            return f"{path.name} does not have its recorded SHA-256: it was changed or damaged"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"
    return None


def sha256(path: Path) -> str:
    """Return the hex digest of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
