"""The library of kernels for decoding graphs: whether it is installed, and which caches it makes the better ones."""

import ctypes
import logging
import os
from functools import cache
from pathlib import Path

from triptych_serving.runtime.cpu_info import VNNI, integer_extension
from triptych_serving.runtime.native.compiler import LIBRARY

LEVEL = "TRIPTYCH_NATIVE_KERNELS"  # environment: "off", or a level that the library reads
HEAD_MULTIPLE, LARGEST_HEAD = 16, 256

logger = logging.getLogger(__name__)


def native_kernels(head_dim: int = HEAD_MULTIPLE) -> Path | None:
    """Return the library; None: not installed, switched off, or not for heads of this size."""
    if os.environ.get(LEVEL) == "off" or head_dim % HEAD_MULTIPLE or head_dim > LARGEST_HEAD:
        return None
    return LIBRARY if _loads(LIBRARY) else None


def prefers_int8_caches() -> bool:
    """Return True if attention to int8 caches is faster than to float32 ones.

    Measured with AVX512-VNNI, and the library's AVX2 path. ONNX Runtime's own is slower with int8 on processors without VNNI.
    """
    extension = integer_extension()
    return extension in VNNI or (extension == "avx2" and native_kernels() is not None)


@cache
def _loads(library: Path) -> bool:
    if not library.exists():
        return False
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        logger.warning("native kernels cannot be loaded, ONNX Runtime's are used: %s", error)
        return False
    return True
