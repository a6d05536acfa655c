"""The library of kernels for decoding graphs: whether it is installed, and which caches it makes the better ones."""

import ctypes
import logging
import os
from array import array
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from triptych_serving.runtime.cpu_info import VNNI, integer_extension
from triptych_serving.runtime.native.compiler import LIBRARY

LEVEL = "TRIPTYCH_NATIVE_KERNELS"  # environment: "off", or a level that the library reads
LEVELS = ("amx_int8", "avx512_vnni", "avx512", "avx_vnni", "avx2", "plain")  # as in levels.h
HEAD_MULTIPLE, LARGEST_HEAD = 16, 256
SCALED = 32  # as in arguments.h
COPY_NUMBERS = 5
NEWEST = "triptych_draw_token"  # function that earlier libraries lack
SHORT_COPY = 1 << 20  # bytes: some ten microseconds
SHORT_DRAW = 1 << 15  # values, likewise

logger = logging.getLogger(__name__)

Array = NDArray[Any]


def native_kernels(head_dim: int = HEAD_MULTIPLE) -> Path | None:
    """Return the library; None: not installed, switched off, or not for heads of this size."""
    if os.environ.get(LEVEL) == "off" or head_dim % HEAD_MULTIPLE or head_dim > LARGEST_HEAD:
        return None
    return LIBRARY if _loads(LIBRARY) else None


def prefers_int8_caches(head_dim: int | None = None) -> bool:
    """Return True if attention to int8 caches is faster than to float32 ones.

    Measured with AVX512-VNNI, and the library's paths for AVX-VNNI and AVX2. ONNX Runtime's own is slower with int8 on
    processors without VNNI, and has none for decoder-only models, of which `head_dim` is the size of heads.
    """
    if head_dim is not None:
        return native_kernels(head_dim) is not None and takes_sequences()
    extension = integer_extension()
    return extension in VNNI or (extension == "avx2" and native_kernels() is not None)


def cached_bytes(head_dim: int) -> int:
    """Return the bytes of a decoder-only model's key or value in int8 caches: its channels, and a float32 step for every 32."""
    return head_dim + 4 * -(-head_dim // SCALED)


class Positions:
    """Positions of the rows of caches `[N, rows, H, positions, D]`, which are copied to others, or within one."""

    def __init__(self, caches: Array) -> None:
        self._caches, self._address = caches, ctypes.c_void_p(caches.ctypes.data)
        self._shape = (ctypes.c_int64 * caches.ndim)(*caches.shape[:-1], caches.shape[-1] * caches.itemsize)
        self._bytes = caches.nbytes // (caches.shape[1] * caches.shape[3])  # of a position of a row
        self._kernels = native_kernels()

    def copy(self, source: "Positions", copies: "array[int]") -> None:
        """Make copies one after the other.

        The library keeps Python's lock meanwhile if that is short: numpy would release it for each copy, and wait for it again.

        Args:
            copies: five 64-bit numbers for each: row and first position in the source and here, number of positions.
        """
        if self._kernels is None:
            for first in range(0, len(copies), COPY_NUMBERS):
                from_row, start, to_row, to_start, count = copies[first : first + COPY_NUMBERS]
                there = source._caches[:, from_row, :, start : start + count]
                self._caches[:, to_row, :, to_start : to_start + count] = there
            return
        library = _library(self._kernels, keeps_lock=self._bytes * sum(copies[COPY_NUMBERS - 1 :: COPY_NUMBERS]) < SHORT_COPY)
        library.triptych_copy_positions(
            source._address,
            source._shape,
            self._address,
            self._shape,
            ctypes.c_void_p(copies.buffer_info()[0]),
            ctypes.c_int64(len(copies) // COPY_NUMBERS),
        )


def beam_step() -> Callable[[ctypes.Structure, int, int], int] | None:
    """Return the library's function for a step of beam search, which beams.h describes; None: not installed.

    It takes some microseconds, and keeps Python's lock meanwhile.
    """
    if (kernels := native_kernels()) is None:
        return None
    extend = _library(kernels, keeps_lock=True).triptych_extend_hypotheses
    return lambda arrays, texts, count: int(extend(ctypes.byref(arrays), ctypes.c_void_p(texts), ctypes.c_int64(count)))


def native_draw() -> Callable[[Array, float, int, float, float, float], int] | None:
    """Return the library's function that draws an index into float32 values `[C]`; None: not installed.

    Its arguments are those of `Sampler.choose`, and a random number of at least 0 and below 1.
    """
    if (kernels := native_kernels()) is None:
        return None

    def draw(values: Array, temperature: float, topk: int, topp: float, minp: float, random: float) -> int:
        place, size = ctypes.c_void_p(values.ctypes.data), ctypes.c_int64(len(values))
        options = ctypes.c_double(temperature), ctypes.c_int64(topk), ctypes.c_double(topp), ctypes.c_double(minp)
        library = _library(kernels, keeps_lock=len(values) < SHORT_DRAW)
        return int(library.triptych_draw_token(place, size, *options, ctypes.c_double(random)))

    return draw


@cache
def _library(path: Path, keeps_lock: bool = False) -> ctypes.CDLL:
    return ctypes.PyDLL(str(path)) if keeps_lock else ctypes.CDLL(str(path))


def takes_sequences() -> bool:
    """Return True if the library has QAttention and products of bytes for this processor: from AVX2 on."""
    kernels = native_kernels()
    return kernels is not None and bool(_library(kernels).triptych_multiplies_bytes())


@cache
def _loads(library: Path) -> bool:
    if not library.exists():
        return False
    try:
        loaded = _library(library)
    except OSError as error:
        logger.warning("native kernels cannot be loaded, ONNX Runtime's are used: %s", error)
        return False
    if not hasattr(loaded, NEWEST):
        logger.warning("native kernels are those of an earlier release, ONNX Runtime's are used: install triptych again")
        return False
    if (level := os.environ.get(LEVEL, "")) not in ("", *LEVELS):
        logger.warning("%s: %r is unknown, the best kernels are used: set off, %s, or nothing", LEVEL, level, ", ".join(LEVELS))
    return True
