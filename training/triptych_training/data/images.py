"""Image folders (`<class>/<file>`) and decoding of their images."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from triptych_training.data.batches import Indices
from triptych_training.errors import CorpusError

SUFFIXES, FORMATS = {".jpg", ".jpeg", ".png", ".webp"}, ("JPEG", "PNG", "WEBP")
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class LabelledImage:
    """Image file and the number of its class."""

    path: Path
    label: int


def read_folders(roots: Sequence[str], classes: Sequence[str] = (), least: int = 2) -> tuple[list[LabelledImage], list[str]]:
    """List the images by class and file name, and the names of the classes: `classes`, or those of the roots' sub-folders.

    Hidden files and folders, such as `.ipynb_checkpoints` or macOS' `._cat.jpg`, are passed over.

    Raises:
        CorpusError: a folder is missing, has no images or is an unknown class, or there are fewer than `least` classes.
    """
    folders = [folder for root in roots for folder in _subfolders(Path(root))]
    for folder in folders:
        if os.fsencode(folder.name).decode(errors="ignore") != folder.name:
            raise CorpusError(f"{os.fsencode(folder)!r}: the name of this class is not UTF-8; rename the folder")
    names = list(classes) or sorted({folder.name for folder in folders})
    if len(names) < least:
        raise CorpusError(f"{', '.join(roots)}: folders of images inside: {len(names)}, expected at least {least}")
    if unknown := sorted({folder.name for folder in folders} - set(names)):
        raise CorpusError(f"{', '.join(roots)}: {', '.join(unknown)}: not among the classes of the training set")
    images = []
    for folder in sorted(folders, key=lambda folder: (names.index(folder.name), str(folder))):
        files = sorted(path for path in _visible(folder) if path.suffix.lower() in SUFFIXES)
        if not files:
            raise CorpusError(f"{folder}: contains no images ({', '.join(sorted(SUFFIXES))})")
        images += [LabelledImage(path, names.index(folder.name)) for path in files]
    return images, names


def describe_others(roots: Sequence[str]) -> str:
    """Say how many files and folders beside the images of the classes `read_folders` passes over; empty if there are none.

    Hidden ones do not count.
    """
    found = (path for root in roots for folder in _subfolders(Path(root)) for path in _visible(folder))
    others = sum(path.suffix.lower() not in SUFFIXES for path in found)
    beside = sum(not path.is_dir() for root in roots for path in _visible(Path(root)))
    counts = (others, "other files and folders in the folders of classes"), (beside, "files beside these folders")
    ignored = " and ".join(f"{count:,} {what}" for count, what in counts if count)
    return f"{ignored} are ignored" if ignored else ""


def check_images(images: Sequence[LabelledImage], threads: int) -> None:
    """Read the header of every file.

    Raises:
        CorpusError: files are no images, or of a format that serving does not take; names the first one.
    """
    with ThreadPoolExecutor(threads) as pool:
        faults = [fault for fault in pool.map(_fault, images) if fault]
    if faults:
        others = f"; {len(faults) - 1:,} more files cannot" if len(faults) > 1 else ""
        raise CorpusError(f"{faults[0]}{others}")


def _fault(image: LabelledImage) -> str:
    try:
        with _opened(image.path):
            return ""
    except CorpusError as error:
        return str(error)


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Open an image, of which pixels are decoded inside. Raises CorpusError: it cannot be read, or is not an image."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            yield image
    except UnidentifiedImageError as error:
        raise CorpusError(f"{path}: cannot be used as an image: not {', '.join(FORMATS)}, or damaged") from error
    except Exception as error:  # Pillow's decoders raise many types
        raise CorpusError(f"{path}: cannot be used as an image: {error}") from error


def _subfolders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise CorpusError(f"{root}: no such folder")
    return sorted(path for path in _visible(root) if path.is_dir())


def _visible(folder: Path) -> Iterator[Path]:
    return (path for path in folder.iterdir() if not path.name.startswith("."))


def hold_out(images: Sequence[LabelledImage], count: float) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """Split off the last files of each class, `count` in all, or that share if it is below 1; returns the others and them.

    Each class gives the same share of its files, and at least one.
    A file that is listed several times, because its folder is, counts once and is held out as a whole.

    Raises:
        CorpusError: a class would have no images left to train on.
    """
    real = cache(Path.resolve)  # of folders: several names may lead to one
    files = [real(image.path.parent) / image.path.name for image in images]
    by_class: dict[int, dict[Path, LabelledImage]] = {}
    for file, image in zip(files, images, strict=True):
        by_class.setdefault(image.label, {})[file] = image
    total = sum(map(len, by_class.values()))
    wanted = min(count if count >= 1 else count * total, total)  # which may be infinite
    held_out: dict[Path, LabelledImage] = {}
    for group in by_class.values():
        number = max(1, int(wanted * len(group) / total))
        if number == len(group):
            name = next(iter(group.values())).path.parent.name
            raise CorpusError(
                f"hold_out: all images of the class {name} ({number}) would be held out; lower hold_out, add images, or name "
                f"folders to validate on"
            )
        held_out |= list(group.items())[-number:]
    kept = [image for file, image in zip(files, images, strict=True) if file not in held_out]
    return kept, list(held_out.values())


class ImageStore:
    """Images as pixels of one size, decoded by `threads` threads at first use.

    If the pixels of all images fit into `cache_bytes`, they are kept in memory; otherwise none are.
    """

    def __init__(self, images: Sequence[LabelledImage], size: int, cache_bytes: float, threads: int) -> None:
        self.images = images
        self.labels = np.array([image.label for image in images], np.int64)
        self._size = size
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="triptych-images")
        fits = len(images) * size * size * 3 <= cache_bytes
        self._cache: Pixels | None = np.empty((len(images), size, size, 3), np.uint8) if fits else None
        self._cached = np.zeros(len(images), bool)

    def __len__(self) -> int:
        return len(self.images)

    def load(self, indices: Sequence[int] | Indices) -> Pixels:
        """Return pixels `[B, size, size, 3]`; raises CorpusError if a file is not an image."""
        if self._cache is None:
            return np.stack(list(self._pool.map(self._decode, indices)))
        missing = [index for index in indices if not self._cached[index]]
        for index, pixels in zip(missing, self._pool.map(self._decode, missing), strict=True):
            self._cache[index] = pixels
            self._cached[index] = True
        return self._cache[list(indices)]

    def _decode(self, index: int) -> Pixels:
        return decode(self.images[index].path, self._size)


def decode(path: Path, size: int) -> Pixels:
    """Decode an image, apply its EXIF orientation and stretch it to `[size, size, 3]`.

    Raises:
        CorpusError: the file cannot be read, or is not an image.
    """
    with _opened(path) as image:
        upright = to_rgb(ImageOps.exif_transpose(image))
        if upright.size != (size, size):
            upright = upright.resize((size, size), Image.Resampling.BILINEAR)
        return np.asarray(upright)


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert to RGB as serving does: 16-bit greyscale keeps its high byte; `convert` makes all values above 255 white."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")
