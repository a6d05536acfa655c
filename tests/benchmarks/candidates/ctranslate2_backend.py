"""CTranslate2's libraries: its fastest back end on this CPU, and cuBLAS on a GPU.

The wheels want CUDA 12's cuBLAS by its file name. Where only CUDA 13's is installed, that one is linked under the old name: of
the nine functions that the wheels load when they first compute, none changed between the two.
"""

import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

VARIABLES = ("CT2_USE_MKL", "CT2_FORCE_CPU_ISA", "CT2_PACKED_GEMM")
TRIED = ("", "CT2_USE_MKL=0", "CT2_USE_MKL=1", "CT2_PACKED_GEMM=1", "CT2_FORCE_CPU_ISA=AVX2", "CT2_FORCE_CPU_ISA=AVX512")
PASSES = 5
MARGIN = 0.93  # smaller gains are noise: CTranslate2's own choice stands
WANTED = ("libcublas.so.12", "libcublasLt.so.12")
PATTERNS = ("nvidia/*/lib", "nvidia/*/lib64")  # of the vendor's packages, in a folder of packages
SYSTEM = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu")


def choose(seconds: Callable[[str], Sequence[float]], unsupported: type[Exception]) -> str:
    """Set the variable of TRIED with the least time in this process's environment, for the processes it starts.

    Args:
        seconds: Returns the time of each precision with a variable, `NAME=VALUE`, in a new process.
        unsupported: Raised by `seconds` if the processor does not support a back end.
    """
    for name in VARIABLES:
        os.environ.pop(name, None)
    times = {"": statistics.geometric_mean(seconds(""))}
    for assignment in TRIED[1:]:
        try:
            times[assignment] = statistics.geometric_mean(seconds(assignment))
        except unsupported:
            continue
    best = min(times, key=times.__getitem__)
    if times[best] > MARGIN * times[""]:
        return ""
    if best:
        name, _, value = best.partition("=")
        os.environ[name] = value
    return best


def library_folders() -> list[Path]:
    """Return folders with CUDA libraries: the vendor's packages, then the system's."""
    packages = [folder for root in sys.path for pattern in PATTERNS for folder in sorted(Path(root or ".").glob(pattern))]
    return [*packages, *(Path(name) for name in SYSTEM if Path(name).is_dir())]


def cuda_environment(work: Path, folders: list[Path] | None = None) -> tuple[dict[str, str], str]:
    """Return variables for a process that loads CTranslate2, and a description of the cuBLAS it finds.

    Args:
        work: Receives the links.
        folders: Folders to search; by default those where CUDA usually is.
    """
    folders = library_folders() if folders is None else folders
    if all(_find(folders, name) for name in WANTED):
        return _path(folders), "cuBLAS 12"
    newer = {name: _find(folders, f"{name.partition('.so')[0]}.so.13") for name in WANTED}
    if not all(newer.values()):
        return _path(folders), f"no cuBLAS 12 or 13 in {', '.join(map(str, folders)) or 'any folder'}"
    links = work / "cublas12"
    links.mkdir(parents=True, exist_ok=True)
    for name, library in newer.items():
        (links / name).unlink(missing_ok=True)
        (links / name).symlink_to(str(library))
    return _path([links, *folders]), "cuBLAS 13 under the name of 12"


def _find(folders: Sequence[Path], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _path(folders: Sequence[Path], base: Mapping[str, str] = os.environ) -> dict[str, str]:
    parts = [*map(str, folders), base.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(part for part in parts if part)}
