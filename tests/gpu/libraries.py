"""Where CUDA's libraries lie that pip installed: a runtime in a folder of its own does not find them by itself."""

import os
from collections.abc import Sequence
from pathlib import Path

PLACES = ("nvidia/*/lib", "nvidia/*/lib64")


def library_path(roots: Sequence[str]) -> str:
    """For LD_LIBRARY_PATH: the vendor's packages in these folders, then what is there already."""
    found = [str(folder) for root in roots for place in PLACES for folder in sorted(Path(root or ".").glob(place))]
    return ":".join([*dict.fromkeys(found), *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])])
