"""Weights of CTranslate2: the variables of a `model.bin`, restored to float32.

Source: https://github.com/OpenNMT/CTranslate2 (python/ctranslate2/specs/model_spec.py, src/models/model.cc)
"""

import mmap
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from triptych_export.errors import SourceError
from triptych_export.huggingface.folder import pointer_remedy

NAME = "model.bin"
OLDEST, NEWEST = 2, 6  # versions of the format
ALIASES, TYPE_NUMBERS = 3, 4  # first version with aliases, and with numbers of types instead of the size of a value
SPECIFICATIONS = {"TransformerSpec": None, "TransformerBase": 8, "TransformerBig": 16}  # heads, where no variable has them
BFLOAT16: np.dtype[Any] = np.dtype("V2")
TYPES: Sequence[np.dtype[Any]] = (*map(np.dtype, ("<f4", "i1", "<i2", "<i4", "<f2")), BFLOAT16)
TYPE_OF_SIZE: Mapping[int, np.dtype[Any]] = {1: TYPES[1], 2: TYPES[2], 4: TYPES[0]}
SCALE = "_scale"  # of a variable with quantized weights


@dataclass(frozen=True)
class Place:
    """Position, type and shape of a variable in the file."""

    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class ModelFile:
    """A model.bin: shapes of its weights by name, and its single values.

    Names are those of CTranslate2 with dots for slashes, such as `decoder.layer_0.ffn.linear_1.weight`. The encoder's
    embeddings have their older name in newer files too.

    Raises:
        SourceError: the file is not of this format, damaged, or of another kind of model than an encoder-decoder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._bytes = memoryview(b"")
        self._places: dict[str, Place] = {}
        self._aliases: dict[str, str] = {}
        try:
            with path.open("rb") as file:
                self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self._read_places()
        except (OSError, ValueError, struct.error, UnicodeDecodeError) as error:
            remedy = pointer_remedy(path)
            raise SourceError(f"{path}: not a model of CTranslate2, or damaged ({error}){remedy}") from error
        if missing := sorted(set(self._aliases.values()) - self._places.keys()):
            raise SourceError(f"{path}: damaged: {missing[0]} is missing")

    @cached_property
    def shapes(self) -> Mapping[str, torch.Size]:
        """Shapes of all weights, by name."""
        names = {*self._places, *self._aliases}
        shapes = {name: self._places[self.stored_name(name)].shape for name in names}
        return {name: torch.Size(shape) for name, shape in shapes.items() if shape and not self._is_scale(name)}

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Variables without dimensions, but scales: whole numbers, or fractions where they are stored as such."""
        names = (name for name, place in self._places.items() if not place.shape and not self._is_scale(name))
        found: dict[str, float] = {name: self._stored(name).item() for name in names}
        heads = SPECIFICATIONS[self.specification]
        return {**({"num_heads": heads} if heads else {}), **found}

    def stored_name(self, name: str) -> str:
        """Return the name under which a variable is stored, which several may share."""
        return self._aliases.get(name, name)

    def read(self, name: str) -> Tensor:
        """Read one variable as float32."""
        stored = self.stored_name(name)
        values = self._array(stored)
        if f"{stored}{SCALE}" in self._places:
            scale = self._array(f"{stored}{SCALE}")
            with np.errstate(all="ignore"):
                values = values / scale.reshape(scale.shape + (1,) * (values.ndim - scale.ndim))
            if not np.isfinite(values).all():
                raise SourceError(f"{self.path}: damaged: {stored}{SCALE} gives weights that are not finite")
        return torch.from_numpy(values)

    def _is_scale(self, name: str) -> bool:
        return name.endswith(SCALE) and self.stored_name(name.removesuffix(SCALE)) in self._places

    def _array(self, name: str) -> NDArray[np.float32]:
        values = self._stored(name)
        if values.dtype == BFLOAT16:  # the first half of a float32
            values = (values.view("<u2").astype("<u4") << 16).view("<f4")
        return values.astype(np.float32)

    def _stored(self, name: str) -> NDArray[Any]:
        place = self._places[name]
        return np.frombuffer(self._bytes, place.dtype, prod(place.shape), place.start).reshape(place.shape)

    def _read_places(self) -> None:
        position = 0

        def take(kind: str) -> int:
            nonlocal position
            [value] = struct.unpack_from(f"<{kind}", self._bytes, position)
            position += struct.calcsize(f"<{kind}")
            return int(value)

        def text() -> str:
            nonlocal position
            length = take("H")
            start, position = position, position + length
            if position > len(self._bytes):
                raise ValueError(f"cut short after {len(self._bytes):,} bytes")
            name = bytes(self._bytes[start : position - 1]).decode().replace("/", ".")
            return name.replace(".embeddings_0.", ".embeddings.")

        version = take("I")
        if not OLDEST <= version <= NEWEST:
            raise ValueError(f"version {version:,}, supported are {OLDEST} to {NEWEST}")
        self.specification = text()
        if self.specification not in SPECIFICATIONS:
            known = ", ".join(SPECIFICATIONS)
            raise SourceError(f"{self.path}: {self.specification!r:.60} is not supported; supported: {known}")
        take("I")  # the specification's revision; names of variables tell more
        for _ in range(take("I")):
            name = text()
            shape = tuple(take("I") for _ in range(take("B")))
            dtype, size = _type_and_size(version, take)
            if size != prod(shape) * dtype.itemsize:
                raise ValueError(f"{name}: {size:,} bytes for the shape {list(shape)}")
            self._places[name] = Place(position, dtype, shape)
            position += size
            if position > len(self._bytes):
                raise ValueError(f"cut short: {name} ends at byte {position:,} of {len(self._bytes):,}")
        for _ in range(take("I") if version >= ALIASES else 0):
            alias = text()
            self._aliases[alias] = text()


def _type_and_size(version: int, take: Callable[[str], int]) -> tuple[np.dtype[Any], int]:
    """Read the type of a variable and its number of bytes."""
    number = take("B")
    if version >= TYPE_NUMBERS:
        if number >= len(TYPES):
            raise ValueError(f"type {number} is unknown")
        return TYPES[number], take("I")
    if number not in TYPE_OF_SIZE:
        raise ValueError(f"values of {number} bytes")
    return TYPE_OF_SIZE[number], take("I") * number
