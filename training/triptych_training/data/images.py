"""Image folders, `<class>/<file>`, and the pixels in them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from triptych_training.errors import CorpusError

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Picture:
    """One file and the number of its class."""

    path: Path
    label: int


def read_folders(roots: Sequence[str], classes: Sequence[str] = ()) -> tuple[list[Picture], list[str]]:
    """Every image of every class of every folder, by class, then file name; and the classes' names.

    Args:
        roots: folders that hold one folder for each class.
        classes: the names that are known already; empty: all that there are.

    Raises:
        CorpusError: a folder is missing, holds no images or an unknown class, or there is only one class.
    """
    folders = [folder for root in roots for folder in _subfolders(Path(root))]
    names = list(classes) or sorted({folder.name for folder in folders})
    if len(names) < 2:
        raise CorpusError(f"{', '.join(roots)}: {len(names)} classes, expected at least 2 folders of images")
    if unknown := sorted({folder.name for folder in folders} - set(names)):
        raise CorpusError(f"{', '.join(roots)}: {', '.join(unknown)} are no classes of the training set")
    pictures = []
    for folder in sorted(folders, key=lambda folder: (names.index(folder.name), str(folder))):
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
        if not files:
            raise CorpusError(f"{folder}: holds no images ({', '.join(sorted(SUFFIXES))})")
        pictures += [Picture(path, names.index(folder.name)) for path in files]
    return pictures, names


def _subfolders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise CorpusError(f"{root}: no such folder")
    return sorted(path for path in root.iterdir() if path.is_dir())


def hold_out(pictures: Sequence[Picture], count: int) -> tuple[list[Picture], list[Picture]]:
    """Take the last of each class' files, `count` in all, from the others: the same ones every time.

    Raises:
        CorpusError: a class would have none left to train on.
    """
    by_class: dict[int, list[Picture]] = {}
    for picture in pictures:
        by_class.setdefault(picture.label, []).append(picture)
    each = max(1, count // len(by_class))
    smallest = min(map(len, by_class.values()))
    if each >= smallest:
        raise CorpusError(f"hold_out: {each} images a class, but the smallest class has {smallest}")
    kept = [picture for group in by_class.values() for picture in group[:-each]]
    return kept, [picture for group in by_class.values() for picture in group[-each:]]


class PictureStore:
    """Pictures as pixels of one size, decoded when first asked for, kept while memory lasts.

    Args:
        pictures: the files.
        size: height and width, in pixels.
        cache_bytes: memory to keep pixels in; where it is too small for all, none are kept.
        threads: that decode.
    """

    def __init__(self, pictures: Sequence[Picture], size: int, cache_bytes: float, threads: int) -> None:
        self.pictures = pictures
        self.labels = np.array([picture.label for picture in pictures], np.int64)
        self._size = size
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="triptych-pictures")
        fits = len(pictures) * size * size * 3 <= cache_bytes
        self._kept: Pixels | None = np.empty((len(pictures), size, size, 3), np.uint8) if fits else None
        self._known = np.zeros(len(pictures), bool)

    def __len__(self) -> int:
        return len(self.pictures)

    def load(self, indices: Sequence[int]) -> Pixels:
        """`[B, size, size, 3]`.

        Raises:
            CorpusError: a file is no image.
        """
        if self._kept is None:
            return np.stack(list(self._pool.map(self._decode, indices)))
        missing = [index for index in indices if not self._known[index]]
        for index, pixels in zip(missing, self._pool.map(self._decode, missing), strict=True):
            self._kept[index] = pixels
            self._known[index] = True
        return self._kept[list(indices)]

    def _decode(self, index: int) -> Pixels:
        return decode(self.pictures[index].path, self._size)


def decode(path: Path, size: int) -> Pixels:
    """The image, upright, stretched to `[size, size, 3]`.

    Raises:
        CorpusError: the file cannot be read, or is no image.
    """
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
            if upright.size != (size, size):
                upright = upright.resize((size, size), Image.Resampling.BILINEAR)
            return np.asarray(upright)
    except Exception as error:  # Pillow's decoders raise whatever they run into
        raise CorpusError(f"{path}: cannot be used as an image: {error}") from error
