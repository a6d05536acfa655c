"""CTranslate2's wheels want CUDA 12's cuBLAS by its file name; where only CUDA 13's is installed, that one under the old name.

Of cuBLAS the wheels load nine functions when they first compute, none of which changed between the two; the CUDA runtime is
within them. Whether it works is for the first translation to say.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

WANTED = ("libcublas.so.12", "libcublasLt.so.12")
PLACES = ("nvidia/*/lib", "nvidia/*/lib64")  # of the vendor's packages, in a folder of packages
SYSTEM = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/usr/lib/x86_64-linux-gnu")


def library_folders() -> list[Path]:
    """Folders with libraries of CUDA: the vendor's packages, then the system's."""
    packages = [folder for root in sys.path for place in PLACES for folder in sorted(Path(root or ".").glob(place))]
    return [*packages, *(Path(name) for name in SYSTEM if Path(name).is_dir())]


def environment(work: Path, folders: list[Path] | None = None) -> tuple[dict[str, str], str]:
    """Variables for a process that loads CTranslate2, and what was done, in words.

    Args:
        work: the links are made here.
        folders: where to look; None: where CUDA usually is.
    """
    folders = library_folders() if folders is None else folders
    found = {name: next(_named(folders, name), None) for name in WANTED}
    if all(found.values()):
        return _path([*folders]), "cuBLAS 12"
    newer = {name: next(_named(folders, f"{name.partition('.so')[0]}.so.13"), None) for name in WANTED}
    if not all(newer.values()):
        return _path([*folders]), f"no cuBLAS 12 or 13 in {', '.join(map(str, folders)) or 'any folder'}"
    links = work / "cublas12"
    links.mkdir(parents=True, exist_ok=True)
    for name, library in newer.items():
        link = links / name
        link.unlink(missing_ok=True)
        link.symlink_to(str(library))
    return _path([links, *folders]), "cuBLAS 13 under the name of 12"


def _named(folders: list[Path], name: str) -> Iterator[Path]:
    return (folder / name for folder in folders if (folder / name).exists())


def _path(folders: list[Path], base: Mapping[str, str] = os.environ) -> dict[str, str]:
    parts = [*map(str, folders), base.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(part for part in parts if part)}
