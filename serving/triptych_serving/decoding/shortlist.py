"""Shortlists: the part of the target vocabulary that a source needs, its tokens' likely translations and common tokens.

`shortlist.npz` holds three arrays: `offsets` uint32 [V + 1] and `targets` [n], where source token s has
`targets[offsets[s]:offsets[s + 1]]`, and `always` [m], for every sentence; ids are uint16 or uint32.
"""

import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from triptych_serving.errors import BundleError

Ids = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]
TYPES = {"offsets": ("uint32",), "targets": ("uint16", "uint32"), "always": ("uint16", "uint32")}


class Shortlist:
    """The lists of one model. Thread-safe.

    Args:
        offsets: `[V + 1]`, ascending from 0 to n.
        targets: `[n]` ids below V.
        always: `[m]` ids below V.
        banned: ids that no translation may contain, except in a prefix.
    """

    def __init__(
        self, offsets: NDArray[Any], targets: NDArray[Any], always: NDArray[Any], banned: Collection[int] = ()
    ) -> None:
        self._banned = list(banned)
        self._always = np.zeros(len(offsets) - 1, bool)
        self._always[always] = True
        self._lists: list[Ids] = np.split(targets.astype(np.int64), offsets[1:-1])

    def ids(self, source: Sequence[int], extra: Sequence[int] = ()) -> Ids | None:
        """Return the ids that a translation of `source` may contain, ascending: some hundred, with `source` and `extra`.

        None where a source token has no list: then the whole vocabulary is needed.

        Args:
            source: ids, end of sentence last.
            extra: ids to include even if they are banned, such as a prefix's.
        """
        lists = [self._lists[token] for token in source]
        if not all(map(len, lists)):
            return None
        chosen = self._always.copy()
        chosen[[*source, *extra]] = True
        for targets in lists:  # takes half as long as concatenating them
            chosen[targets] = True
        if self._banned:
            chosen[self._banned] = False
            chosen[list(extra)] = True
        return chosen.nonzero()[0]


def read_shortlist(path: Path, vocabulary_size: int, banned: Collection[int] = ()) -> Shortlist:
    """Read `shortlist.npz`; V must be `vocabulary_size`. `banned` as for Shortlist.

    Raises:
        BundleError: the file cannot be read, or its arrays are inconsistent; lists all faults.
    """
    arrays = _load(path)
    faults = _type_faults(arrays) or _fit_faults(arrays, vocabulary_size)
    if faults:
        raise BundleError(path, faults)
    return Shortlist(**arrays, banned=banned)


def _load(path: Path) -> Arrays:
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise BundleError(path, ["not an archive of arrays (.npz)"])
        with file:
            return {name: file[name] for name in TYPES if name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BundleError(path, [f"cannot be read: {error}"]) from error


def _type_faults(arrays: Arrays) -> list[str]:
    faults = [f"{name} is missing" for name in TYPES if name not in arrays]
    for name, array in arrays.items():
        if array.dtype.name not in TYPES[name] or array.ndim != 1:
            faults.append(f"{name} is {array.dtype.name} {list(array.shape)}, expected {' or '.join(TYPES[name])} [n]")
    return faults


def _fit_faults(arrays: Arrays, size: int) -> list[str]:
    offsets, targets = arrays["offsets"].astype(np.int64), arrays["targets"]
    faults = []
    if len(offsets) != size + 1:
        faults.append(f"offsets has {len(offsets):,} numbers, expected {size + 1:,} for a vocabulary of {size:,}")
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(targets) or (np.diff(offsets) < 0).any():
        faults.append(f"offsets must ascend from 0 to {len(targets):,}, the size of targets")
    for name in ("targets", "always"):
        if len(arrays[name]) and (largest := int(arrays[name].max())) >= size:
            faults.append(f"{name} has id {largest:,}, but the vocabulary has {size:,} tokens")
    return faults
