"""A bundle on disk: manifest, graphs, tokenizer, each file checked against its recorded size and SHA-256."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from triptych_serving.errors import BundleError
from triptych_serving.manifest import Graphs, Manifest, StoredFile, read_manifest

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Bundle:
    """A checked bundle."""

    folder: Path
    manifest: Manifest

    def graphs(self, precision: str | None) -> tuple[str, Graphs]:
        """The precision to serve (`None`: the bundle's default) and its graphs.

        Raises:
            BundleError: the bundle has no such precision.
        """
        name = precision or self.manifest.default_precision
        if name not in self.manifest.precisions:
            has = ", ".join(sorted(self.manifest.precisions))
            raise BundleError(self.folder, [f"precision {name!r} is not in this bundle; it has: {has}"])
        return name, self.manifest.precisions[name]

    def path(self, name: str) -> Path:
        return self.folder / name


def open_bundle(folder: Path) -> Bundle:
    """Read the manifest and check every file.

    Raises:
        BundleError: anything is missing, damaged or unexpected in kind; lists all faults.
    """
    manifest = read_manifest(folder)
    faults = [fault for name, stored in manifest.files.items() if (fault := _fault(folder / name, stored)) is not None]
    if faults:
        raise BundleError(folder, faults)
    return Bundle(folder, manifest)


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
    """Hex digest of a file's content."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
